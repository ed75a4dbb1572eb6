"""Activities that must go on during a run, and their stalls. Pure: times come in as arguments."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

GRACE: Final = 1.0
"""Seconds that a call may take beyond its timeout."""


@dataclass(slots=True)
class Lane:
    """One thing that has to go on: a publisher, a reader, a cursor, a partition of the group.

    It consists of successes: each has a moment at which it was begun (for a message that is
    delivered that is when it was published) and one at which it was done.
    """

    name: str
    place: tuple[str, int] | None = None
    """The stream and partition whose leader it needs; None if any node will do."""
    begun: list[float] = field(default_factory=list)
    done: list[float] = field(default_factory=list)
    excused: list[tuple[float, float]] = field(default_factory=list)
    """Times at which it was held up on purpose."""

    def succeeded(self, begun: float, done: float) -> None:
        """Take in a success; they come in the order in which they are done."""
        self.begun.append(begun)
        self.done.append(done)

    def first_after(self, moment: float) -> float | None:
        """When the first success was done that was begun at a moment or later."""
        # What was done before that moment was begun before it.
        for at in range(bisect_left(self.done, moment), len(self.done)):
            if self.begun[at] >= moment:
                return self.done[at]
        return None

    def longest_gap(self, since: float, until: float) -> float:
        """The longest time without a success, as far as it lies within a span of time."""
        first, last = bisect_right(self.done, since), bisect_left(self.done, until)
        gaps = pairwise([since, *self.done[first:last], until])
        return max((b - a for a, b in gaps if not self._excuses(a, b)), default=0.0)

    def _excuses(self, since: float, until: float) -> bool:
        return any(since < end and begin < until for begin, end in self.excused)


@dataclass(frozen=True, slots=True)
class OverdueCall:
    """A call that took longer than it may."""

    what: str
    began: float
    took: float
    bound: float

    def __str__(self) -> str:
        return f"{self.what} took {self.took:.2f} s and may take {self.bound:g} s"


@dataclass(slots=True)
class Calls:
    """Durations of calls, and calls that took too long."""

    count: Counter[str] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=dict)
    overdue: list[OverdueCall] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    """Typed errors that calls ended in, by the call and their type."""
    examples: dict[str, str] = field(default_factory=dict)
    """The text of the first one of each."""

    def failed(self, what: str, error: Exception) -> None:
        """A call ended in a typed error."""
        name = f"{what}: {type(error).__name__}"
        self.errors[name] += 1
        self.examples.setdefault(name, str(error))

    def ended(self, what: str, began: float, now: float, bound: float) -> None:
        """A call is over, however it ended."""
        took = now - began
        self.count[what] += 1
        self.longest[what] = max(self.longest.get(what, 0.0), took)
        if took > bound + GRACE:
            self.overdue.append(OverdueCall(what, began, took, bound))


def recovered_at(lanes: Iterable[Lane], moment: float) -> tuple[float, str] | None:
    """When each lane had a success that was begun at a moment or later, and which was the last.

    None if one has had none yet.
    """
    latest, last = moment, ""
    for lane in lanes:
        first = lane.first_after(moment)
        if first is None:
            return None
        if first >= latest:
            latest, last = first, lane.name
    return latest, last
