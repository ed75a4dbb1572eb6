"""The activity stream: its creation, and the event that describes each operation. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from liftbridge_aio.broker.storage.core.operations import (
    CreateConsumerGroup,
    CreateStream,
    DeleteStream,
    JoinConsumerGroup,
    LeaveConsumerGroup,
    Operation,
    PauseStream,
    ResumeStream,
    SetStreamReadonly,
)
from liftbridge_aio.model import ACTIVITY_STREAM
from liftbridge_aio.wire import proto

from .requests import StreamRequest


def activity_stream(subject: str) -> StreamRequest:
    """Return the request that creates `__activity`, with a replica on every broker."""
    return StreamRequest(name=ACTIVITY_STREAM, subject=subject, replication_factor=-1)


def activity_event(operation: Operation, index: int) -> bytes | None:
    """Return the value of the activity message for an operation.

    Args:
        operation: the operation.
        index: its index, which becomes the id of the event: ids ascend, with gaps.

    Returns:
        An encoded ActivityStreamEvent; None for operations without an event: changes of leaders,
        in-sync replicas and coordinators, and the progress of this stream.
    """
    make_event = _EVENTS.get(type(operation))
    return None if make_event is None else bytes(make_event(operation, index))


def _create_stream(operation: CreateStream, index: int) -> proto.ActivityStreamEvent:
    return proto.ActivityStreamEvent(
        id=index,
        op=proto.ActivityStreamOp.CREATE_STREAM,
        create_stream_op=proto.CreateStreamOp(
            stream=operation.name, partitions=list(range(len(operation.partitions)))
        ),
    )


def _delete_stream(operation: DeleteStream, index: int) -> proto.ActivityStreamEvent:
    return proto.ActivityStreamEvent(
        id=index,
        op=proto.ActivityStreamOp.DELETE_STREAM,
        delete_stream_op=proto.DeleteStreamOp(stream=operation.stream),
    )


def _pause_stream(operation: PauseStream, index: int) -> proto.ActivityStreamEvent:
    return proto.ActivityStreamEvent(
        id=index,
        op=proto.ActivityStreamOp.PAUSE_STREAM,
        pause_stream_op=proto.PauseStreamOp(
            stream=operation.stream,
            partitions=list(operation.partitions),
            resume_all=operation.resume_all,
        ),
    )


def _resume_stream(operation: ResumeStream, index: int) -> proto.ActivityStreamEvent:
    return proto.ActivityStreamEvent(
        id=index,
        op=proto.ActivityStreamOp.RESUME_STREAM,
        resume_stream_op=proto.ResumeStreamOp(
            stream=operation.stream, partitions=list(operation.partitions)
        ),
    )


def _set_stream_readonly(operation: SetStreamReadonly, index: int) -> proto.ActivityStreamEvent:
    return proto.ActivityStreamEvent(
        id=index,
        op=proto.ActivityStreamOp.SET_STREAM_READONLY,
        set_stream_readonly_op=proto.SetStreamReadonlyOp(
            stream=operation.stream,
            partitions=list(operation.partitions),
            readonly=operation.readonly,
        ),
    )


def _join_group(
    operation: CreateConsumerGroup | JoinConsumerGroup, index: int
) -> proto.ActivityStreamEvent:
    # A new group has no event of its own, only that of its first member.
    return proto.ActivityStreamEvent(
        id=index,
        op=proto.ActivityStreamOp.JOIN_CONSUMER_GROUP,
        join_consumer_group_op=proto.JoinConsumerGroupOp(
            group_id=operation.group,
            consumer_id=operation.consumer,
            streams=list(operation.streams),
        ),
    )


def _leave_group(operation: LeaveConsumerGroup, index: int) -> proto.ActivityStreamEvent:
    return proto.ActivityStreamEvent(
        id=index,
        op=proto.ActivityStreamOp.LEAVE_CONSUMER_GROUP,
        leave_consumer_group_op=proto.LeaveConsumerGroupOp(
            group_id=operation.group, consumer_id=operation.consumer, expired=operation.expired
        ),
    )


_EVENTS: Final[dict[type[Operation], Callable[[Any, int], proto.ActivityStreamEvent]]] = {
    CreateStream: _create_stream,
    DeleteStream: _delete_stream,
    PauseStream: _pause_stream,
    ResumeStream: _resume_stream,
    SetStreamReadonly: _set_stream_readonly,
    CreateConsumerGroup: _join_group,
    JoinConsumerGroup: _join_group,
    LeaveConsumerGroup: _leave_group,
}
