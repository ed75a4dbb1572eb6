"""The bounds of logs, fetched from servers."""

from __future__ import annotations

import re
import time

import pytest

from liftbridge_aio import Backoff, Client, ClientOptions, StreamOptions, SubscriptionLost
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.model import StreamPartition
from liftbridge_aio.spark.core.selection import Assigned, Pattern, Streams
from liftbridge_aio.spark.errors import StreamMissing
from liftbridge_aio.spark.read import log_ends
from liftbridge_aio.spark.read.log_ends import (
    average_bytes,
    fetch_selected,
    first_messages,
    log_states,
    offsets_at,
    oldest_offsets,
)
from spark.conftest import EVERY_SERVER
from support.spark.log_client import LogClient


@EVERY_SERVER
def test_a_survey_finds_what_is_selected(log: LogClient, stream_name: str) -> None:
    log.create(f"{stream_name}-a", partitions=2)
    log.create(f"{stream_name}-b")
    names = {f"{stream_name}-a": 2, f"{stream_name}-b": 1}
    named = Streams(tuple(names))

    async def look(client: Client) -> None:
        found = await fetch_selected(client, named)
        assert found.counts == names
        assert len(set(found.created.values())) == 2
        everything = await fetch_selected(client, Pattern(f"{re.escape(stream_name)}-."))
        assert {name: everything.counts[name] for name in names} == names
        partly = await fetch_selected(
            client, Assigned((StreamPartition(f"{stream_name}-b", 0),)), names
        )
        assert partly == found
        lacking = await fetch_selected(
            client, Streams((f"{stream_name}-a", f"{stream_name}-c")), ()
        )
        assert lacking.counts == {f"{stream_name}-a": 2}
        with pytest.raises(StreamMissing, match=f"{stream_name}-c"):
            Streams((f"{stream_name}-c",)).partitions(lacking.counts)

    log.run(look)


@EVERY_SERVER
def test_a_log_ends_behind_its_newest_message(log: LogClient, stream_name: str) -> None:
    log.create(stream_name, partitions=2)
    log.publish(stream_name, [b"", b"", b""], partition=1)
    places = [StreamPartition(stream_name, 0), StreamPartition(stream_name, 1)]
    states = log.run(lambda client: log_states(client, places))
    assert [(state.end, state.reach) for state in states.values()] == [(0, 0), (3, 3)]


@EVERY_SERVER
def test_the_oldest_offset_is_the_first_that_retention_left(
    log: LogClient, stream_name: str
) -> None:
    log.create(
        stream_name,
        partitions=2,
        segment_max_bytes=1,
        retention_max_messages=3,
        cleaner_interval=2.0,  # v1.9.0 can end as a process where it cleans what is published to
    )
    for _ in range(10):
        log.publish(stream_name, [b""], partition=0)  # together they might share a segment
    full, empty = StreamPartition(stream_name, 0), StreamPartition(stream_name, 1)

    async def look(client: Client) -> int:
        found = await oldest_offsets(client, {full: 10, empty: 0})
        assert found[empty] == 0
        return found[full]

    deadline = time.monotonic() + 20
    while (oldest := log.run(look)) < 7 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert oldest == 7


@EVERY_SERVER
def test_an_offset_by_time_is_that_of_the_first_message_not_older(
    log: LogClient, stream_name: str
) -> None:
    log.create(stream_name, segment_max_bytes=1)  # a segment for each: servers miss some of them
    for number in range(9):
        log.publish(stream_name, [b"%d" % number])
    place = StreamPartition(stream_name, 0)
    messages = log.read(stream_name)
    assert len({message.timestamp for message in messages}) == 9  # else it proves nothing

    async def look(client: Client) -> None:
        async def at(timestamp: int) -> int | None:
            return (await offsets_at(client, {place: 9}, {place: timestamp}))[place]

        for message in messages:
            assert await at(message.timestamp) == message.offset
            following = message.offset + 1 if message.offset < 8 else None
            assert await at(message.timestamp + 1) == following
        assert await at(0) == 0
        assert await offsets_at(client, {place: 0}, {place: 0}) == {place: None}

    log.run(look)


def test_times_are_found_where_compaction_left_gaps(log: LogClient, stream_name: str) -> None:
    log.create(stream_name, segment_max_bytes=1, compact_enabled=True, cleaner_interval=0.05)
    place = StreamPartition(stream_name, 0)

    async def fill(client: Client) -> None:
        for number in range(30):
            await client.publish(stream_name, b"", key=b"%d" % (number % 2 if number > 3 else 9))

    log.run(fill)
    for _ in range(200):
        kept = log.read(stream_name)
        if len(kept) == 3:
            break
    assert [message.offset for message in kept] == [3, 28, 29]

    async def look(client: Client) -> list[int | None]:
        times = [
            moment for message in kept for moment in (message.timestamp, message.timestamp + 1)
        ]
        return [(await offsets_at(client, {place: 30}, {place: moment}))[place] for moment in times]

    assert log.run(look) == [3, 28, 28, 29, 29, None]


def test_sizes_are_those_of_the_messages_ahead(log: LogClient, stream_name: str) -> None:
    log.create(stream_name, partitions=2)
    log.publish(stream_name, [b"v" * 1000] * 3 + [b"v" * 10] * 3, partition=0)
    log.publish(stream_name, [b"v" * 30] * 3, partition=1)
    one, other = StreamPartition(stream_name, 0), StreamPartition(stream_name, 1)
    assert (
        log.run(lambda client: average_bytes(client, {one: 3, other: 0}, {one: 6, other: 3})) == 20
    )
    assert log.run(lambda client: average_bytes(client, {one: 0}, {one: 3})) == 1000
    assert log.run(lambda client: average_bytes(client, {}, {})) == 0


def test_a_log_that_was_emptied_counts_as_empty_and_is_told(
    log: LogClient, stream_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = StreamOptions(
        segment_max_age=0.05, retention_max_age=0.05, cleaner_interval=0.05, segment_max_bytes=1
    )
    log.run(lambda client: client.create_stream(stream_name, options=options))
    log.publish(stream_name, [b""] * 3)
    place = StreamPartition(stream_name, 0)

    async def look(client: Client) -> dict[StreamPartition, int]:
        while await first_messages(client, place, 0, 3, 1):
            pass
        return await oldest_offsets(client, {place: 3})

    assert log.run(look) == {place: 3}
    assert f"{stream_name}/0 sent no message below offset 3" in caplog.text


async def test_a_log_that_cuts_its_readers_off_does_not_count_as_empty(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_ends, "_IDLE_TIMEOUT", 0.4)
    how = ClientOptions(backoff=Backoff(initial=0.4, maximum=0.4))
    async with EmbeddedBroker() as broker, Client(broker.address, options=how) as client:
        await client.create_stream("s")
        await client.publish_many("s", [b""] * 3)
        cut = broker.faults.fail(
            "Subscribe",
            code="INTERNAL",
            text="segment has been closed",
            at="reply",
            times=8,
        )
        assert await oldest_offsets(client, {StreamPartition("s", 0): 3}) == {("s", 0): 0}
        assert cut.applied == 8
        assert not caplog.records


async def test_a_log_that_cuts_its_readers_off_for_too_long_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_ends, "_IDLE_TIMEOUT", 0.4)
    monkeypatch.setattr(log_ends, "_MAX_WAITS", 3)
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        await client.create_stream("s")
        await client.publish_many("s", [b""] * 3)
        broker.faults.fail("Subscribe", code="INTERNAL", at="reply", times=None)
        with pytest.raises(SubscriptionLost, match="disconnected again and again"):
            await oldest_offsets(client, {StreamPartition("s", 0): 3})
