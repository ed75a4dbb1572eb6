"""Partitions that pause themselves whenever nothing comes, under readers that resume them."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from typing import Final

from liftbridge_aio import (
    ALL_PARTITIONS,
    Client,
    ClientOptions,
    Message,
    Retry,
    StartAt,
    StreamOptions,
)

PARTITIONS: Final = 2
ROUNDS: Final = 4
AT_ONCE: Final = 3
"""Messages that a partition gets between two pauses."""
WITHIN: Final = 30.0
"""Seconds for a publish, and for whatever else is waited for."""


class WentWrong(Exception):
    """A promise of the client was broken; the text says which."""


async def pause_themselves(
    addresses: Sequence[str], options: ClientOptions, stream: str, idle: float
) -> float:
    """Let partitions pause again and again, and check what readers make of it.

    Args:
        addresses: of the servers.
        options: of the client.
        stream: a new one, deleted in the end.
        idle: seconds without messages after which its partitions pause.

    Returns:
        The longest time that it took, in seconds, to read what was published to paused partitions.

    Raises:
        WentWrong: a message was lost or came out of order, or more than once to a subscription.
        LiftbridgeError: what publishing or reading raised.
    """
    longest = 0.0
    every = range(PARTITIONS)
    read: dict[str, dict[int, list[int]]] = {"subscription": defaultdict(list)}
    read["group"] = defaultdict(list)

    async def note(source: AsyncIterable[Message], whose: str) -> None:
        async for message in source:
            read[whose][message.partition].append(message.offset)

    async def read_as_member() -> None:
        member = client.group(f"{stream}-group", [stream], start=StartAt.earliest(), resume=True)
        async with member:
            await note(member, "group")

    async def pauses(partition: int) -> int:
        return (await client.fetch_partition_metadata(stream, partition)).pause.latest or 0

    async with Client(*addresses, options=options) as client:
        settings = StreamOptions(auto_pause_time=idle)
        await client.create_stream(stream, partitions=PARTITIONS, options=settings)
        subscription = client.subscribe(
            stream, ALL_PARTITIONS, StartAt.earliest(), resume=True, resubscribe_timeout=WITHIN
        )
        tasks = [
            asyncio.create_task(note(subscription, "subscription")),
            asyncio.create_task(read_as_member()),
        ]
        try:
            for count in range(1, ROUNDS + 1):
                began = time.monotonic()
                for partition in (*every,) * AT_ONCE:
                    await client.publish(
                        stream, b"", partition=partition, retry=Retry(attempts=50), timeout=WITHIN
                    )

                async def all_read(wanted: int = count * AT_ONCE) -> bool:
                    lists = [offsets[partition] for offsets in read.values() for partition in every]
                    return all(offsets[-1:] >= [wanted - 1] for offsets in lists)

                await _until(all_read, tasks, "what was published was not read")
                longest = max(longest, time.monotonic() - began)
                before = [await pauses(partition) for partition in every]

                async def all_paused(before: Sequence[int] = before) -> bool:
                    return all([await pauses(p) > before[p] for p in every])

                await _until(all_paused, tasks, "the partitions did not pause")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        # v1.9.0 counts a stream down twice where it is paused and then deleted.
        await client.resume_stream(stream)
        await client.delete_stream(stream)
    _check(read)
    return longest


async def _until(
    condition: Callable[[], Awaitable[bool]], tasks: Sequence[asyncio.Task[None]], complaint: str
) -> None:
    until = time.monotonic() + WITHIN
    while not await condition():
        for task in tasks:
            if task.done():
                await task
                text = "a reading ended"
                raise WentWrong(text)
        if time.monotonic() > until:
            text = f"{complaint} within {WITHIN:g} s"
            raise WentWrong(text)
        await asyncio.sleep(0.02)


def _check(read: dict[str, dict[int, list[int]]]) -> None:
    expected = list(range(ROUNDS * AT_ONCE))
    for whose, partitions in read.items():
        for partition, offsets in partitions.items():
            # A group may be given messages again.
            found = sorted(set(offsets)) if whose == "group" else offsets
            if found != expected:
                text = f"the {whose} read of partition {partition}: {offsets}"
                raise WentWrong(text)
