"""A member of a queue that shares messages over NATS, as a program of its own.

It writes a line when it begins with a message, and one when it is done, with the value, and whether
the message is of its own partition or leased; and one with each new epoch of the group. A message
"poison" kills it:

    lease_worker.py ADDRESS NATS STREAM GROUP [DEAD]

DEAD is a stream of dead letters, to which messages go after two attempts.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from liftbridge_aio import Client
from liftbridge_aio.queue import DeadLetter, Delivery, Order, Queue, QueueOptions


async def handle(delivery: Delivery) -> None:
    kind = "leased" if delivery.answers.is_remote else "own"
    print("begin", kind, delivery.value.decode(), flush=True)  # noqa: T201 - what it is for
    if delivery.value == b"poison":
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(0.05)
    print("done", kind, delivery.value.decode(), flush=True)  # noqa: T201 - same


async def tell_epochs(queue: Queue[Delivery]) -> None:
    told = None
    while True:
        epoch = queue._member.epoch
        if epoch != told:
            told = epoch
            print("epoch", "of", epoch, flush=True)  # noqa: T201 - what it is for
        await asyncio.sleep(0.05)


async def work(address: str, nats: str, stream: str, group: str, dead: str = "") -> None:
    async with (
        Client(address) as client,
        client.queue(
            stream,
            group=group,
            options=QueueOptions(
                max_in_flight=8,
                ack_wait=3,
                retry=lambda _attempt, _error: 0.05,
                max_attempts=2 if dead else 0,
                dead_letter=DeadLetter(dead) if dead else None,
                order=Order.KEY,
                commit_interval=0.3,
                nats=nats,
                timeout=30,
            ),
        ) as queue,
    ):
        telling = asyncio.create_task(tell_epochs(queue))
        await queue.run(handle, concurrency=2)
        telling.cancel()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
