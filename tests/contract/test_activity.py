"""The activity stream: what happened to streams and groups."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from liftbridge_aio.wire import proto, rpc
from support.groups.group_calls import Group
from support.raw import Subscription, Wire

ACTIVITY = "__activity"


class Activity:
    """The events from now on that tell of one stream or group."""

    def __init__(self, subscription: Subscription, *names: str) -> None:
        self._subscription = subscription
        self._names = set(names)
        self.ids: list[int] = []

    async def next(self) -> proto.ActivityStreamEvent:
        """The next event of these names; those of others only have to have growing ids."""
        while True:
            received = await self._subscription.next()
            event = proto.ActivityStreamEvent.parse(received.value)
            assert event.id > max(self.ids, default=0)
            self.ids.append(event.id)
            if _names(event) & self._names:
                return event

    async def take(self, count: int) -> list[proto.ActivityStreamEvent]:
        """So many events, without their ids."""
        events = [await self.next() for _ in range(count)]
        for event in events:
            event.id = 0
        return events


def _names(event: proto.ActivityStreamEvent) -> set[str]:
    of_streams = (
        event.create_stream_op,
        event.delete_stream_op,
        event.pause_stream_op,
        event.resume_stream_op,
        event.set_stream_readonly_op,
    )
    of_groups = (event.join_consumer_group_op, event.leave_consumer_group_op)
    return {op.stream for op in of_streams if op} | {op.group_id for op in of_groups if op}


@pytest.fixture
async def activity(wire: Wire, stream_name: str) -> AsyncIterator[Activity]:
    """Events of the test's stream and of its group."""
    async with wire.subscribe(ACTIVITY) as subscription:
        yield Activity(subscription, stream_name, f"group-{stream_name}")


async def test_the_stream_is_there_and_tells_of_itself(wire: Wire) -> None:
    metadata = await wire.stream(ACTIVITY)
    assert list(metadata.partitions) == [0]
    assert metadata.subject.endswith(".activity")

    async with wire.subscribe(
        ACTIVITY, start_position=proto.StartPosition.EARLIEST
    ) as subscription:
        event = await Activity(subscription, ACTIVITY).next()
    assert event == proto.ActivityStreamEvent(
        id=event.id,
        op=proto.ActivityStreamOp.CREATE_STREAM,
        create_stream_op=proto.CreateStreamOp(stream=ACTIVITY, partitions=[0]),
    )


async def test_what_happens_to_a_stream_is_told_in_order(
    wire: Wire, activity: Activity, stream_name: str
) -> None:
    await wire.create(stream_name, partitions=3)
    await wire.pause(stream_name, 1)
    await wire.publish(stream_name, b"resumes", partition=1)
    await wire.pause(stream_name, resume_all=True)
    await wire.publish(stream_name, b"resumes all", partition=0)
    await wire.set_readonly(stream_name, 2, 0)
    await wire.set_readonly(stream_name, readonly=False)
    await wire.delete(stream_name)

    told = await activity.take(8)
    # Those that a call did not name are listed in any order.
    for event in told:
        for unnamed in (
            event.pause_stream_op,
            event.resume_stream_op,
            event.set_stream_readonly_op,
        ):
            if unnamed is not None and len(unnamed.partitions) == 3:
                unnamed.partitions.sort()
    op = proto.ActivityStreamOp
    assert told == [
        proto.ActivityStreamEvent(
            op=op.CREATE_STREAM,
            create_stream_op=proto.CreateStreamOp(stream=stream_name, partitions=[0, 1, 2]),
        ),
        proto.ActivityStreamEvent(
            op=op.PAUSE_STREAM,
            pause_stream_op=proto.PauseStreamOp(stream=stream_name, partitions=[1]),
        ),
        proto.ActivityStreamEvent(
            op=op.RESUME_STREAM,
            resume_stream_op=proto.ResumeStreamOp(stream=stream_name, partitions=[1]),
        ),
        proto.ActivityStreamEvent(
            op=op.PAUSE_STREAM,
            pause_stream_op=proto.PauseStreamOp(
                stream=stream_name, partitions=[0, 1, 2], resume_all=True
            ),
        ),
        proto.ActivityStreamEvent(
            op=op.RESUME_STREAM,
            resume_stream_op=proto.ResumeStreamOp(stream=stream_name, partitions=[0, 1, 2]),
        ),
        proto.ActivityStreamEvent(
            op=op.SET_STREAM_READONLY,
            set_stream_readonly_op=proto.SetStreamReadonlyOp(
                stream=stream_name, partitions=[2, 0], readonly=True
            ),
        ),
        proto.ActivityStreamEvent(
            op=op.SET_STREAM_READONLY,
            set_stream_readonly_op=proto.SetStreamReadonlyOp(
                stream=stream_name, partitions=[0, 1, 2]
            ),
        ),
        proto.ActivityStreamEvent(
            op=op.DELETE_STREAM, delete_stream_op=proto.DeleteStreamOp(stream=stream_name)
        ),
    ]


async def test_what_is_refused_or_changes_nothing_is_not_told(
    wire: Wire, activity: Activity, stream_name: str
) -> None:
    await wire.refusal(rpc.PAUSE_STREAM, proto.PauseStreamRequest(name=stream_name))
    await wire.create(stream_name)
    await wire.refusal(
        rpc.CREATE_STREAM, proto.CreateStreamRequest(name=stream_name, subject=stream_name)
    )
    await wire.publish(stream_name, b"resumes nothing")
    async with wire.subscribe(stream_name, resume=True):
        await wire.delete(stream_name)

    op = proto.ActivityStreamOp
    assert [event.op for event in await activity.take(2)] == [op.CREATE_STREAM, op.DELETE_STREAM]


async def test_what_happens_to_a_group_is_told_in_order_and_its_epochs_are_ids(
    wire: Wire, activity: Activity, stream_name: str
) -> None:
    await wire.create(stream_name)
    group = Group(wire, f"group-{stream_name}")
    await group.join("a", stream_name, stream_name)
    joined = await group.join("b", stream_name)
    await group.leave("a")
    left = await group.epoch()
    await group.leave("b")

    create, *events = [await activity.next() for _ in range(5)]
    assert create.op is proto.ActivityStreamOp.CREATE_STREAM
    assert (events[1].id, events[2].id) == (joined.epoch, left)
    for event in events:
        event.id = 0
    assert events == [
        _join(group, "a", stream_name, stream_name),
        _join(group, "b", stream_name),
        _leave(group, "a"),
        _leave(group, "b"),
    ]


async def test_an_expiry_is_a_leave_marked_so(
    wire: Wire, activity: Activity, stream_name: str
) -> None:
    await wire.create(stream_name)
    group = Group(wire, f"group-{stream_name}")
    await group.join("c", stream_name)

    _, *events = await activity.take(3)
    assert events == [_join(group, "c", stream_name), _leave(group, "c", expired=True)]


def _join(group: Group, consumer: str, *streams: str) -> proto.ActivityStreamEvent:
    return proto.ActivityStreamEvent(
        op=proto.ActivityStreamOp.JOIN_CONSUMER_GROUP,
        join_consumer_group_op=proto.JoinConsumerGroupOp(
            group_id=group.name, consumer_id=consumer, streams=list(streams)
        ),
    )


def _leave(group: Group, consumer: str, *, expired: bool = False) -> proto.ActivityStreamEvent:
    return proto.ActivityStreamEvent(
        op=proto.ActivityStreamOp.LEAVE_CONSUMER_GROUP,
        leave_consumer_group_op=proto.LeaveConsumerGroupOp(
            group_id=group.name, consumer_id=consumer, expired=expired
        ),
    )
