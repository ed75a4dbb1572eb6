"""What the leader of a partition knows of its followers, and who waits for them.

Pure: the time comes in as an argument.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .log import NO_OFFSET


@dataclass(slots=True)
class FollowerProgress:
    """How far one follower has come, as far as its leader knows."""

    newest_offset: int
    """The last offset that it is known to hold."""
    seen: int
    """When it asked for messages last; Unix nanoseconds."""
    caught_up: int
    """When it had everything last; Unix nanoseconds."""


class Leading:
    """One leadership: it ends when another epoch of the partition begins."""

    def __init__(self, followers: Iterable[str], newest_offset: int, now: int) -> None:
        """Begin to lead.

        Args:
            followers: ids of the other replicas.
            newest_offset: of the leader's own log.
            now: Unix nanoseconds.
        """
        self._first_newest = newest_offset
        self.followers = {one: FollowerProgress(NO_OFFSET, now, now) for one in followers}
        self._waiting: deque[tuple[int, Callable[[int], None]]] = deque()

    def wait_for_commit(self, offset: int, settle: Callable[[int], None]) -> None:
        """Call `settle` with the time once `offset` is committed; offsets come in order."""
        self._waiting.append((offset, settle))

    def settle(self, high_watermark: int, now: int) -> None:
        """Tell those who wait for offsets up to `high_watermark`."""
        while self._waiting and self._waiting[0][0] <= high_watermark:
            self._waiting.popleft()[1](now)

    def is_complete(self, replica: str, high_watermark: int) -> bool:
        """Tell whether a follower surely has all that was ever committed.

        The leader's high watermark alone does not tell: it may lag behind that of the leader
        before, but whatever that one committed was in this leader's log from the beginning.
        """
        least = max(high_watermark, self._first_newest)
        return self.followers[replica].newest_offset >= least

    def out_of_sync(self, replica: str, max_lag: int, now: int) -> bool:
        """Tell whether a follower was not seen, or was behind, for longer than `max_lag` ns."""
        progress = self.followers[replica]
        return now - min(progress.seen, progress.caught_up) > max_lag
