"""Which partitions a member holds, and what has to happen before it takes or gives one up.

A partition that is withdrawn is handed out no more from that moment on. Then the user's handler is
called, then the position is stored, and only then it is gone; one that comes back meanwhile is
taken up anew, because another member may have read it in between. Of partitions that were lost by
an expulsion no position is stored: others may have them already.

Pure: no readers, no clock; steps are carried out by whoever asks for them, one at a time.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from liftbridge_aio.model import StreamPartition

from .group_plan import Assignment

_FIRST_DELAY: Final = 0.05
_LONGEST_DELAY: Final = 2.0
_STEADY_AFTER: Final = 5.0
"""Seconds after which a reading that ends counts as having stood."""
_STANDS_AFTER: Final = 1.0
"""Seconds after which a reading that has not ended is no longer one that ends at once again."""


class Hold(enum.Enum):
    """State of a partition that a member holds."""

    RESOLVING = "resolving"
    """The position is being fetched; `on_assigned` was not called."""
    ANNOUNCING = "announcing"
    """`on_assigned` is being called."""
    CLOSED = "closed"
    """To be read from a certain time on."""
    READING = "reading"
    WITHDRAWN = "withdrawn"
    """Assigned to another member: to be committed and given up."""
    LOST = "lost"
    """Gone with the membership: to be given up as it is."""


@dataclass(frozen=True, slots=True)
class Revoke:
    """Tell the user, store the positions if `commit`, and give up."""

    partitions: Assignment
    commit: bool


@dataclass(frozen=True, slots=True)
class Adopt:
    """Find where to begin, call `on_assigned`, then open."""

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
    """Another member subscribed then: read on only after the group has confirmed the assignment."""
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
        """Partitions after `on_assigned` and before `on_revoked`."""
        return self._in({Hold.CLOSED, Hold.READING})

    def hold(self, place: StreamPartition) -> Hold | None:
        """Return the state of a partition; None if this member does not hold it."""
        held = self._held.get(place)
        return None if held is None else held.hold

    def is_steady(self, place: StreamPartition, now: float) -> bool:
        """Return True if a partition has been read for a while."""
        held = self._held.get(place)
        if held is None or held.hold is not Hold.READING:
            return False
        return now - held.opened_at >= _STANDS_AFTER

    # The assignment

    def assign(self, wanted: Assignment) -> Assignment:
        """Take in an assignment.

        Returns:
            Partitions of which nothing may be handed out from now on.
        """
        self.wanted = wanted
        return self._take_away(Hold.WITHDRAWN, self._held.keys() - wanted)

    def lose(self) -> Assignment:
        """Record that this is no member any more.

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
            elif held.hold in {Hold.ANNOUNCING, Hold.CLOSED, Hold.READING}:
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
            confirmed_at: when the last successful fetch of the assignment began.
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
            The partitions to call `on_assigned` with: those that were not taken away.
        """
        found = set()
        for place in places:
            held = self._held.get(place)
            if held is not None and held.hold is Hold.RESOLVING:
                held.hold = Hold.ANNOUNCING
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

    def announced(self, places: Iterable[StreamPartition]) -> None:
        """Take note that `on_assigned` has returned; these are to be read."""
        for place in places:
            held = self._held[place]
            if held.hold is Hold.ANNOUNCING:
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
        """Take note that a reader has ended; the partition is opened again.

        Args:
            place: the partition.
            now: the time.
            taken: another member may have it: opened only after the assignment was fetched again.
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
        """Have a partition opened at once, as after a seek; return True if it is to be read."""
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
