"""Which leader wrote which part of a log, so that followers know what to forget.

Two replicas agree up to the smaller of the two offsets where they say that an epoch ended. After a
change of leader, a follower asks where the last epoch that it knows ended at the new leader, and
forgets what it has from there on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import Final

NO_EPOCH: Final = 0
"""The epoch of what was written before any was begun."""


class LeaderEpochs:
    """Where each epoch of a log begins, in ascending order."""

    def __init__(self) -> None:
        """Begin with none."""
        self._starts: list[tuple[int, int]] = []

    @property
    def last(self) -> int:
        """The latest epoch, `NO_EPOCH` where there is none."""
        return self._starts[-1][0] if self._starts else NO_EPOCH

    def begin(self, epoch: int, start_offset: int) -> None:
        """Record that an epoch begins; as on a real server, one that is not later is passed over.

        Args:
            epoch: its number.
            start_offset: offset of the first message that may be of this epoch.
        """
        if epoch > self.last and (not self._starts or start_offset >= self._starts[-1][1]):
            self._starts.append((epoch, start_offset))

    def end_of(self, epoch: int) -> int | None:
        """Return the offset where the first later epoch begins; None: there is no later one."""
        index = bisect_right(self._starts, epoch, key=itemgetter(0))
        return self._starts[index][1] if index < len(self._starts) else None

    def last_shared(self, other: LeaderEpochs) -> int:
        """Return the latest epoch that both know, `NO_EPOCH` where there is none."""
        known = {epoch for epoch, _ in other._starts}
        return max((epoch for epoch, _ in self._starts if epoch in known), default=NO_EPOCH)

    def learn(self, leader: LeaderEpochs, offset: int) -> None:
        """Take over the epoch of a message that was copied from a leader.

        Args:
            leader: the epochs of the log that it comes from.
            offset: of the message, which is the last one here.
        """
        for epoch, start_offset in leader._starts:
            if start_offset <= offset:
                self.begin(epoch, offset)

    def forget_from(self, offset: int) -> None:
        """Forget the epochs that begin at `offset` or later."""
        del self._starts[bisect_left(self._starts, offset, key=itemgetter(1)) :]

    def forget_before(self, offset: int) -> None:
        """Forget the epochs that ended before `offset`; the one that spans it begins there."""
        earlier = bisect_left(self._starts, offset, key=itemgetter(1))
        if not earlier:
            return
        spanning = self._starts[earlier - 1][0]
        del self._starts[:earlier]
        if not self._starts or self._starts[0][1] > offset:
            self._starts.insert(0, (spanning, offset))
