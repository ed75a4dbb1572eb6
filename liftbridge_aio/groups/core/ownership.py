"""The partitions that a member holds, and the steps to acquire or release them.

Delivery from a partition stops as soon as the partition is withdrawn. Then the user's callback is
called, then the position is committed, and only then the partition is released. If it is assigned
again meanwhile, it is acquired anew, because another member may have read it in between. Positions
of partitions lost by an expulsion are not committed: other members may own them already.

Pure: no readers, no clock. The caller of `next_step` executes the steps one at a time.
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
_FAILURES_RESET_AFTER: Final = 5.0
"""Seconds of reading after which the end of a reader resets the failure count."""
_READABLE_AFTER: Final = 1.0
"""Seconds of reading after which a partition counts as readable again."""


class Hold(enum.Enum):
    """The state of a partition that a member holds."""

    RESOLVING = "resolving"
    """The position is being fetched; `on_assigned` has not been called."""
    ANNOUNCING = "announcing"
    """`on_assigned` is being called."""
    CLOSED = "closed"
    """To be opened at or after a given time."""
    READING = "reading"
    WITHDRAWN = "withdrawn"
    """Assigned to another member: to be committed and released."""
    LOST = "lost"
    """Lost with the membership: to be released without a commit."""


@dataclass(frozen=True, slots=True)
class Revoke:
    """Call `on_revoked`, commit the positions if `commit`, then release."""

    partitions: Assignment
    commit: bool


@dataclass(frozen=True, slots=True)
class Adopt:
    """Find the start positions, call `on_assigned`, then open."""

    partitions: Assignment


@dataclass(frozen=True, slots=True)
class Open:
    """Open a partition for reading."""

    partitions: Assignment


@dataclass(frozen=True, slots=True)
class Idle:
    """Wait until a time or the next event."""

    until: float


Step: TypeAlias = Revoke | Adopt | Open | Idle


@dataclass(slots=True)
class _Held:
    hold: Hold
    open_at: float = -math.inf
    unconfirmed_since: float = -math.inf
    """The time at which another member subscribed: reopen only after a later confirmation."""
    opened_at: float = -math.inf
    failures: int = 0


class Ownership:
    """The partitions of one member. All times are seconds of one clock."""

    def __init__(self) -> None:
        self.wanted: Assignment = frozenset()
        """The partitions assigned to this member."""
        self._held: dict[StreamPartition, _Held] = {}
        self._adopt_at: dict[StreamPartition, float] = {}
        self._failures: dict[StreamPartition, int] = {}

    @property
    def owned(self) -> Assignment:
        """The partitions after `on_assigned` and before `on_revoked`."""
        return self._in({Hold.CLOSED, Hold.READING})

    def hold(self, partition: StreamPartition) -> Hold | None:
        """Return the state of a partition; None if this member does not hold it."""
        held = self._held.get(partition)
        return None if held is None else held.hold

    def is_readable(self, partition: StreamPartition, now: float) -> bool:
        """Return True if a partition has been read long enough to count as readable."""
        held = self._held.get(partition)
        if held is None or held.hold is not Hold.READING:
            return False
        return now - held.opened_at >= _READABLE_AFTER

    # The assignment

    def assign(self, wanted: Assignment) -> Assignment:
        """Apply an assignment.

        Returns:
            The partitions from which delivery must stop now.
        """
        self.wanted = wanted
        return self._withdraw(Hold.WITHDRAWN, self._held.keys() - wanted)

    def lose(self) -> Assignment:
        """Record that this is no longer a member.

        Returns:
            The partitions from which delivery must stop now.
        """
        self.wanted = frozenset()
        return self._withdraw(Hold.LOST, self._held)

    def _withdraw(self, why: Hold, partitions: Iterable[StreamPartition]) -> Assignment:
        stopped = set()
        for partition in list(partitions):
            held = self._held[partition]
            if held.hold is Hold.RESOLVING:
                del self._held[partition]
            elif held.hold in {Hold.ANNOUNCING, Hold.CLOSED, Hold.READING}:
                held.hold = why
                stopped.add(partition)
            elif why is Hold.LOST:
                held.hold = why
        for partition in self._adopt_at.keys() - self.wanted:
            del self._adopt_at[partition]
            self._failures.pop(partition, None)
        return frozenset(stopped)

    # Steps

    def next_step(self, now: float, confirmed_at: float) -> Step:
        """Return the next step.

        Args:
            now: the current time.
            confirmed_at: the time at which the last successful fetch of the assignment began.
        """
        for hold, commit in ((Hold.LOST, False), (Hold.WITHDRAWN, True)):
            gone = self._in({hold})
            if gone:
                return Revoke(gone, commit)
        closed = {
            partition: held.open_at
            for partition, held in self._held.items()
            if held.hold is Hold.CLOSED and confirmed_at >= held.unconfirmed_since
        }
        ready = _due(closed, now)
        if ready:
            return Open(ready)
        missing = {
            partition: self._adopt_at.get(partition, -math.inf)
            for partition in self.wanted - self._held.keys()
        }
        new = _due(missing, now)
        if new:
            self._held.update({partition: _Held(Hold.RESOLVING) for partition in new})
            return Adopt(new)
        return Idle(min([*closed.values(), *missing.values()], default=math.inf))

    def revoked(self, step: Revoke) -> None:
        """Record that partitions were released."""
        for partition in step.partitions:
            del self._held[partition]

    def resolved(self, partitions: Iterable[StreamPartition]) -> Assignment:
        """Record that the start positions are known.

        Returns:
            The partitions for `on_assigned`: those that were not withdrawn meanwhile.
        """
        found = set()
        for partition in partitions:
            held = self._held.get(partition)
            if held is not None and held.hold is Hold.RESOLVING:
                held.hold = Hold.ANNOUNCING
                self._adopt_at.pop(partition, None)
                self._failures.pop(partition, None)
                found.add(partition)
        return frozenset(found)

    def failures(self, partitions: Iterable[StreamPartition]) -> int:
        """Return how often in sequence one of these could not be found or opened, at most."""
        return max((self._failures.get(each, 0) for each in partitions), default=0)

    def unresolved(
        self, partitions: Iterable[StreamPartition], now: float
    ) -> dict[StreamPartition, int]:
        """Record that the start positions could not be found, and schedule a retry.

        Returns:
            The number of failures of each partition that is still assigned.
        """
        found = {}
        for partition in partitions:
            held = self._held.get(partition)
            if held is not None and held.hold is Hold.RESOLVING:
                del self._held[partition]
                failures = self._failures[partition] = self._failures.get(partition, 0) + 1
                self._adopt_at[partition] = now + _delay(failures)
                found[partition] = failures
        return found

    def announced(self, partitions: Iterable[StreamPartition]) -> None:
        """Record that `on_assigned` has returned, so that the partitions can be opened."""
        for partition in partitions:
            held = self._held[partition]
            if held.hold is Hold.ANNOUNCING:
                held.hold = Hold.CLOSED

    def opened(self, partition: StreamPartition, now: float) -> None:
        """Record that a partition is being read."""
        held = self._held[partition]
        if held.hold is not Hold.CLOSED:
            raise AssertionError(f"{partition} is {held.hold.value}, so it must not be read")
        held.hold = Hold.READING
        held.opened_at = now

    def ended(
        self, partition: StreamPartition, now: float, *, taken: bool, again: bool = True
    ) -> int:
        """Record that a reader has ended, and schedule reopening its partition.

        Args:
            partition: the partition.
            now: the current time.
            taken: True if another member may own it: reopened only after the next successful fetch
                of the assignment.
            again: False to leave it closed until `reopen`.

        Returns:
            The number of consecutive failures without a longer time of reading.
        """
        held = self._held.get(partition)
        if held is None or held.hold is not Hold.READING:
            return 0
        if now - held.opened_at >= _FAILURES_RESET_AFTER:
            held.failures = 0
        held.hold = Hold.CLOSED
        held.open_at = now + _delay(held.failures) if again else math.inf
        held.failures += 1
        if taken:
            held.unconfirmed_since = now
        return held.failures

    def reopen(self, partition: StreamPartition) -> bool:
        """Schedule opening a partition now, as after a seek; return False if it is not read."""
        held = self._held.get(partition)
        if held is None or held.hold not in {Hold.CLOSED, Hold.READING}:
            return False
        held.hold = Hold.CLOSED
        held.open_at = -math.inf
        return True

    def _in(self, holds: set[Hold]) -> Assignment:
        return frozenset(partition for partition, held in self._held.items() if held.hold in holds)


def _due(times: dict[StreamPartition, float], now: float) -> Assignment:
    return frozenset(partition for partition, at in times.items() if at <= now)


def _delay(failures: int) -> float:
    return min(_FIRST_DELAY * 2.0 ** min(failures, 20), _LONGEST_DELAY)
