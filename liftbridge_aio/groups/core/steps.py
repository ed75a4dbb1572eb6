"""The calls that a membership asks for, and their outcomes. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from liftbridge_aio._core.status import GroupRefusal
from liftbridge_aio.errors import LiftbridgeError

from .group_plan import Assignment


@dataclass(frozen=True, slots=True)
class Join:
    """Join the group."""

    consumer: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Take a member out of the group."""

    consumer: str


@dataclass(frozen=True, slots=True)
class Fetch:
    """Fetch the assignments from the coordinator."""

    consumer: str
    coordinator: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Locate:
    """Ask for the coordinator and the epoch."""

    coordinator: str
    """The last known coordinator."""
    answers: bool
    """True if it answers: then it is asked first, otherwise it is avoided."""


@dataclass(frozen=True, slots=True)
class Report:
    """Say that the coordinator is silent."""

    consumer: str
    coordinator: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Rest:
    """Do nothing until a time, or until something happens."""

    until: float


Call: TypeAlias = Join | Leave | Fetch | Locate | Report
MemberStep: TypeAlias = Call | Rest


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to a join; timeouts are seconds."""

    coordinator: str
    epoch: int
    consumer_timeout: float
    coordinator_timeout: float


@dataclass(frozen=True, slots=True)
class Fetched:
    """The answer to a fetch."""

    partitions: Assignment


@dataclass(frozen=True, slots=True)
class Located:
    """The metadata of the group."""

    coordinator: str
    epoch: int
    has_streams: bool = True
    """True if a stream of the group is left."""


@dataclass(frozen=True, slots=True)
class Done:
    """A call without answer was carried out."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A call failed."""

    why: GroupRefusal
    error: LiftbridgeError
    unknown: bool = False
    """True if the server may have acted on it."""


Answer: TypeAlias = Joined | Fetched | Located | Done | Refused
