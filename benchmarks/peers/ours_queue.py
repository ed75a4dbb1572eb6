"""Our queue as a program to be measured: consume, and nothing else.

Beside the flags that all programs have: `--run`, which calls a handler instead of iterating. Every
delivery is acked. The time begins when the group is joined.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets

from benchmarks.peers import measuring
from benchmarks.peers.measuring import Outcome, Settings, Watch
from liftbridge_aio import Client, StartAt
from liftbridge_aio.queue import Delivery, Queue


async def consume(settings: Settings, *, runs: bool) -> Outcome:
    """Take and ack as many deliveries as expected, and leave the queue."""
    async with Client(*settings.servers) as client:
        group = secrets.token_hex(8)
        async with client.queue(settings.stream, group=group, start=StartAt.earliest()) as queue:
            watch = Watch()
            await (_run if runs else _iterate)(queue, settings.expected)
            return watch.stop(settings.expected)


async def _iterate(queue: Queue[Delivery], expected: int) -> None:
    left = expected
    async for delivery in queue:
        async with delivery:
            left -= 1
        if not left:
            return


async def _run(queue: Queue[Delivery], expected: int) -> None:
    left = expected

    async def handle(_: Delivery) -> None:
        nonlocal left
        left -= 1
        if not left:
            await queue.aclose()

    await queue.run(handle)


def main(words: list[str] | None = None) -> None:
    """Do what the words say and print one line of JSON."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--run", action="store_true")
    own, common = parser.parse_known_args(words)
    measuring.main(
        "ours-queue",
        "liftbridge-aio",
        {"consume": lambda settings: asyncio.run(consume(settings, runs=own.run))},
        common,
    )


if __name__ == "__main__":
    main()
