"""Activity events of operations."""

from __future__ import annotations

import pytest

from liftbridge_aio.broker.cluster.activity import activity_event
from liftbridge_aio.broker.storage.core import operations
from liftbridge_aio.broker.storage.core.operations import Operation, PartitionPlacement
from liftbridge_aio.broker.storage.core.stream_config import StreamConfig
from liftbridge_aio.wire import proto

PLACEMENT = PartitionPlacement(replicas=("a",), leader="a")
CREATE_STREAM = operations.CreateStream(
    name="s",
    subject="subject",
    group="",
    config=StreamConfig(),
    created=1,
    partitions=(PLACEMENT, PLACEMENT),
)


@pytest.mark.parametrize(
    ("operation", "event"),
    [
        (
            CREATE_STREAM,
            proto.ActivityStreamEvent(
                create_stream_op=proto.CreateStreamOp(stream="s", partitions=[0, 1])
            ),
        ),
        (
            operations.DeleteStream(stream="s"),
            proto.ActivityStreamEvent(
                op=proto.ActivityStreamOp.DELETE_STREAM,
                delete_stream_op=proto.DeleteStreamOp(stream="s"),
            ),
        ),
        (
            operations.PauseStream(stream="s", partitions=(), resume_all=True, at=1),
            proto.ActivityStreamEvent(
                op=proto.ActivityStreamOp.PAUSE_STREAM,
                pause_stream_op=proto.PauseStreamOp(stream="s", resume_all=True),
            ),
        ),
        (
            operations.ResumeStream(stream="s", partitions=(2,), at=1),
            proto.ActivityStreamEvent(
                op=proto.ActivityStreamOp.RESUME_STREAM,
                resume_stream_op=proto.ResumeStreamOp(stream="s", partitions=[2]),
            ),
        ),
        (
            operations.SetStreamReadonly(stream="s", partitions=(1, 0), readonly=True, at=1),
            proto.ActivityStreamEvent(
                op=proto.ActivityStreamOp.SET_STREAM_READONLY,
                set_stream_readonly_op=proto.SetStreamReadonlyOp(
                    stream="s", partitions=[1, 0], readonly=True
                ),
            ),
        ),
        (
            operations.CreateConsumerGroup(
                group="g", coordinator="a", consumer="c", streams=("s", "t", "s")
            ),
            proto.ActivityStreamEvent(
                op=proto.ActivityStreamOp.JOIN_CONSUMER_GROUP,
                join_consumer_group_op=proto.JoinConsumerGroupOp(
                    group_id="g", consumer_id="c", streams=["s", "t", "s"]
                ),
            ),
        ),
        (
            operations.JoinConsumerGroup(group="g", consumer="c", streams=("s",)),
            proto.ActivityStreamEvent(
                op=proto.ActivityStreamOp.JOIN_CONSUMER_GROUP,
                join_consumer_group_op=proto.JoinConsumerGroupOp(
                    group_id="g", consumer_id="c", streams=["s"]
                ),
            ),
        ),
        (
            operations.LeaveConsumerGroup(group="g", consumer="c", expired=True),
            proto.ActivityStreamEvent(
                op=proto.ActivityStreamOp.LEAVE_CONSUMER_GROUP,
                leave_consumer_group_op=proto.LeaveConsumerGroupOp(
                    group_id="g", consumer_id="c", expired=True
                ),
            ),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_events(operation: Operation, event: proto.ActivityStreamEvent) -> None:
    event.id = 7
    value = activity_event(operation, 7)
    assert value is not None
    assert proto.ActivityStreamEvent.parse(value) == event


@pytest.mark.parametrize(
    "operation",
    [
        operations.ShrinkIsr(stream="s", partition=0, replica="a"),
        operations.ExpandIsr(stream="s", partition=0, replica="a"),
        operations.ChangeLeader(stream="s", partition=0, leader="a"),
        operations.ChangeGroupCoordinator(group="g", coordinator="a"),
        operations.PublishActivity(index=1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_operations_without_an_event(operation: Operation) -> None:
    assert activity_event(operation, 7) is None
