"""The activity stream as typed events."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import closing

import pytest

from liftbridge_aio import (
    ActivityUnavailable,
    Client,
    ClientOptions,
    EndReason,
    StartAt,
    StreamExists,
    StreamNotFound,
)
from liftbridge_aio._client.activity import ActivityReading
from liftbridge_aio.activity_events import (
    ActivityEvent,
    CreateStreamEvent,
    DeleteStreamEvent,
    JoinGroupEvent,
    LeaveGroupEvent,
    PauseStreamEvent,
    ResumeStreamEvent,
    SetStreamReadonlyEvent,
    UnknownEvent,
)
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.wire import proto
from support.clients import EARLIEST, LATEST
from support.groups.group_calls import Group
from support.marks import ON_ONE_PATH
from support.raw import BOUND, Wire
from support.servers.node import EmbeddedServer

pytestmark = ON_ONE_PATH  # it is about calls, which go over the same connections on both


@pytest.fixture
async def activity(client: Client) -> AsyncIterator[ActivityReading]:
    """Read the activity stream from now on."""
    async with asyncio.timeout(BOUND), client.activity() as reading:
        yield reading


async def about(
    reading: AsyncIterator[ActivityEvent], name: str, count: int
) -> list[ActivityEvent]:
    """The next events that tell of this stream or group; others happen beside."""
    events: list[ActivityEvent] = []
    async for event in reading:
        if name in {getattr(event, "stream", None), getattr(event, "group", None)}:
            events.append(event)
            if len(events) == count:
                break
    return events


async def test_what_happens_to_a_stream_comes_as_events_in_order(
    client: Client, activity: ActivityReading, stream_name: str
) -> None:
    """What is refused or changes nothing is not told of."""
    with pytest.raises(StreamNotFound):
        await client.pause_stream(stream_name)
    await client.create_stream(stream_name, partitions=3)
    with pytest.raises(StreamExists):
        await client.create_stream(stream_name)
    await client.publish(stream_name, b"resumes nothing")
    await client.pause_stream(stream_name, [1])
    await client.publish(stream_name, b"resumes", partition=1)
    await client.pause_stream(stream_name, resume_all=True)
    await client.publish(stream_name, b"resumes all")
    await client.set_stream_readonly(stream_name, [2, 0])
    await client.set_stream_readonly(stream_name, readonly=False)
    await client.delete_stream(stream_name)

    events = await about(activity, stream_name, 8)
    created, paused, resumed, paused_all, resumed_all, readonly, writable, deleted = events
    assert isinstance(created, CreateStreamEvent)
    assert created.partitions == (0, 1, 2)
    assert isinstance(paused, PauseStreamEvent)
    assert (paused.partitions, paused.resume_all) == ((1,), False)
    assert isinstance(resumed, ResumeStreamEvent)
    assert resumed.partitions == (1,)
    # Those that a call did not name are listed in any order.
    assert isinstance(paused_all, PauseStreamEvent)
    assert (sorted(paused_all.partitions), paused_all.resume_all) == ([0, 1, 2], True)
    assert isinstance(resumed_all, ResumeStreamEvent)
    assert sorted(resumed_all.partitions) == [0, 1, 2]
    assert isinstance(readonly, SetStreamReadonlyEvent)
    assert (readonly.partitions, readonly.readonly) == ((2, 0), True)
    assert isinstance(writable, SetStreamReadonlyEvent)
    assert (sorted(writable.partitions), writable.readonly) == ([0, 1, 2], False)
    assert isinstance(deleted, DeleteStreamEvent)
    for before, after in itertools.pairwise(events):
        assert before.id < after.id
        assert before.offset < after.offset
        assert before.timestamp <= after.timestamp


async def test_what_happens_to_a_group_comes_as_events_in_order(
    wire: Wire, client: Client, activity: ActivityReading, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    group = Group(wire, f"group-{stream_name}")
    await group.join("a", stream_name, stream_name)
    joined = await group.join("b", stream_name)
    await group.leave("a")
    left_at = await group.epoch()
    # The other one says nothing more and expires.

    first, second, left, last = await about(activity, group.name, 4)
    assert isinstance(first, JoinGroupEvent)
    assert (first.consumer, first.streams) == ("a", (stream_name, stream_name))
    assert isinstance(second, JoinGroupEvent)
    assert (second.consumer, second.id) == ("b", joined.epoch)
    for event, consumer, expired in ((left, "a", False), (last, "b", True)):
        assert isinstance(event, LeaveGroupEvent)
        assert (event.consumer, event.expired) == (consumer, expired)
    assert left.id == left_at


async def test_a_reading_goes_on_where_another_was(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name)
    await client.pause_stream(stream_name)
    async with asyncio.timeout(BOUND):
        async with client.activity(start=EARLIEST) as reading:
            created, _ = await about(reading, stream_name, 2)
        async with client.activity(
            start=StartAt.offset(created.offset), after_id=created.id
        ) as again:
            (paused,) = await about(again, stream_name, 1)
    assert isinstance(paused, PauseStreamEvent)


async def test_a_bounded_reading_ends(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name)
    async with asyncio.timeout(BOUND), client.activity(start=EARLIEST) as reading:
        (itself,) = await about(reading, "__activity", 1)
        assert isinstance(itself, CreateStreamEvent)
        (created,) = await about(reading, stream_name, 1)
        await reading.source.aclose()
    async with asyncio.timeout(BOUND), client.activity(start=EARLIEST, stop=LATEST) as reading:
        ids = [event.id async for event in reading]
    assert created.id in ids
    assert ids == sorted(set(ids))
    assert reading.source.end_reason is EndReason.STOP_REACHED


async def test_repeats_and_what_nobody_knows_disturb_no_reader(
    embedded_server: EmbeddedServer,
) -> None:
    server = embedded_server
    with closing(Wire(server.host, server.port)) as wire:
        async with asyncio.timeout(BOUND), Client(server.address) as client:
            await client.create_stream("first")
            async with client.activity(start=EARLIEST) as reading:
                (created,) = await about(reading, "first", 1)
                again = proto.ActivityStreamEvent(
                    id=created.id,
                    op=proto.ActivityStreamOp.CREATE_STREAM,
                    create_stream_op=proto.CreateStreamOp(stream="first", partitions=[0]),
                )
                unknown = b"\x08" + bytes([created.id + 1]) + b"\x10\x63"
                for value in (bytes(again), b"noise", bytes(again), unknown, unknown):
                    await wire.publish("__activity", value)
                noise, newer = await anext(reading), await anext(reading)
                assert isinstance(noise, UnknownEvent)
                assert (noise.operation, noise.data) == (None, b"noise")
                assert isinstance(newer, UnknownEvent)
                assert (newer.id, newer.operation) == (created.id + 1, 99)
                await client.create_stream("second")
                await client.create_stream("third")
                assert len(await about(reading, "third", 1)) == 1
                assert reading.left_out == 3


@pytest.mark.parametrize("entered", [True, False])
async def test_servers_without_an_activity_stream_are_told_of(entered: bool) -> None:
    options = ClientOptions(not_found_timeout=0.1)
    async with (
        asyncio.timeout(BOUND),
        EmbeddedBroker() as broker,
        Client(broker.address, options=options) as client,
    ):
        reading = client.activity()
        with pytest.raises(ActivityUnavailable, match=r"activity\.stream\.enabled") as caught:
            await (reading.__aenter__() if entered else anext(reading))
        assert isinstance(caught.value.__cause__, StreamNotFound)
