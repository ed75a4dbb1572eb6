"""Which operations of a lone broker still matter (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
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

Numbered: TypeAlias = tuple[int, Operation]
"""An operation and its index."""

_GROUP_OPERATIONS = (
    CreateConsumerGroup | JoinConsumerGroup | LeaveConsumerGroup | ChangeGroupCoordinator
)


def condense(operations: Sequence[Numbered]) -> Sequence[Numbered]:
    """Leave out what later operations have undone, and keep the indices of the others.

    Gone are groups that lost all members, deleted streams that no member of a group has asked for,
    pauses and resumptions that other pauses followed, and all notes of published activity but the
    last. Timestamps of pauses go with them.
    """
    kept = _without_notes(_without_ended_groups(operations))
    return _without_old_pauses(_without_deleted_streams(kept))


def living_streams(operations: Iterable[Numbered]) -> Collection[int]:
    """Return the indices of the creations of all streams that exist in the end."""
    living: dict[str, int] = {}
    for index, operation in operations:
        match operation:
            case CreateStream():
                living[operation.name] = index
            case DeleteStream():
                del living[operation.stream]
    return living.values()


def _without_notes(operations: Sequence[Numbered]) -> Sequence[Numbered]:
    last = max(
        (index for index, one in operations if isinstance(one, PublishActivity)), default=None
    )
    return [
        (index, one)
        for index, one in operations
        if index == last or not isinstance(one, PublishActivity)
    ]


def _without_ended_groups(operations: Sequence[Numbered]) -> Sequence[Numbered]:
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


def _without_deleted_streams(operations: Sequence[Numbered]) -> Sequence[Numbered]:
    # What a group's member asked for decides who reads what, even after it was deleted.
    wanted = {
        stream
        for _, one in operations
        if isinstance(one, CreateConsumerGroup | JoinConsumerGroup)
        for stream in one.streams
    }
    concerning: dict[str, set[int]] = defaultdict(set)
    gone: set[int] = set()
    for index, operation in operations:
        name = _stream_of(operation)
        if name is None or name in wanted:
            continue
        concerning[name].add(index)
        if isinstance(operation, DeleteStream):
            gone |= concerning.pop(name)
    return [(index, one) for index, one in operations if index not in gone]


def _without_old_pauses(operations: Sequence[Numbered]) -> Sequence[Numbered]:
    # Resuming also makes a read-only log writable: where both happened, all of it stays.
    fixed = {one.stream for _, one in operations if isinstance(one, SetStreamReadonly)}
    fixed |= {one.stream for _, one in operations if isinstance(one, DeleteStream)}
    settled: dict[str, set[int]] = defaultdict(set)
    kept: list[Numbered] = []
    for index, operation in reversed(operations):
        if not isinstance(operation, PauseStream | ResumeStream) or operation.stream in fixed:
            kept.append((index, operation))
            continue
        stream = operation.stream
        concerned = set(operation.partitions)
        if not concerned <= settled[stream]:  # the latest pause, which decides on resume_all, stays
            kept.append((index, operation))
        # Not by resuming: metadata goes on to say of what was resumed that it is paused.
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
