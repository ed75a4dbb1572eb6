"""Readings that must end, of partitions whose messages retention has taken."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from liftbridge_aio import Client, ClientOptions, EndReason, StartAt, StopAt
from liftbridge_aio._subscribe import log_probe
from support.clients import EARLIEST, rest
from support.marks import ON_EMBEDDED
from support.raw import Wire
from support.segments import MAX_AGE, becomes_emptied, cleaner_has_been_at_work, create
from support.servers.node import Server

COUNT: Final = 10
LATEST: Final = StopAt.latest()


@pytest.fixture
async def emptied(wire: Wire, cleaned_stream: str) -> str:
    """A stream that held ten messages and holds none."""
    await create(wire, cleaned_stream, retention_max_age=MAX_AGE)
    await wire.publish(cleaned_stream, *[b""] * COUNT)
    await becomes_emptied(wire, cleaned_stream, COUNT)
    return cleaned_stream


READINGS: Final[dict[str, dict[str, Any]]] = {
    "from the earliest": {"start": EARLIEST, "stop": LATEST},
    "from the latest": {"start": StartAt.latest(), "stop": LATEST},
    "from an offset": {"start": StartAt.offset(3), "stop": LATEST},
    "from a time": {"start": StartAt.time(0), "stop": LATEST},
    "to an offset": {"start": EARLIEST, "stop": StopAt.offset(5)},
    "to a time": {"start": EARLIEST, "stop": StopAt.time(datetime.now(UTC))},
    "of all partitions": {"start": EARLIEST, "stop": LATEST, "partition": None},
}


async def test_readings_of_an_emptied_log_end(
    client: Client, emptied: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.TaskGroup() as group:
        found = [
            group.create_task(rest(client.subscribe(emptied, **arguments)))
            for arguments in READINGS.values()
        ]
        async with client.subscribe(
            emptied, partition=0, start=StartAt.offset(8), stop=LATEST
        ) as sent_back:
            await sent_back.seek(2)
            assert await rest(sent_back) == []
    assert [task.result() for task in found] == [[]] * len(READINGS)
    assert sent_back.end_reason is EndReason.STOP_REACHED

    monkeypatch.setattr(log_probe, "_SILENCE", 0.05)
    to_come = StopAt.offset(COUNT)
    async with client.subscribe(emptied, partition=0, start=EARLIEST, stop=to_come) as reading:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await anext(reading)
        await client.publish(emptied, b"next")
        assert [message.offset for message in await rest(reading)] == [COUNT]


@ON_EMBEDDED
async def test_a_reading_ends_though_retention_takes_what_it_was_about_to_read(
    server: Server, wire: Wire, cleaned_stream: str
) -> None:
    # Not on v1.9.0, which ends where the cleaner and a publish begin a segment together.
    limits = {"retention_max_age": 10 * MAX_AGE, "cleaner_interval": 3 * MAX_AGE}
    await create(wire, cleaned_stream, segment_bytes=40_000, **limits)
    await wire.publish(cleaned_stream, *[bytes(4000)] * 100)
    options = ClientOptions(max_buffered_bytes=2**16)
    async with (
        Client(server.address, options=options) as client,
        client.subscribe(cleaned_stream, start=EARLIEST, stop=LATEST) as reading,
    ):
        await anext(reading)
        await becomes_emptied(wire, cleaned_stream, 100)
        found = await rest(reading)
    assert 0 < len(found) < 99


async def test_a_log_whose_only_messages_lie_in_a_full_segment_is_read(
    client: Client, wire: Wire, cleaned_stream: str
) -> None:
    """All that servers tell of it is what they tell of an emptied one."""
    await create(wire, cleaned_stream, segment_bytes=10_000, segment_max_age=MAX_AGE)
    await wire.publish(cleaned_stream, *[b""] * COUNT)
    await cleaner_has_been_at_work(wire, cleaned_stream)
    found = await rest(client.subscribe(cleaned_stream, start=EARLIEST, stop=LATEST))
    assert [message.offset for message in found] == list(range(COUNT))
