"""Reading backwards, from servers that can: HEAD, and the embedded broker in its likeness."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Final

import pytest

from conftest import EMBEDDED, OTHER
from liftbridge_aio import Client, StartAt, StopAt
from liftbridge_aio._subscribe import reverse_reader
from liftbridge_aio.broker import EmbeddedBroker, ServerProfile
from liftbridge_aio.wire import proto
from support.clients import rest
from support.raw import FROM_EARLIEST, Wire
from support.segments import (
    MAX_AGE,
    become,
    becomes_emptied,
    create,
    create_compacted,
    int64,
    offsets,
    publish_keys,
    record_bytes,
)
from support.servers.node import EmbeddedServer, Server


@pytest.fixture
async def newer_server() -> AsyncIterator[EmbeddedServer]:
    """An embedded broker that reads backwards."""
    async with EmbeddedBroker(profile=ServerProfile.NEWER) as broker:
        host, _, port = broker.address.rpartition(":")
        yield EmbeddedServer(host, int(port))


@pytest.fixture(params=[EMBEDDED] + [OTHER] * (OTHER in os.environ))
def server(request: pytest.FixtureRequest) -> Server:
    """Each server that reads backwards in turn."""
    fixtures = {EMBEDDED: "newer_server", OTHER: "other_server"}
    chosen: Server = request.getfixturevalue(fixtures[request.param])
    return chosen


@pytest.fixture
async def compacted(wire: Wire, cleaned_stream: str) -> str:
    """Of forty messages the last of each key: 36 to 39, the last of them in the open segment."""
    segment_bytes = 39 * record_bytes(cleaned_stream, key=b"a")
    await create_compacted(wire, cleaned_stream, segment_bytes=segment_bytes)
    await publish_keys(wire, cleaned_stream, "abcd" * 10)
    await become(wire, cleaned_stream, [36, 37, 38, 39])
    return cleaned_stream


@pytest.fixture
async def compacted_to_its_end(wire: Wire, cleaned_stream: str) -> str:
    """The same, but all of it lies in one compacted segment, and the open one is empty."""
    await wire.create(
        cleaned_stream,
        segment_max_age=int64(2 * MAX_AGE),
        cleaner_interval=int64(MAX_AGE),
        compact_enabled=proto.NullableBool(value=True),
    )
    await publish_keys(wire, cleaned_stream, "abcd" * 10)
    await become(wire, cleaned_stream, [36, 37, 38, 39])
    return cleaned_stream


async def backwards(
    client: Client, stream: str, start: StartAt, stop: StopAt | None = None
) -> list[int]:
    reading = client.subscribe(stream, start=start, stop=stop, reverse=True)
    return [message.offset for message in await rest(reading)]


RANGES: Final[list[tuple[StartAt, StopAt | None, list[int]]]] = [
    (StartAt.latest(), None, [39, 38, 37, 36]),
    (StartAt.offset(39), None, [39, 38, 37, 36]),
    (StartAt.offset(38), None, [38, 37, 36]),
    (StartAt.offset(36), None, [36]),
    (StartAt.offset(35), None, []),
    (StartAt.offset(3), None, []),
    (StartAt.latest(), StopAt.offset(38), [39, 38]),
    (StartAt.latest(), StopAt.offset(10), [39, 38, 37, 36]),
    (StartAt.offset(38), StopAt.offset(37), [38, 37]),
]


async def test_servers_give_nothing_from_the_earliest_of_a_compacted_log(
    wire: Wire, compacted: str
) -> None:
    found, _ = await offsets(wire, compacted, **FROM_EARLIEST, reverse=True)
    assert found == []


async def test_nothing_is_lost_of_a_compacted_log(client: Client, compacted: str) -> None:
    for start, stop, expected in RANGES:
        assert await backwards(client, compacted, start, stop) == expected


async def test_nothing_is_lost_where_all_of_it_is_compacted(
    client: Client, compacted_to_its_end: str
) -> None:
    for start, stop, expected in RANGES:
        assert await backwards(client, compacted_to_its_end, start, stop) == expected


async def test_what_is_too_much_at_once_is_read_in_parts(
    client: Client, compacted_to_its_end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reverse_reader, "_PART_BYTES", 1)
    found = await backwards(client, compacted_to_its_end, StartAt.latest())
    assert found == [39, 38, 37, 36]


async def test_large_messages_are_read_backwards(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name)
    await client.publish_many(stream_name, [bytes(300_000)] * 3)
    assert await backwards(client, stream_name, StartAt.latest()) == [2, 1, 0]


async def test_what_retention_has_left_is_read_to_its_beginning(
    client: Client, wire: Wire, cleaned_stream: str
) -> None:
    await create(wire, cleaned_stream, retention_max_messages=3)
    await wire.publish(cleaned_stream, *[b""] * 10)
    await become(wire, cleaned_stream, [7, 8, 9])
    assert await backwards(client, cleaned_stream, StartAt.latest()) == [9, 8, 7]
    assert await backwards(client, cleaned_stream, StartAt.latest(), StopAt.offset(2)) == [9, 8, 7]
    assert await backwards(client, cleaned_stream, StartAt.offset(5)) == []


async def test_an_emptied_log_gives_nothing(
    client: Client, wire: Wire, cleaned_stream: str
) -> None:
    await create(wire, cleaned_stream, retention_max_age=MAX_AGE)
    await wire.publish(cleaned_stream, *[b""] * 10)
    await becomes_emptied(wire, cleaned_stream, 10)
    for start in (StartAt.latest(), StartAt.offset(4)):
        assert await backwards(client, cleaned_stream, start) == []
