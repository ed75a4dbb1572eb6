"""What a membership asks for, one step at a time, and what answers mean. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.status import GroupRefusal

from .assignment import Assignment


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
    """The last one that was heard of."""
    answers: bool
    """Whether it lives: it knows best then, and is to be avoided otherwise."""


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
Step: TypeAlias = Call | Rest


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
    """What the metadata says of the group."""

    coordinator: str
    epoch: int
    has_streams: bool = True
    """Whether a stream of the group is left."""


@dataclass(frozen=True, slots=True)
class Done:
    """A call without answer was carried out."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A call failed."""

    why: GroupRefusal
    error: LiftbridgeError
    unknown: bool = False
    """Whether the server may have acted on it all the same."""


Answer: TypeAlias = Joined | Fetched | Located | Done | Refused
