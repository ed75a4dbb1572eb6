"""Rolling, retention, compaction and truncation of a log, and their effects on readers."""

from __future__ import annotations

import pytest

from liftbridge_aio.broker.storage.core.log import PartitionLog
from liftbridge_aio.broker.storage.core.reader import (
    LogReader,
)
from liftbridge_aio.broker.storage.core.stream_config import (
    LogLimits,
    StreamConfig,
    cleaner_interval,
)
from liftbridge_aio.model import Message

LATER = 10**6
"""A time long after the last message."""


def fill(log: PartitionLog, keys: str) -> None:
    """One committed message for each letter, at the times 10, 20, 30 …; `-` is no key."""
    for key in keys:
        number = log.next_offset
        stored = b"" if key == "-" else key.encode()
        log.commit(log.append(Message("s", 0, 0, stored, b"", 10 * (number + 1))))


def small_segments(keys: str = "", *, per_segment: int = 1, **limits: int) -> PartitionLog:
    """Limits by which a log rolls after this many messages with one-letter keys."""
    compact = bool(limits.pop("compact", 0))
    given = {"retention_max_age": 0, "segment_max_age": 0, "segment_max_bytes": 45 * per_segment}
    log = PartitionLog(limits=LogLimits(**given | limits, compact=compact))
    fill(log, keys)
    return log


def kept(log: PartitionLog) -> list[int]:
    return [message.offset for message in log.read(0, 1_000)]


def clean(log: PartitionLog, now: int = LATER) -> None:
    """Clean until nothing changes."""
    before: list[list[int]] = []
    while (state := [segment.base_offset for segment in log.segments] + kept(log)) not in before:
        before.append(state)
        log.clean(now)


def test_compaction_retains_uncommitted_messages() -> None:
    log = small_segments("ab", compact=1)
    for _ in range(3):
        log.append(Message("s", 0, 0, b"a", b"", 100))
    clean(log)
    assert [message.offset for message in log.read_stored(0, 10)] == [0, 1, 2, 3, 4]


def test_compaction_starts_again_after_a_truncation() -> None:
    log = small_segments("abcde", per_segment=3, compact=1)
    clean(log)
    log.truncate(4)
    fill(log, "a")
    clean(log)
    assert kept(log) == [1, 2, 3, 4]


def test_after_a_truncation_offsets_are_read_again() -> None:
    log = small_segments("abcd", per_segment=10)
    reader = LogReader(log, 0)
    reader.poll(10)

    log.truncate(2)
    assert reader.poll(10) == []
    fill(log, "x")

    assert [message.key for message in reader.poll(10)] == [b"x"]  # type: ignore[union-attr]


def test_retention_moves_the_start_of_the_epoch_that_it_cuts() -> None:
    log = small_segments(retention_max_messages=1)
    for epoch in (1, 2, 3):
        log.begin_epoch(epoch)
        fill(log, "ab")
    log.clean(LATER)
    log.clean(LATER)

    assert log.oldest_offset == 5
    assert [log.end_offset_of(epoch) for epoch in (1, 2, 3)] == [5, 5, 6]


def test_a_follower_learns_the_epochs_of_what_it_copies() -> None:
    leader, follower = PartitionLog(), PartitionLog()
    for epoch in (1, 2):
        leader.begin_epoch(epoch)
        fill(leader, "ab")

    follower.append_replicated(leader.read_stored(0, 1), leader.epochs)
    assert follower.last_epoch == 1
    follower.append_replicated(leader.read_stored(1, 10), leader.epochs)
    assert (follower.last_epoch, follower.end_offset_of(1), follower.end_offset_of(2)) == (2, 2, 4)


def test_limits_default_to_those_of_a_server() -> None:
    week = 7 * 24 * 3600 * 10**9
    assert LogLimits.from_config(StreamConfig()) == LogLimits(
        retention_max_bytes=0,
        retention_max_messages=0,
        retention_max_age=week,
        segment_max_bytes=256 * 1024 * 1024,
        segment_max_age=week,
        compact=False,
    )
    given = StreamConfig(
        retention_max_bytes=1,
        retention_max_messages=2,
        retention_max_age=3,
        segment_max_bytes=0,
        segment_max_age=0,
        compact_enabled=True,
    )
    assert LogLimits.from_config(given) == LogLimits(
        retention_max_bytes=1,
        retention_max_messages=2,
        retention_max_age=3_000_000,
        segment_max_bytes=1024 * 1024 * 1024,
        segment_max_age=0,
        compact=True,
    )


@pytest.mark.parametrize(("given", "seconds"), [(None, 300), (0, 300), (100, 0.1)])
def test_logs_are_cleaned_every_five_minutes_by_default(given: int | None, seconds: float) -> None:
    assert cleaner_interval(StreamConfig(cleaner_interval=given)) == seconds * 10**9
