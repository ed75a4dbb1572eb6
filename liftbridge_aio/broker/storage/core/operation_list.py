"""Condenses the operations of a single broker to those that still have an effect. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from .operations import (
    ChangeGroupCoordinator,
    CreateConsumerGroup,
    CreateStream,
    DeleteStream,
    JoinConsumerGroup,
    LeaveConsumerGroup,
    Operation,
    PauseStream,
    PublishActivity,
    ResumeStream,
    SetStreamReadonly,
)

IndexedOperation: TypeAlias = tuple[int, Operation]
"""An operation and its index."""

_GROUP_OPERATIONS = (
    CreateConsumerGroup | JoinConsumerGroup | LeaveConsumerGroup | ChangeGroupCoordinator
)


def condense(operations: Sequence[IndexedOperation]) -> Sequence[IndexedOperation]:
    """Remove operations that later ones have undone; the others keep their indices.

    Removed are groups without members, deleted streams to which no member of a group subscribed,
    pauses and resumptions before other pauses, with their timestamps, and all `PublishActivity` but
    the last.
    """
    kept = _without_old_activity(_without_empty_groups(operations))
    return _without_old_pauses(_without_deleted_streams(kept))


def existing_streams(operations: Iterable[IndexedOperation]) -> Mapping[int, CreateStream]:
    """Return the creations of all streams that still exist, by index."""
    existing: dict[str, tuple[int, CreateStream]] = {}
    for index, operation in operations:
        match operation:
            case CreateStream():
                existing[operation.name] = index, operation
            case DeleteStream():
                del existing[operation.stream]
    return dict(existing.values())


def _without_old_activity(operations: Sequence[IndexedOperation]) -> Sequence[IndexedOperation]:
    last = max(
        (index for index, one in operations if isinstance(one, PublishActivity)), default=None
    )
    return [
        (index, one)
        for index, one in operations
        if index == last or not isinstance(one, PublishActivity)
    ]


def _without_empty_groups(operations: Sequence[IndexedOperation]) -> Sequence[IndexedOperation]:
    members: dict[str, set[str]] = defaultdict(set)
    concerning: dict[str, set[int]] = defaultdict(set)
    gone: set[int] = set()
    for index, operation in operations:
        if not isinstance(operation, _GROUP_OPERATIONS):
            continue
        concerning[operation.group].add(index)
        match operation:
            case CreateConsumerGroup() | JoinConsumerGroup():
                members[operation.group].add(operation.consumer)
            case LeaveConsumerGroup():
                members[operation.group].discard(operation.consumer)
                if not members[operation.group]:
                    gone |= concerning.pop(operation.group)
    return [(index, one) for index, one in operations if index not in gone]


def _without_deleted_streams(operations: Sequence[IndexedOperation]) -> Sequence[IndexedOperation]:
    # Streams of a group's members influence assignments, even after they were deleted.
    subscribed = {
        stream
        for _, one in operations
        if isinstance(one, CreateConsumerGroup | JoinConsumerGroup)
        for stream in one.streams
    }
    concerning: dict[str, set[int]] = defaultdict(set)
    gone: set[int] = set()
    for index, operation in operations:
        name = _stream_of(operation)
        if name is None or name in subscribed:
            continue
        concerning[name].add(index)
        if isinstance(operation, DeleteStream):
            gone |= concerning.pop(name)
    return [(index, one) for index, one in operations if index not in gone]


def _without_old_pauses(operations: Sequence[IndexedOperation]) -> Sequence[IndexedOperation]:
    # Resuming also makes a read-only log writable: where both happened, all operations stay.
    fixed = {one.stream for _, one in operations if isinstance(one, SetStreamReadonly)}
    fixed |= {one.stream for _, one in operations if isinstance(one, DeleteStream)}
    settled: dict[str, set[int]] = defaultdict(set)
    kept: list[IndexedOperation] = []
    for index, operation in reversed(operations):
        if not isinstance(operation, PauseStream | ResumeStream) or operation.stream in fixed:
            kept.append((index, operation))
            continue
        stream = operation.stream
        concerned = set(operation.partitions)
        if not concerned <= settled[stream]:  # the latest pause, which sets resume_all, stays
            kept.append((index, operation))
        # Not a resumption: metadata shows resumed partitions as paused.
        if isinstance(operation, PauseStream):
            settled[stream] |= concerned
    return kept[::-1]


def _stream_of(operation: Operation) -> str | None:
    match operation:
        case CreateStream():
            return operation.name
        case DeleteStream() | PauseStream() | ResumeStream() | SetStreamReadonly():
            return operation.stream
        case _:
            return None
