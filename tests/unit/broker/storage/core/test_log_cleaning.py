"""Rolling, retention, compaction and truncation of a log, and their effects on readers."""

from __future__ import annotations

import pytest

from liftbridge_aio.broker.errors import BrokerError, Code
from liftbridge_aio.broker.storage.core.log import PartitionLog
from liftbridge_aio.broker.storage.core.reader import (
    LogReader,
    ReadEnd,
    ReadRange,
    open_reader,
)
from liftbridge_aio.broker.storage.core.stream_config import (
    LogLimits,
    StreamConfig,
    cleaner_interval,
)
from liftbridge_aio.model import Message, StartPosition, StopPosition

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


def test_a_full_segment_is_rolled_by_an_append_or_a_cleaning() -> None:
    log = small_segments("abc", per_segment=2)
    assert [segment.count for segment in log.segments] == [2, 1]

    fill(log, "d")
    assert [segment.count for segment in log.segments] == [2, 2]
    log.clean(LATER)
    assert [segment.count for segment in log.segments] == [2, 2, 0]


@pytest.mark.parametrize(("age", "counts"), [(0, [3]), (20, [2, 1]), (21, [3]), (-1, [1, 1, 1])])
def test_a_segment_is_rolled_by_the_age_of_its_first_message(age: int, counts: list[int]) -> None:
    log = small_segments("abc", segment_max_age=age, segment_max_bytes=1_000)
    assert [segment.count for segment in log.segments] == counts


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"retention_max_messages": 3}, [2, 3, 4]),
        ({"retention_max_messages": 0}, [0, 1, 2, 3, 4]),
        ({"retention_max_messages": -1}, [0, 1, 2, 3, 4]),
        ({"retention_max_bytes": 90}, [3, 4]),
        ({"retention_max_bytes": 89}, [4]),
        ({"retention_max_bytes": -1}, [0, 1, 2, 3, 4]),
        ({"retention_max_age": 70}, [2, 3, 4]),
        ({"retention_max_age": 69}, [3, 4]),
        ({"retention_max_age": -1}, [0, 1, 2, 3, 4]),
        ({"retention_max_messages": 3, "retention_max_bytes": 90, "retention_max_age": 70}, [3, 4]),
    ],
)
def test_retention_keeps_what_fits(limits: dict[str, int], expected: list[int]) -> None:
    log = small_segments("abcde", **limits)
    clean(log, now=100)
    assert kept(log) == expected


def test_retention_deletes_whole_segments_and_never_the_last() -> None:
    log = small_segments("abcde", per_segment=2, retention_max_messages=2)
    log.clean(50)
    assert kept(log) == [4]

    fill(log, "f")
    log.clean(60)  # rolls, and does nothing else
    assert kept(log) == [4, 5]
    log.clean(60)
    assert kept(log) == [4, 5]


def test_compaction_retains_the_last_of_each_key_and_all_without() -> None:
    log = small_segments("ab-a-bca", compact=1)
    clean(log)
    assert kept(log) == [2, 4, 5, 6, 7]


def test_compaction_leaves_the_active_segment_but_counts_its_keys() -> None:
    log = small_segments("aab" + "aa", per_segment=3, compact=1)
    clean(log)
    assert kept(log) == [2, 3, 4]


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


def test_a_reader_in_a_deleted_segment_ends_at_the_next_message() -> None:
    log = small_segments("a", retention_max_age=5)
    reader = LogReader(log, 0)
    assert len(reader.poll(10)) == 1  # type: ignore[arg-type]

    clean(log)
    assert reader.poll(10) == []
    fill(log, "b")
    assert reader.poll(10) is ReadEnd.SEGMENT_REMOVED


def test_a_reader_in_a_compacted_segment_continues() -> None:
    log = small_segments("ab", retention_max_messages=2, compact=1)
    reader = LogReader(log, 0)
    reader.poll(1)
    clean(log)
    fill(log, "cd")
    clean(log)

    assert kept(log) == [2, 3]
    assert [message.offset for message in reader.poll(10)] == [2, 3]  # type: ignore[union-attr]


def test_after_a_truncation_offsets_are_read_again() -> None:
    log = small_segments("abcd", per_segment=10)
    reader = LogReader(log, 0)
    reader.poll(10)

    log.truncate(2)
    assert reader.poll(10) == []
    fill(log, "x")

    assert [message.key for message in reader.poll(10)] == [b"x"]  # type: ignore[union-attr]


def test_a_compacted_stop_offset_does_not_end_the_reading() -> None:
    log = small_segments("aab", compact=1)
    clean(log)
    reader = LogReader(log, 0, stop=0)
    assert [message.offset for message in reader.poll(10)] == [1, 2]  # type: ignore[union-attr]
    assert reader.poll(10) == []


@pytest.mark.parametrize(
    ("count", "found"), [(1, []), (2, [0]), (3, [0, 1]), (4, [0, 1]), (5, [0, 1, 2])]
)
def test_an_empty_last_segment_hides_the_later_half_from_searches_by_time(
    count: int, found: list[int]
) -> None:
    log = small_segments("a" * count)
    log.clean(LATER)
    for offset in range(count):
        timestamp = 10 * (offset + 1)
        is_found = offset in found
        assert log.earliest_offset_from(timestamp) == (offset if is_found else count)
        wanted = ReadRange(
            StartPosition.EARLIEST, stop=StopPosition.TIMESTAMP, stop_timestamp=timestamp
        )
        if is_found:
            assert log.latest_offset_until(timestamp) == offset
        else:
            with pytest.raises(BrokerError) as refused:
                open_reader(log, wanted)
            assert (refused.value.code, refused.value.text) == (
                Code.INTERNAL,
                (
                    "Failed to lookup offset for timestamp: "
                    "failed to find log segment for timestamp: EOF"
                ),
            )


def test_a_time_between_the_last_two_segments_means_the_end() -> None:
    log = small_segments("abcd")
    assert [log.earliest_offset_from(time) for time in (11, 21, 31, 41)] == [1, 2, 4, 4]


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
