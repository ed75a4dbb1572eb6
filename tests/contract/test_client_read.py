"""Bounded readings, and the last messages of a partition."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from liftbridge_aio import (
    Client,
    ClientOptions,
    EndReason,
    InvalidRequest,
    PartitionNotFound,
    PartitionPaused,
    RequestTimeout,
    StartAt,
    StopAt,
    StreamNotFound,
    StreamOptions,
)
from liftbridge_aio._subscribe.subscription import Subscription
from support.clients import EARLIEST, Watcher, offsets, rest
from support.marks import ON_EMBEDDED, ON_ONE_PATH
from support.raw import BOUND, Wire
from support.segments import (
    MAX_AGE,
    become,
    becomes_emptied,
    create,
    publish_keys,
)
from support.servers.node import Server

pytestmark = ON_ONE_PATH

COUNT = 12


@pytest.fixture
async def numbers(client: Client, stream_name: str) -> str:
    """A stream of two partitions; the first one holds the numbers, the other one of them."""
    await client.create_stream(stream_name, partitions=2)
    await client.publish_many(stream_name, [b"%d" % n for n in range(COUNT)])
    await client.publish(stream_name, b"100", partition=1)
    return stream_name


async def test_everything_that_is_stored_is_read(client: Client, numbers: str) -> None:
    reading = client.read(numbers, partition=0)
    assert isinstance(reading, Subscription)
    assert offsets(await rest(reading)) == list(range(COUNT))
    assert reading.end_reason is EndReason.STOP_REACHED


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (StartAt.offset(9), StopAt.latest(), [9, 10, 11]),
        (EARLIEST, StopAt.offset(2), [0, 1, 2]),
        (StartAt.offset(4), StopAt.offset(4), [4]),
        (StartAt.latest(), StopAt.latest(), [11]),
        (StartAt.new_only(), StopAt.latest(), []),
    ],
)
async def test_a_part_is_read(
    client: Client, numbers: str, start: StartAt, stop: StopAt, expected: list[int]
) -> None:
    assert (
        offsets(await rest(client.read(numbers, partition=0, start=start, stop=stop))) == expected
    )


async def test_all_partitions_are_read(client: Client, numbers: str) -> None:
    async with asyncio.timeout(BOUND):
        values = [message.value async for message in client.read(numbers)]
        named = [message.value async for message in client.read(numbers, partition=[1])]
    assert sorted(map(int, values)) == [*range(COUNT), 100]
    assert named == [b"100"]


async def test_an_empty_stream_gives_nothing(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name, partitions=2)
    async with asyncio.timeout(BOUND):
        assert [message async for message in client.read(stream_name, partition=0)] == []
        everything = client.read(stream_name)
        assert [message async for message in everything] == []
    assert everything.end_reasons == dict.fromkeys(range(2), EndReason.EMPTY)


UNBOUNDED: list[dict[str, Any]] = [
    {"stop": None},
    {"stop": 5},
    {"partition": "0"},
    {"start": None},
]


@ON_EMBEDDED
async def test_a_reading_without_bounds_is_refused(client: Client) -> None:
    for arguments in UNBOUNDED:
        with pytest.raises(InvalidRequest):
            client.read("stream", **arguments)


# The last


async def test_the_last_messages_come_in_order(client: Client, numbers: str) -> None:
    for count in (0, 1, 5, COUNT, COUNT + 1, 2**63 - 1):
        last = await client.last(numbers, partition=0, n=count)
        assert offsets(last) == list(range(max(COUNT - count, 0), COUNT))
        assert [message.value for message in last] == [b"%d" % n for n in offsets(last)]
    assert len(client.statistics().subscriptions) == 0


async def test_the_last_messages_of_another_partition(client: Client, numbers: str) -> None:
    assert [message.value for message in await client.last(numbers, n=3, partition=1)] == [b"100"]


async def test_the_last_messages_of_a_readonly_partition(client: Client, numbers: str) -> None:
    await client.set_stream_readonly(numbers)
    assert offsets(await client.last(numbers, partition=0, n=3)) == [9, 10, 11]


async def test_an_empty_partition_has_no_last_messages(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name)
    assert await client.last(stream_name, partition=0, n=3) == []


async def test_gaps_are_read_over(client: Client, wire: Wire, cleaned_stream: str) -> None:
    # Servers refuse readers while they clean, so not all the time.
    options = StreamOptions(segment_max_bytes=1, compact_enabled=True, cleaner_interval=0.4)
    await client.create_stream(cleaned_stream, options=options)
    await publish_keys(wire, cleaned_stream, "deabaaaabaab")
    await become(wire, cleaned_stream, [0, 1, 10, 11])
    assert offsets(await client.last(cleaned_stream, partition=0, n=3)) == [1, 10, 11]


async def test_what_retention_took_is_not_waited_for(
    client: Client, wire: Wire, cleaned_stream: str
) -> None:
    await create(wire, cleaned_stream, retention_max_messages=3)
    await wire.publish(cleaned_stream, *[b""] * 10)
    await become(wire, cleaned_stream, [7, 8, 9])
    for count in (3, 4, 9):
        assert offsets(await client.last(cleaned_stream, partition=0, n=count)) == [7, 8, 9]


async def test_an_emptied_log_has_no_last_messages(
    server: Server, wire: Wire, cleaned_stream: str
) -> None:
    readings = Watcher()
    await create(wire, cleaned_stream, retention_max_age=MAX_AGE)
    await wire.publish(cleaned_stream, *[b""] * 10)
    await becomes_emptied(wire, cleaned_stream, 10)
    async with Client(server.address, options=ClientOptions(hook=readings)) as client:
        assert await client.last(cleaned_stream, partition=0, n=1) == []
    assert readings.subscriptions == []


NONSENSE: list[tuple[Any, Any]] = [(-1, 0), (1.5, 0), (True, 0), (1, -1)]


@ON_EMBEDDED
async def test_a_number_that_makes_no_sense_is_refused(client: Client) -> None:
    for n, partition in NONSENSE:
        with pytest.raises(InvalidRequest):
            await client.last("stream", n=n, partition=partition)


async def test_what_cannot_be_read_is_told(impatient: Client, numbers: str) -> None:
    with pytest.raises(PartitionNotFound):
        await impatient.last(numbers, n=1, partition=7)
    await impatient.pause_stream(numbers, [0])
    with pytest.raises(PartitionPaused):
        await impatient.last(numbers, partition=0, n=1)
    with pytest.raises(StreamNotFound):
        await impatient.last("no-such-stream", partition=0, n=1)


@ON_EMBEDDED
async def test_the_time_for_the_last_messages_is_bounded(numbers: str, client: Client) -> None:
    with pytest.raises(RequestTimeout):
        await client.last(numbers, partition=0, n=1, timeout=0.000001)


@ON_EMBEDDED
async def test_many_last_messages(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name)
    await client.publish_many(stream_name, [b"%d" % n for n in range(700)])
    assert offsets(await client.last(stream_name, partition=0, n=600)) == list(range(100, 700))
