"""The operations on a cluster's metadata, as values.

A real cluster agrees on these through Raft; here all nodes share one list of them, and each node
applies them in order. The position of an operation in the list, from 1 on, is its index: the epoch
of what it changes, and the id of its activity event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from .stream_config import StreamConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlacement:
    """The replicas of a partition, and its first leader."""

    replicas: tuple[str, ...]
    leader: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateStream:
    """A stream is created, its partitions numbered from 0."""

    name: str
    subject: str
    group: str
    config: StreamConfig
    created: int
    """Unix nanoseconds."""
    partitions: tuple[PartitionPlacement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteStream:
    """A stream is deleted, with all messages."""

    stream: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseStream:
    """Partitions are paused."""

    stream: str
    partitions: tuple[int, ...]
    resume_all: bool
    at: int
    """Unix nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeStream:
    """Partitions are resumed, if they are paused."""

    stream: str
    partitions: tuple[int, ...]
    at: int
    """Unix nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStreamReadonly:
    """Partitions become read-only or writable."""

    stream: str
    partitions: tuple[int, ...]
    readonly: bool
    at: int
    """Unix nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkIsr:
    """A replica falls out of sync."""

    stream: str
    partition: int
    replica: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandIsr:
    """A replica is in sync again."""

    stream: str
    partition: int
    replica: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeLeader:
    """Another replica becomes the leader; none, if `leader` is empty."""

    stream: str
    partition: int
    leader: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateConsumerGroup:
    """A group is created with its first member. Its epoch is 0, not the index."""

    group: str
    coordinator: str
    consumer: str
    streams: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinConsumerGroup:
    """A member is added to a group."""

    group: str
    consumer: str
    streams: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveConsumerGroup:
    """A member leaves or is expelled; the last one deletes the group."""

    group: str
    consumer: str
    expired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeGroupCoordinator:
    """Another broker becomes the coordinator of a group."""

    group: str
    coordinator: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishActivity:
    """The activity stream has all events up to this index."""

    index: int


Operation: TypeAlias = (
    CreateStream
    | DeleteStream
    | PauseStream
    | ResumeStream
    | SetStreamReadonly
    | ShrinkIsr
    | ExpandIsr
    | ChangeLeader
    | CreateConsumerGroup
    | JoinConsumerGroup
    | LeaveConsumerGroup
    | ChangeGroupCoordinator
    | PublishActivity
)
