"""What the activity stream tells of operations. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from liftbridge_aio.wire import proto

from .operations import (
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


def activity_event(operation: Operation, index: int) -> bytes | None:
    """Write the value of the message in the activity stream that tells of an operation.

    Args:
        operation: what happened.
        index: its place in the list, which is the id of the event: ids grow, with gaps.

    Returns:
        An ActivityStreamEvent, or None for what is not told: changes of leaders, in-sync replicas
        and coordinators, and the notes of what was told.
    """
    describe = _DESCRIPTIONS.get(type(operation))
    return None if describe is None else bytes(describe(operation, index))


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
    # There is no event for a new group: it shows as its first member's join.
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


_DESCRIPTIONS: Final[dict[type[Operation], Callable[[Any, int], proto.ActivityStreamEvent]]] = {
    CreateStream: _create_stream,
    DeleteStream: _delete_stream,
    PauseStream: _pause_stream,
    ResumeStream: _resume_stream,
    SetStreamReadonly: _set_stream_readonly,
    CreateConsumerGroup: _join_group,
    JoinConsumerGroup: _join_group,
    LeaveConsumerGroup: _leave_group,
}
