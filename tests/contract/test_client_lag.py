"""The lag of readers: only messages that can still be read count, whatever a log has lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from liftbridge_aio import Client, PartitionNotFound, StartAt, StreamNotFound
from liftbridge_aio._subscribe import log_probe
from liftbridge_aio._subscribe.subscription import Subscription
from liftbridge_aio.groups import StreamPartition
from liftbridge_aio.wire import proto
from support.clients import EARLIEST, take
from support.marks import ON_ONE_PATH
from support.raw import Wire, eventually
from support.segments import (
    MAX_AGE,
    become,
    becomes_emptied,
    create,
    int64,
)

COUNT: Final = 10
KEPT: Final = 3
CLEANER_INTERVAL: Final = 1000
"""In milliseconds: much longer than publishing takes, which must not meet the cleaner."""
Make = Callable[[Client, Wire, str], Awaitable[None]]


async def filled(client: Client, wire: Wire, stream: str, **settings: int) -> None:
    """Have a stream of `COUNT` messages, one by one: together they would fill one segment."""
    settings = {"cleaner_interval": CLEANER_INTERVAL} | settings
    await create(wire, stream, **settings)
    for _ in range(COUNT):
        await client.publish(stream, b"")


async def empty(client: Client, wire: Wire, stream: str) -> None:
    del client
    await create(wire, stream)


async def whole(client: Client, wire: Wire, stream: str) -> None:
    await filled(client, wire, stream)


async def cut(client: Client, wire: Wire, stream: str) -> None:
    await filled(client, wire, stream, retention_max_messages=KEPT)
    await become(wire, stream, list(range(COUNT - KEPT, COUNT)))


async def emptied(client: Client, wire: Wire, stream: str) -> None:
    await filled(client, wire, stream, retention_max_age=MAX_AGE)
    await becomes_emptied(wire, stream, COUNT)


async def rolled(client: Client, wire: Wire, stream: str) -> None:
    """All messages lie in a full segment: servers say of it what they say of an emptied one."""
    await filled(client, wire, stream, segment_bytes=10_000, segment_max_age=CLEANER_INTERVAL)
    await becomes_emptied(wire, stream, COUNT)  # as far as the answers go


async def compacted(client: Client, wire: Wire, stream: str) -> None:
    await wire.create(
        stream,
        segment_max_bytes=int64(1),
        cleaner_interval=int64(CLEANER_INTERVAL),
        compact_enabled=proto.NullableBool(value=True),
    )
    for key in "abababac":
        await client.publish(stream, b"", key=key.encode())
    await become(wire, stream, [5, 6, 7])


async def paused(client: Client, wire: Wire, stream: str) -> None:
    await cut(client, wire, stream)
    await wire.pause(stream)


async def paused_whole(client: Client, wire: Wire, stream: str) -> None:
    await whole(client, wire, stream)
    await wire.pause(stream)


async def paused_emptied(client: Client, wire: Wire, stream: str) -> None:
    await emptied(client, wire, stream)
    await wire.pause(stream)


async def readonly(client: Client, wire: Wire, stream: str) -> None:
    await whole(client, wire, stream)
    await wire.set_readonly(stream)


async def readonly_emptied(client: Client, wire: Wire, stream: str) -> None:
    await emptied(client, wire, stream)
    await wire.set_readonly(stream)


STATES: Final[list[tuple[Make, int, int]]] = [
    (empty, 0, 0),
    (whole, 0, COUNT),
    (cut, COUNT - KEPT, COUNT),
    (emptied, COUNT, COUNT),
    (rolled, 0, COUNT),
    (compacted, 5, 8),
    (paused, COUNT - KEPT, COUNT),
    (paused_whole, 0, COUNT),
    (paused_emptied, COUNT, COUNT),
    (readonly, 0, COUNT),
    (readonly_emptied, COUNT, COUNT),
]
"""States of a partition, its oldest message and the offset behind its newest one."""


@ON_ONE_PATH
async def test_what_can_be_read_is_known_of_a_log_in_any_state(
    client: Client, wire: Wire, cleaned_stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_probe, "_SILENCE", 0.3)  # each emptied log is asked for five times

    async def check(number: int, make: Make, oldest: int, end: int) -> None:
        stream = f"{cleaned_stream}-{number}"
        await make(client, wire, stream)
        assert await client.oldest_offset(stream) == oldest, make
        for position in {0, oldest, max(end - 1, 0), end}:
            reading = client.subscribe(stream, partition=0, start=StartAt.offset(position))
            assert await reading.lag() == end - max(position, oldest), (make, position)
        assert await client.subscribe(stream, partition=0, start=EARLIEST).lag() == end - oldest
        await wire.pause(stream)

    await create(wire, cleaned_stream)
    async with asyncio.TaskGroup() as tasks:
        for number, state in enumerate(STATES):
            tasks.create_task(check(number, *state))


async def all_here(reading: Subscription, offset: int) -> None:
    await eventually(lambda: reading.last_offset is not None and reading.last_offset >= offset)


@ON_ONE_PATH
async def test_what_a_reader_holds_counts_though_the_log_has_lost_it(
    client: Client, wire: Wire, cleaned_stream: str
) -> None:
    await filled(client, wire, cleaned_stream, retention_max_messages=KEPT)
    async with client.subscribe(cleaned_stream, partition=0, start=EARLIEST) as reading:
        await take(reading, 1)
        await all_here(reading, COUNT - 1)
        await become(wire, cleaned_stream, list(range(COUNT - KEPT, COUNT)))
        assert await reading.lag() == COUNT - 1


@ON_ONE_PATH
async def test_a_member_has_before_it_what_can_be_read(
    client: Client, wire: Wire, cleaned_stream: str
) -> None:
    await cut(client, wire, cleaned_stream)
    place = StreamPartition(cleaned_stream, 0)
    async with client.group(f"{cleaned_stream}-group", [cleaned_stream], start=EARLIEST) as group:
        group.pause()
        await group.seek(*place, 0)
        assert (await group.lag())[place] == KEPT


@ON_ONE_PATH
async def test_what_does_not_exist_has_no_oldest_message(
    client: Client, impatient: Client, stream_name: str
) -> None:
    with pytest.raises(StreamNotFound):
        await impatient.oldest_offset(stream_name)
    await client.create_stream(stream_name)
    with pytest.raises(PartitionNotFound):
        await client.oldest_offset(stream_name, 1)
