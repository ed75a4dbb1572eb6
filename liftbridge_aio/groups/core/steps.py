"""The calls that a membership requests, and their outcomes. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from liftbridge_aio._core.status import GroupRefusal
from liftbridge_aio.errors import LiftbridgeError

from .group_plan import Assignment


@dataclass(frozen=True, slots=True)
class Join:
    """Join the group."""

    consumer: str
    again: bool = False
    """True after an expulsion: streams that were deleted since are left out."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Remove a member from the group."""

    consumer: str


@dataclass(frozen=True, slots=True)
class Fetch:
    """Fetch the assignments from the coordinator."""

    consumer: str
    coordinator: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Locate:
    """Look up the coordinator and the epoch in the metadata."""

    coordinator: str
    """The last known coordinator."""
    answers: bool
    """True if it answers: then it is called first, otherwise last."""


@dataclass(frozen=True, slots=True)
class Report:
    """Report that the coordinator does not answer."""

    consumer: str
    coordinator: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Rest:
    """Wait until a time or the next event."""

    until: float


Call: TypeAlias = Join | Leave | Fetch | Locate | Report
MemberStep: TypeAlias = Call | Rest


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to a join; timeouts in seconds."""

    coordinator: str
    epoch: int
    consumer_timeout: float
    coordinator_timeout: float
    streams: Mapping[str, int] = field(default_factory=dict)
    """The creation time of each stream of the plan just before the join; -1 for a missing one."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The answer to a fetch."""

    partitions: Assignment


@dataclass(frozen=True, slots=True)
class Located:
    """The answer to a metadata lookup."""

    coordinator: str
    epoch: int
    streams: Mapping[str, int] = field(default_factory=dict)
    """The creation times of the streams of the plan that exist."""


@dataclass(frozen=True, slots=True)
class Done:
    """The success of a call without a result."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The failure of a call."""

    why: GroupRefusal
    error: LiftbridgeError
    unknown: bool = False
    """True if the server may have executed it."""
    found: bool = False
    """True if a stream of the plan was found just before."""


Answer: TypeAlias = Joined | Fetched | Located | Done | Refused
