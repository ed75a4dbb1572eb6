"""A member of a queue as a program of its own, which a message may kill.

It writes the value of each message that it has handled, one per line, and ends when it is killed:

    queue_worker.py ADDRESS STREAM GROUP DEAD_LETTERS MAX_ATTEMPTS [RESULTS]

With RESULTS, a stream of two partitions, it publishes the value to both in a transaction.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from liftbridge_aio import Client, StartAt
from liftbridge_aio.queue import DeadLetter, Delivery


async def handle(delivery: Delivery) -> None:
    if delivery.value.startswith(b"kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(0.002)
    print(delivery.value.decode(), flush=True)  # noqa: T201 - what it is for


async def copy(delivery: Delivery, results: str) -> None:
    async with delivery.transaction() as transaction:
        for partition in range(2):
            await transaction.publish(results, delivery.value, partition=partition)
    print(delivery.value.decode(), flush=True)  # noqa: T201 - what it is for


async def work(
    address: str, stream: str, group: str, dead: str, max_attempts: str, results: str = ""
) -> None:
    async with (
        Client(address) as client,
        client.queue(
            stream,
            group=group,
            start=StartAt.earliest(),
            max_in_flight=8,
            max_attempts=int(max_attempts),
            dead_letter=DeadLetter(dead),
            commit_interval=0.3,
            timeout=30,
        ) as queue,
    ):
        if results:
            await queue.run(lambda delivery: copy(delivery, results), concurrency=4)
        else:
            await queue.run(handle, concurrency=4)


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
