"""What can happen to the cluster's metadata, as values.

A real cluster agrees on these through Raft; here one list of them is shared by all brokers, and
each broker applies them in order. The place of an operation in the list, from 1 on, is its index:
the epoch of what it changes, and the id of its activity event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from .stream_config import StreamConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlacement:
    """Which brokers keep a partition, and who leads it at first."""

    replicas: tuple[str, ...]
    leader: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateStream:
    """A stream begins, its partitions numbered from 0."""

    name: str
    subject: str
    group: str
    config: StreamConfig
    created: int
    """Unix nanoseconds."""
    partitions: tuple[PartitionPlacement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteStream:
    """A stream ends, with everything in it."""

    stream: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseStream:
    """Partitions rest."""

    stream: str
    partitions: tuple[int, ...]
    resume_all: bool
    at: int
    """Unix nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeStream:
    """Those of the partitions that rest work again."""

    stream: str
    partitions: tuple[int, ...]
    at: int
    """Unix nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStreamReadonly:
    """Partitions refuse or accept messages."""

    stream: str
    partitions: tuple[int, ...]
    readonly: bool
    at: int
    """Unix nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkIsr:
    """A replica counts as out of sync."""

    stream: str
    partition: int
    replica: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandIsr:
    """A replica counts as in sync again."""

    stream: str
    partition: int
    replica: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeLeader:
    """Another replica leads a partition; nobody, where `leader` is empty."""

    stream: str
    partition: int
    leader: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateConsumerGroup:
    """A group begins with its first member. Its epoch is 0, not the index."""

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
    """A member leaves or is expelled; the last one takes the group with it."""

    group: str
    consumer: str
    expired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeGroupCoordinator:
    """Another broker keeps watch over a group's members."""

    group: str
    coordinator: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishActivity:
    """The activity stream has the events up to this index."""

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
