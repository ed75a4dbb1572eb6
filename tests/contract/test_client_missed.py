"""Messages that were removed before they were read, and gaps that are no loss."""

from __future__ import annotations

import asyncio

import pytest

from liftbridge_aio import (
    Client,
    ClientOptions,
    Hook,
    StartAt,
    StopAt,
    StreamOptions,
)
from liftbridge_aio.telemetry import MessagesMissed
from liftbridge_aio.transactions import ClaimedLog, LogRecord
from support.clients import EARLIEST, rest
from support.marks import ON_EMBEDDED
from support.raw import BOUND, Wire, eventually
from support.segments import (
    CLEANER_INTERVAL,
    MAX_AGE,
    become,
    becomes_emptied,
    create,
    create_compacted,
    publish_keys,
    record_bytes,
)
from support.servers.node import Server


class Watcher(Hook):
    """Keeps what was missed."""

    def __init__(self) -> None:
        self.missed: list[MessagesMissed] = []

    def messages_missed(self, event: MessagesMissed) -> None:
        self.missed.append(event)


async def test_what_retention_took_of_a_store_is_not_missed(
    client: Client, wire: Wire, cleaned_stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A store is read from its end, of which the newest record is enough."""
    options = StreamOptions(
        retention_max_messages=4,
        segment_max_bytes=1,
        cleaner_interval=CLEANER_INTERVAL / 1000,
        optimistic_concurrency_control=True,
    )
    await client.create_stream(cleaned_stream, options=options)
    log = await ClaimedLog.open(client, cleaned_stream)
    for _ in range(8):
        end = await log.append(b"record")
    oldest = range(end - 3, end + 1)
    await become(wire, cleaned_stream, [*oldest])
    following = await ClaimedLog.open(client, cleaned_stream)
    assert await following.last() == LogRecord(end, b"record")
    assert "removed from the log" not in caplog.text


async def test_what_retention_took_before_it_was_read_is_told(
    server: Server, wire: Wire, cleaned_stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    watcher = Watcher()
    await create(wire, cleaned_stream, retention_max_messages=3)
    await wire.publish(cleaned_stream, *[b""] * 10)
    await become(wire, cleaned_stream, [7, 8, 9])
    told = MessagesMissed(cleaned_stream, 0, 2, 7)

    async with Client(server.address, options=ClientOptions(hook=watcher)) as client:
        # Nobody asked for what was there before the oldest or before the last.
        assert len(await rest(client.read(cleaned_stream))) == 3
        assert len(await client.last(cleaned_stream, n=9)) == 3
        assert watcher.missed == []

        bounded = client.read(cleaned_stream, start=StartAt.offset(2))
        assert [message.offset for message in await rest(bounded)] == [7, 8, 9]
        assert (watcher.missed, bounded.statistics().missed) == ([told], 5)

        async with client.subscribe(cleaned_stream, start=StartAt.offset(2)) as tail:
            assert (await anext(tail)).offset == 7

            async def counted() -> bool:
                return tail.statistics().missed == 5

            await eventually(counted)
        assert watcher.missed == [told, told]

        stops_before = client.read(cleaned_stream, start=StartAt.offset(2), stop=StopAt.offset(4))
        assert await rest(stops_before) == []
        assert watcher.missed[2:] == [MessagesMissed(cleaned_stream, 0, 2, 5)]
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    told_of = f"5 offsets of {cleaned_stream}/0, from 2 on, were removed from the log before"
    assert [line.startswith(told_of) for line in lines] == [True, True, False]


async def test_what_an_emptied_log_held_is_told(
    server: Server, wire: Wire, cleaned_stream: str
) -> None:
    watcher = Watcher()
    await create(wire, cleaned_stream, retention_max_age=MAX_AGE)
    await wire.publish(cleaned_stream, *[b""] * 10)
    await becomes_emptied(wire, cleaned_stream, 10)
    async with (
        Client(server.address, options=ClientOptions(hook=watcher)) as client,
        client.subscribe(cleaned_stream, start=StartAt.offset(4)) as tail,
        client.subscribe(cleaned_stream, start=StartAt.new_only()) as new,
        client.subscribe(cleaned_stream, start=StartAt.latest()) as latest,
    ):
        assert await rest(client.read(cleaned_stream, start=StartAt.offset(3))) == []
        assert watcher.missed == [MessagesMissed(cleaned_stream, 0, 3, 10)]
        await client.publish(cleaned_stream, b"")
        async with asyncio.timeout(BOUND):
            assert [(await anext(one)).offset for one in (tail, new, latest)] == [10] * 3

        async def told() -> bool:
            return watcher.missed[1:] == [MessagesMissed(cleaned_stream, 0, 4, 10)]

        await eventually(told)


async def test_a_group_that_retention_has_overtaken_is_told(
    server: Server, wire: Wire, cleaned_stream: str
) -> None:
    watcher = Watcher()
    await create(wire, cleaned_stream, retention_max_messages=3)
    await wire.publish(cleaned_stream, *[b""] * 10)
    await become(wire, cleaned_stream, [7, 8, 9])
    async with Client(server.address, options=ClientOptions(hook=watcher)) as client:
        await client.set_cursor(f"__group:{cleaned_stream}", cleaned_stream, 0, 1)
        async with asyncio.timeout(BOUND), client.group(cleaned_stream, [cleaned_stream]) as group:
            assert (await anext(group)).offset == 7

        async def told() -> bool:
            return watcher.missed == [MessagesMissed(cleaned_stream, 0, 2, 7)]

        await eventually(told)


async def test_a_first_worker_misses_no_old_job(
    server: Server, wire: Wire, cleaned_stream: str
) -> None:
    watcher = Watcher()
    await create(wire, cleaned_stream, retention_max_messages=3)
    await wire.publish(cleaned_stream, *[b""] * 10)
    await become(wire, cleaned_stream, [7, 8, 9])
    async with Client(server.address, options=ClientOptions(hook=watcher)) as client:
        for expected in (7, 8):
            async with (
                asyncio.timeout(BOUND),
                client.queue(cleaned_stream, group="billing") as queue,
                await anext(queue) as delivery,
            ):
                assert delivery.message.offset == expected
    assert watcher.missed == []


async def test_gaps_that_compaction_leaves_are_no_loss(
    server: Server, wire: Wire, cleaned_stream: str
) -> None:
    watcher = Watcher()
    segment_bytes = 5 * record_bytes(cleaned_stream, key=b"a")
    await create_compacted(wire, cleaned_stream, segment_bytes=segment_bytes)
    await publish_keys(wire, cleaned_stream, "xabab" + "abaab" + "c")
    await become(wire, cleaned_stream, [0, 8, 9, 10])
    async with Client(server.address, options=ClientOptions(hook=watcher)) as client:
        for start in (0, 1, 5, 9):
            reading = client.read(cleaned_stream, start=StartAt.offset(start))
            assert await rest(reading)
            assert reading.statistics().missed == 0
        assert [message.offset for message in await client.last(cleaned_stream, n=4)] == [
            0,
            8,
            9,
            10,
        ]
    assert watcher.missed == []


async def test_segments_that_compaction_has_emptied_are_no_loss(
    server: Server, wire: Wire, cleaned_stream: str
) -> None:
    watcher = Watcher()
    await create_compacted(wire, cleaned_stream)
    await publish_keys(wire, cleaned_stream, "aabab-b")
    await become(wire, cleaned_stream, [3, 5, 6])
    async with Client(server.address, options=ClientOptions(hook=watcher)) as client:
        reading = client.read(cleaned_stream, start=StartAt.offset(1))
        assert [message.offset for message in await rest(reading)] == [3, 5, 6]
        assert reading.statistics().missed == 0
    assert watcher.missed == []


@ON_EMBEDDED
async def test_a_reader_that_retention_overtakes_is_told(
    server: Server, wire: Wire, cleaned_stream: str
) -> None:
    watcher = Watcher()
    # Not on v1.9.0, which ends where the cleaner and a publish begin a segment together.
    limits = {"retention_max_age": 10 * MAX_AGE, "cleaner_interval": 3 * MAX_AGE}
    await create(wire, cleaned_stream, segment_bytes=40_000, **limits)
    await wire.publish(cleaned_stream, *[bytes(4000)] * 100)
    options = ClientOptions(max_buffered_bytes=2**16, hook=watcher)
    async with (
        Client(server.address, options=options) as client,
        client.subscribe(cleaned_stream, start=EARLIEST) as reading,
    ):
        first = (await anext(reading)).offset
        await becomes_emptied(wire, cleaned_stream, 100)
        await client.publish(cleaned_stream, b"")
        offsets = [first]
        async with asyncio.timeout(BOUND):
            while offsets[-1] < 100:
                offsets.append((await anext(reading)).offset)

        async def counted() -> bool:
            return reading.statistics().missed == 101 - first - len(offsets)

        await eventually(counted)
    gaps = [event.next_offset - event.first_offset for event in watcher.missed]
    assert sum(gaps) == 101 - first - len(offsets)
