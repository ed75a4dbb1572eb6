"""Replication of a partition: what its leader tracks, and how followers fetch from it. Pure.

A follower sends the offset that it has reached and receives the messages after it and the leader's
high watermark. The leader learns from the next fetch that messages have arrived and commits them,
which the follower learns from the reply: its high watermark lags by one round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from liftbridge_aio.broker.storage.core.log import NO_OFFSET

if TYPE_CHECKING:
    from .partition import Partition

_BATCH: Final = 1_000  # messages


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
        """Begin to lead.

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
        """Call back all who wait for offsets up to `high_watermark`."""
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


def fetch(leader: Partition, follower: Partition, server_id: str, now: int) -> bool:
    """Fetch once, for a follower.

    Args:
        leader: the leader's side of the partition.
        follower: the follower's side.
        server_id: id of the follower's broker.
        now: Unix nanoseconds.

    Returns:
        True if another round would bring new messages or commits to a replica.
    """
    leadership = leader.leadership
    if (
        leadership is None
        or not follower.is_following
        or follower.leader_epoch != leader.leader_epoch
    ):
        return False
    follower.last_contact = now
    if follower.must_truncate:
        _truncate(leader, follower)
    log = follower.log
    progress = leadership.followers[server_id]
    progress.last_fetch = now
    before = leader.log.high_watermark
    if progress.newest_offset != log.newest_offset:
        progress.newest_offset = log.newest_offset
        leader.advance(now)
    high_watermark = leader.log.high_watermark
    batch = leader.log.read_stored(log.next_offset, _BATCH)
    if batch:
        log.append_replicated(batch, leader.log.epochs)
    else:
        progress.last_caught_up = now
    log.commit(high_watermark)
    # Other followers have yet to learn of what the leader has just committed.
    return bool(batch) or high_watermark > before


def _truncate(leader: Partition, follower: Partition) -> None:
    # Both logs agree up to the end of the last epoch that both know; what this follower has beyond
    # it was never committed. A real server asks for the end of the follower's last epoch: where the
    # leader does not know that one, the logs may differ before the end that it answers.
    log = follower.log
    epoch = log.epochs.last_shared(leader.log.epochs)
    log.truncate(min(leader.log.end_offset_of(epoch), log.end_offset_of(epoch)))
    follower.must_truncate = False
