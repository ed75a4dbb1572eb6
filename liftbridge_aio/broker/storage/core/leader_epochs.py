"""The leader epochs of a log, by which followers truncate their logs.

Two replicas agree up to the smaller of their end offsets of a shared epoch. After a change of
leader, a follower compares the last epoch that both know, and truncates its log there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import Final

NO_EPOCH: Final = 0
"""The epoch of messages written before the first epoch."""


class LeaderEpochs:
    """The start offset of each epoch of a log, in ascending order."""

    def __init__(self) -> None:
        """Create an empty list of epochs."""
        self._starts: list[tuple[int, int]] = []

    @property
    def last(self) -> int:
        """The latest epoch, `NO_EPOCH` if there is none."""
        return self._starts[-1][0] if self._starts else NO_EPOCH

    def begin(self, epoch: int, start_offset: int) -> None:
        """Record the start of an epoch; as on a real server, one that is not later is ignored.

        Args:
            epoch: its number.
            start_offset: offset of the first message that can belong to this epoch.
        """
        if epoch > self.last and (not self._starts or start_offset >= self._starts[-1][1]):
            self._starts.append((epoch, start_offset))

    def end_of(self, epoch: int) -> int | None:
        """Return the start offset of the next later epoch, None if there is none."""
        index = bisect_right(self._starts, epoch, key=itemgetter(0))
        return self._starts[index][1] if index < len(self._starts) else None

    def last_shared(self, other: LeaderEpochs) -> int:
        """Return the latest epoch that both logs have, `NO_EPOCH` if there is none."""
        known = {epoch for epoch, _ in other._starts}
        return max((epoch for epoch, _ in self._starts if epoch in known), default=NO_EPOCH)

    def learn(self, leader: LeaderEpochs, offset: int) -> None:
        """Record the epoch of a message that was copied from a leader.

        Args:
            leader: the epochs of the leader's log.
            offset: offset of the message, the last one of this log.
        """
        for epoch, start_offset in leader._starts:
            if start_offset <= offset:
                self.begin(epoch, offset)

    def forget_from(self, offset: int) -> None:
        """Drop the epochs that begin at `offset` or later."""
        del self._starts[bisect_left(self._starts, offset, key=itemgetter(1)) :]

    def forget_before(self, offset: int) -> None:
        """Drop the epochs that ended before `offset`; the one that spans it begins there."""
        earlier = bisect_left(self._starts, offset, key=itemgetter(1))
        if not earlier:
            return
        spanning = self._starts[earlier - 1][0]
        del self._starts[:earlier]
        if not self._starts or self._starts[0][1] > offset:
            self._starts.insert(0, (spanning, offset))
