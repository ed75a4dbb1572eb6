"""How a follower gets what its leader has (pure).

A follower asks with the offset that it has reached, and is given what follows and the leader's
high watermark. So a leader learns from the next request that messages have arrived, commits them,
and the follower hears of that with the answer after: its high watermark lags by one round.
"""

from __future__ import annotations

from typing import Final

from .partition import Partition

_BATCH: Final = 1_000  # messages


def fetch(leader: Partition, follower: Partition, server_id: str, now: int) -> bool:
    """Let a follower fetch once.

    Args:
        leader: the leader's side of the partition.
        follower: the follower's side.
        server_id: the follower's broker.
        now: Unix nanoseconds.

    Returns:
        Whether another round would bring something new to any replica.
    """
    leading = leader.leading
    if leading is None or not follower.is_following or follower.leader_epoch != leader.leader_epoch:
        return False
    follower.leader_seen = now
    if follower.must_truncate:
        _truncate(leader, follower)
    log = follower.log
    progress = leading.followers[server_id]
    progress.seen = now
    before = leader.log.high_watermark
    if progress.newest_offset != log.newest_offset:
        progress.newest_offset = log.newest_offset
        leader.advance(now)
    high_watermark = leader.log.high_watermark
    batch = leader.log.read_stored(log.next_offset, _BATCH)
    if batch:
        log.append_replicated(batch, leader.log.epochs)
    else:
        progress.caught_up = now
    log.commit(high_watermark)
    # Where the leader has just committed something, its other followers have yet to hear of it.
    return bool(batch) or high_watermark > before


def _truncate(leader: Partition, follower: Partition) -> None:
    # Both have the same up to where the last epoch ended that both know of; what this follower has
    # beyond was never committed. A real server asks for the end of the follower's last epoch: if
    # the leader never heard of that one, both may keep different messages before the end it tells.
    log = follower.log
    epoch = log.epochs.last_shared(leader.log.epochs)
    log.truncate(min(leader.log.end_offset_of(epoch), log.end_offset_of(epoch)))
    follower.must_truncate = False
