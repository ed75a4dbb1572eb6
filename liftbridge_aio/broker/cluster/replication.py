"""The progress of followers, as tracked by the leader of a partition. Pure.

A follower sends the offset that it has reached and receives the messages after it and the leader's
high watermark. The leader learns from the next fetch that messages have arrived and commits them,
which the follower learns from the reply: its high watermark lags by one round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from liftbridge_aio.broker.storage.core.log import NO_OFFSET


@dataclass(slots=True)
class FollowerProgress:
    """The progress of one follower, as its leader knows it."""

    newest_offset: int
    """The last offset that it is known to have."""
    last_fetch: int
    """Time of its last fetch; Unix nanoseconds."""
    last_caught_up: int
    """Time when it last had all messages; Unix nanoseconds."""


class Leadership:
    """A leader's state, from the beginning of its epoch to the next one."""

    def __init__(self, followers: Iterable[str], newest_offset: int, now: int) -> None:
        """Create the state of a new leader.

        Args:
            followers: ids of the other replicas.
            newest_offset: of the leader's log.
            now: Unix nanoseconds.
        """
        self._first_newest = newest_offset
        self.followers = {one: FollowerProgress(NO_OFFSET, now, now) for one in followers}
        self._waiting: deque[tuple[int, Callable[[int], None]]] = deque()

    def wait_for_commit(self, offset: int, settle: Callable[[int], None]) -> None:
        """Call `settle` with the time once `offset` is committed; offsets ascend."""
        self._waiting.append((offset, settle))

    def settle(self, high_watermark: int, now: int) -> None:
        """Call the callbacks that wait for offsets up to `high_watermark`."""
        while self._waiting and self._waiting[0][0] <= high_watermark:
            self._waiting.popleft()[1](now)

    def holds_all_committed(self, replica: str, high_watermark: int) -> bool:
        """Return True if a follower is known to have every committed message.

        The leader's high watermark may lag behind that of the previous leader, but all messages
        that one committed were in this leader's log from the beginning.
        """
        least = max(high_watermark, self._first_newest)
        return self.followers[replica].newest_offset >= least

    def is_out_of_sync(self, replica: str, max_lag: int, now: int) -> bool:
        """Return True if a follower was silent or behind for longer than `max_lag` ns."""
        progress = self.followers[replica]
        return now - min(progress.last_fetch, progress.last_caught_up) > max_lag
