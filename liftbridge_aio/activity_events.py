"""Events of the servers' activity stream: operations on streams and groups, as values.

`id` is the number of the operation in the cluster: it is strictly increasing, and the epoch of a
group is the id of the operation that led to it. Servers publish each event at least once; the
client drops repeats.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from .model import datetime_from_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """The fields of every event."""

    id: int
    """The number of the operation in the cluster."""
    offset: int
    """Its offset in the activity stream."""
    timestamp: int
    """When it was stored there, in Unix nanoseconds; this may be long after the operation."""

    @property
    def time(self) -> datetime:
        """`timestamp` as an aware `datetime` in UTC."""
        return datetime_from_ns(self.timestamp)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StreamEvent(_Event):
    """The fields of every event of a stream."""

    stream: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateStreamEvent(_StreamEvent):
    """A stream was created."""

    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteStreamEvent(_StreamEvent):
    """A stream was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseStreamEvent(_StreamEvent):
    """Partitions of a stream were paused, by a call or because they were idle."""

    partitions: tuple[int, ...]
    """In no order."""
    resume_all: bool
    """A message to one of them resumes all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeStreamEvent(_StreamEvent):
    """Paused partitions of a stream were resumed."""

    partitions: tuple[int, ...]
    """In no order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStreamReadonlyEvent(_StreamEvent):
    """Partitions of a stream were made read-only, or opened again."""

    partitions: tuple[int, ...]
    """In no order."""
    readonly: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupEvent(_Event):
    """A member joined a consumer group; the first one creates the group."""

    group: str
    consumer: str
    streams: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupEvent(_Event):
    """A member left a consumer group; with the last one the group ends."""

    group: str
    consumer: str
    expired: bool
    """True if it did not leave: it was expelled because it sent no heartbeats for too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownEvent(_Event):
    """An event that this client cannot decode: of a newer server, or not an event at all."""

    operation: int | None
    """The number of the operation's kind; None, with id 0, if it is not an event at all."""
    data: bytes
    """The stored bytes."""


ActivityEvent: TypeAlias = (
    CreateStreamEvent
    | DeleteStreamEvent
    | PauseStreamEvent
    | ResumeStreamEvent
    | SetStreamReadonlyEvent
    | JoinGroupEvent
    | LeaveGroupEvent
    | UnknownEvent
)
"""Any event; tell them apart with `match`."""
