"""Which partitions a member holds, and what has to happen before it takes or gives one up.

A partition that is withdrawn is handed out no more from that moment on. Then the user's handler is
called, then the position is stored, and only then it is gone; one that comes back meanwhile is
taken up anew, because another member may have read it in between. Of partitions that were lost by
an expulsion no position is stored: others may have them already.

Pure: no readings, no clock; steps are carried out by whoever asks for them, one at a time.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from .assignment import Assignment, StreamPartition

_FIRST_DELAY: Final = 0.05
_LONGEST_DELAY: Final = 2.0
_STEADY_AFTER: Final = 5.0
"""Seconds after which a reading that ends counts as having stood."""


class Hold(enum.Enum):
    """How a member stands to a partition that it holds."""

    RESOLVING = "resolving"
    """Where to begin is being looked up; nobody was told."""
    TELLING = "telling"
    """The user's handler is being told."""
    CLOSED = "closed"
    """To be read from a certain time on."""
    READING = "reading"
    WITHDRAWN = "withdrawn"
    """Assigned to somebody else: to be committed and given up."""
    LOST = "lost"
    """Gone with the membership: to be given up as it is."""


@dataclass(frozen=True, slots=True)
class Revoke:
    """Tell the user, store the positions if `commit`, and give up."""

    partitions: Assignment
    commit: bool


@dataclass(frozen=True, slots=True)
class Adopt:
    """Look up where to begin, tell the user, then open."""

    partitions: Assignment


@dataclass(frozen=True, slots=True)
class Open:
    """Read."""

    partitions: Assignment


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to do until a time, or until something happens."""

    until: float


Step: TypeAlias = Revoke | Adopt | Open | Idle


@dataclass(slots=True)
class _Held:
    hold: Hold
    open_at: float = -math.inf
    unconfirmed_since: float = -math.inf
    """A reading was taken over then: whether the partition is still ours must be heard first."""
    opened_at: float = -math.inf
    failures: int = 0


class Ownership:
    """The partitions of one member. Times are those of one clock, in seconds."""

    def __init__(self) -> None:
        self.wanted: Assignment = frozenset()
        """What is assigned to this member."""
        self._held: dict[StreamPartition, _Held] = {}
        self._adopt_at: dict[StreamPartition, float] = {}
        self._failures: dict[StreamPartition, int] = {}

    @property
    def owned(self) -> Assignment:
        """Partitions that the user was told of and that are still this member's."""
        return self._in({Hold.CLOSED, Hold.READING})

    def hold(self, place: StreamPartition) -> Hold | None:
        """How this member stands to a partition; None where it has nothing to do with it."""
        held = self._held.get(place)
        return None if held is None else held.hold

    # What the group says

    def assign(self, wanted: Assignment) -> Assignment:
        """Take in an assignment.

        Returns:
            Partitions of which nothing may be handed out from now on.
        """
        self.wanted = wanted
        return self._take_away(Hold.WITHDRAWN, self._held.keys() - wanted)

    def lose(self) -> Assignment:
        """Take note that this is no member any more.

        Returns:
            Partitions of which nothing may be handed out from now on.
        """
        self.wanted = frozenset()
        return self._take_away(Hold.LOST, self._held)

    def _take_away(self, why: Hold, places: Iterable[StreamPartition]) -> Assignment:
        stopped = set()
        for place in list(places):
            held = self._held[place]
            if held.hold is Hold.RESOLVING:
                del self._held[place]
            elif held.hold in {Hold.TELLING, Hold.CLOSED, Hold.READING}:
                held.hold = why
                stopped.add(place)
            elif why is Hold.LOST:
                held.hold = why
        for place in self._adopt_at.keys() - self.wanted:
            del self._adopt_at[place]
            self._failures.pop(place, None)
        return frozenset(stopped)

    # Steps

    def next_step(self, now: float, confirmed_at: float) -> Step:
        """Say what to do now.

        Args:
            now: the time.
            confirmed_at: when the assignment was asked for that was heard last.
        """
        for hold, commit in ((Hold.LOST, False), (Hold.WITHDRAWN, True)):
            gone = self._in({hold})
            if gone:
                return Revoke(gone, commit)
        closed = {
            place: held.open_at
            for place, held in self._held.items()
            if held.hold is Hold.CLOSED and confirmed_at >= held.unconfirmed_since
        }
        ready = _due(closed, now)
        if ready:
            return Open(ready)
        missing = {
            place: self._adopt_at.get(place, -math.inf) for place in self.wanted - self._held.keys()
        }
        new = _due(missing, now)
        if new:
            self._held.update({place: _Held(Hold.RESOLVING) for place in new})
            return Adopt(new)
        return Idle(min([*closed.values(), *missing.values()], default=math.inf))

    def revoked(self, step: Revoke) -> None:
        """Take note that a step was carried out."""
        for place in step.partitions:
            del self._held[place]

    def resolved(self, places: Iterable[StreamPartition]) -> Assignment:
        """Take note that it is known where to begin.

        Returns:
            The partitions of which the user is to be told: those that were not taken away.
        """
        found = set()
        for place in places:
            held = self._held.get(place)
            if held is not None and held.hold is Hold.RESOLVING:
                held.hold = Hold.TELLING
                self._adopt_at.pop(place, None)
                self._failures.pop(place, None)
                found.add(place)
        return frozenset(found)

    def unresolved(
        self, places: Iterable[StreamPartition], now: float
    ) -> dict[StreamPartition, int]:
        """Take note that it could not be found where to begin; it is tried again.

        Returns:
            How often that was so, of those that are still wanted.
        """
        found = {}
        for place in places:
            held = self._held.get(place)
            if held is not None and held.hold is Hold.RESOLVING:
                del self._held[place]
                failures = self._failures[place] = self._failures.get(place, 0) + 1
                self._adopt_at[place] = now + _delay(failures)
                found[place] = failures
        return found

    def told(self, places: Iterable[StreamPartition]) -> None:
        """Take note that the user knows of these; they are to be read."""
        for place in places:
            held = self._held[place]
            if held.hold is Hold.TELLING:
                held.hold = Hold.CLOSED

    def opened(self, place: StreamPartition, now: float) -> None:
        """Take note that a partition is read."""
        held = self._held[place]
        if held.hold is not Hold.CLOSED:
            text = f"{place} is {held.hold.value}, so it must not be read"
            raise AssertionError(text)
        held.hold = Hold.READING
        held.opened_at = now

    def ended(self, place: StreamPartition, now: float, *, taken: bool, again: bool = True) -> int:
        """Take note that a reading has ended by itself; it is opened again.

        Args:
            place: the partition.
            now: the time.
            taken: somebody else may have it: it is opened only after the assignment was heard anew.
            again: False leaves it closed until `reopen`.

        Returns:
            How often it ended so without having stood for a while.
        """
        held = self._held.get(place)
        if held is None or held.hold is not Hold.READING:
            return 0
        if now - held.opened_at >= _STEADY_AFTER:
            held.failures = 0
        held.hold = Hold.CLOSED
        held.open_at = now + _delay(held.failures) if again else math.inf
        held.failures += 1
        if taken:
            held.unconfirmed_since = now
        return held.failures

    def reopen(self, place: StreamPartition) -> bool:
        """Have a partition opened at once, as after a seek; tell whether it is to be read."""
        held = self._held.get(place)
        if held is None or held.hold not in {Hold.CLOSED, Hold.READING}:
            return False
        held.hold = Hold.CLOSED
        held.open_at = -math.inf
        return True

    def _in(self, holds: set[Hold]) -> Assignment:
        return frozenset(place for place, held in self._held.items() if held.hold in holds)


def _due(times: dict[StreamPartition, float], now: float) -> Assignment:
    return frozenset(place for place, at in times.items() if at <= now)


def _delay(failures: int) -> float:
    return min(_FIRST_DELAY * 2.0 ** min(failures, 20), _LONGEST_DELAY)
