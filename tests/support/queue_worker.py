"""A member of a queue as a program of its own, which a message may kill.

It writes the value of each message that it has handled, one per line, and ends when it is killed:

    queue_worker.py ADDRESS STREAM GROUP DEAD_LETTERS MAX_ATTEMPTS
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from liftbridge_aio import Client
from liftbridge_aio.queue import DeadLetter, Delivery, QueueOptions


async def handle(delivery: Delivery) -> None:
    if delivery.value.startswith(b"kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(0.002)
    print(delivery.value.decode(), flush=True)  # noqa: T201 - what it is for


async def work(address: str, stream: str, group: str, dead: str, max_attempts: str) -> None:
    async with (
        Client(address) as client,
        client.queue(
            stream,
            group=group,
            options=QueueOptions(
                max_in_flight=8,
                max_attempts=int(max_attempts),
                dead_letter=DeadLetter(dead),
                commit_interval=0.3,
                timeout=30,
            ),
        ) as queue,
    ):
        await queue.run(handle, concurrency=4)


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
