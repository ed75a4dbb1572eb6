"""Our queue as a program to be measured: consume, and nothing else.

Beside the flags that all programs have: `--run`, which calls a handler instead of iterating; and
`--nats URL --members N`, where so many members call a handler for what another one, which owns the
partition, leases them. Every delivery is acked. The time begins when the group is joined.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from benchmarks.peers import measuring
from benchmarks.peers.measuring import Outcome, Settings, Watch
from liftbridge_aio import Client
from liftbridge_aio.queue import Delivery, Queue, QueueOptions

_HANDLERS: Final = 16
_POLL: Final = 0.01


async def consume(settings: Settings, *, runs: bool) -> Outcome:
    """Take and ack as many deliveries as expected, and leave the queue."""
    async with Client(*settings.servers) as client:
        group = secrets.token_hex(8)
        async with client.queue(settings.stream, group=group) as queue:
            watch = Watch()
            await (_run if runs else _iterate)(queue, settings.expected)
            return watch.stop(settings.expected)


async def lease(settings: Settings, nats: str, members: int) -> Outcome:
    """Have members handle as many deliveries as expected, all leased by another one."""
    left = settings.expected
    done = asyncio.Event()

    async def handle(_: Delivery) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    async with Client(*settings.servers) as client, AsyncExitStack() as stack:
        group = secrets.token_hex(8)
        queues = []
        for _ in range(members + 1):
            queue = client.queue(settings.stream, group=group, options=QueueOptions(nats=nats))
            queues.append(await stack.enter_async_context(queue))
        while not _is_balanced(queues):  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(_POLL)
        queues.sort(key=lambda queue: not queue.assignment)
        watch = Watch()
        runs = [asyncio.create_task(each.run(handle, concurrency=_HANDLERS)) for each in queues[1:]]
        await done.wait()
        outcome = watch.stop(settings.expected)
        leased = sum(each.statistics().borrowed for each in queues[1:])
        outcome.errors = max(0, settings.expected - leased)
        for each in reversed(queues):
            await each.aclose()
        await asyncio.gather(*runs)
        return outcome


def _is_balanced(queues: Sequence[Queue[Delivery]]) -> bool:
    """Return True if all members know of each other, and one owns the partition."""
    epochs = {queue._member.epoch for queue in queues}  # noqa: SLF001
    return len(epochs) == 1 and sum(len(queue.assignment) for queue in queues) == 1


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
    parser.add_argument("--nats")
    parser.add_argument("--members", type=int, default=1)
    own, common = parser.parse_known_args(words)

    def measure(settings: Settings) -> Outcome:
        if own.nats:
            return asyncio.run(lease(settings, own.nats, own.members))
        return asyncio.run(consume(settings, runs=own.run))

    measuring.main(
        "ours-queue",
        "liftbridge-aio",
        {"consume": measure},
        common,
    )


if __name__ == "__main__":
    main()
