"""Reading backwards, as servers newer than v1.9 do."""

from __future__ import annotations

import pytest

from liftbridge_aio.broker.errors import BrokerError, Code
from liftbridge_aio.broker.storage.core.log import PartitionLog
from liftbridge_aio.broker.storage.core.reader import (
    ReadEnd,
    Reader,
    ReadRange,
    open_reader,
)
from liftbridge_aio.broker.storage.core.stream_config import LogLimits
from liftbridge_aio.model import Message, StartPosition, StopPosition

LIMITS = LogLimits(segment_max_bytes=3 * 45, compact=True, retention_max_age=0, segment_max_age=0)
"""Three messages per segment."""


def log_of(keys: str) -> PartitionLog:
    log = PartitionLog(limits=LIMITS)
    for key in keys:
        log.commit(log.append(Message("s", 0, 0, key.encode(), b"", 10 * log.next_offset)))
    return log


def read(reader: Reader, limit: int) -> tuple[list[int], ReadEnd]:
    offsets: list[int] = []
    while not isinstance(batch := reader.poll(limit), ReadEnd):
        assert 0 < len(batch) <= limit
        offsets += [message.offset for message in batch]
    return offsets, batch


def backwards(start: int, **positions: int) -> ReadRange:
    return ReadRange(start, reverse=True, **positions)


@pytest.mark.parametrize("limit", [1, 2, 100])
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (backwards(StartPosition.LATEST), [7, 6, 5, 4, 3, 2, 1, 0]),
        (backwards(StartPosition.NEW_ONLY), [7, 6, 5, 4, 3, 2, 1, 0]),
        (backwards(StartPosition.OFFSET, start_offset=5), [5, 4, 3, 2, 1, 0]),
        (backwards(StartPosition.OFFSET, start_offset=999), [7, 6, 5, 4, 3, 2, 1, 0]),
        (backwards(StartPosition.EARLIEST), [0]),
        (backwards(StartPosition.TIMESTAMP, start_timestamp=20), [2, 1, 0]),
    ],
)
def test_it_reads_from_the_start_to_the_beginning(
    wanted: ReadRange, expected: list[int], limit: int
) -> None:
    assert read(open_reader(log_of("abcdefgh"), wanted), limit) == (expected, ReadEnd.EOF)


def test_a_stop_is_only_accepted_at_or_above_the_start() -> None:
    log = log_of("abcd")
    last = backwards(StartPosition.OFFSET, start_offset=2, stop=StopPosition.OFFSET, stop_offset=2)
    assert read(open_reader(log, last), 10) == ([2], ReadEnd.STOP_REACHED)

    below = backwards(StartPosition.OFFSET, start_offset=2, stop=StopPosition.OFFSET, stop_offset=1)
    with pytest.raises(BrokerError) as refused:
        open_reader(log, below)
    assert refused.value.code is Code.INVALID_ARGUMENT


def test_an_empty_log_is_refused() -> None:
    with pytest.raises(BrokerError) as refused:
        open_reader(PartitionLog(), backwards(StartPosition.LATEST))
    assert (refused.value.code, refused.value.text) == (
        Code.INTERNAL,
        "Failed to create stream reader: segment not found",
    )


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (0, [1]),  # the first position of the segment, without offset 0
        (1, [2, 1]),
        (2, []),  # there is no third position, and no segment before
        (3, [3, 2, 1]),
        (7, [7, 6, 5, 4, 3, 2, 1]),
    ],
)
def test_gaps_of_compaction_shift_the_start(start: int, expected: list[int]) -> None:
    log = log_of("abcdeafg")
    log.clean(100)
    wanted = backwards(StartPosition.OFFSET, start_offset=start)
    assert read(open_reader(log, wanted), 2) == (expected, ReadEnd.EOF)


def test_there_is_nothing_before_an_offset_that_is_no_longer_stored() -> None:
    log = PartitionLog(limits=LogLimits(segment_max_bytes=1, retention_max_messages=2))
    for _ in range(4):
        log.commit(log.append(Message("s", 0, 0, b"", b"", 10)))
    log.clean(20)
    log.clean(20)
    wanted = backwards(StartPosition.OFFSET, start_offset=log.oldest_offset - 1)
    assert read(open_reader(log, wanted), 2) == ([], ReadEnd.EOF)


def test_it_ends_where_a_segment_was_rewritten_or_removed() -> None:
    log = log_of("aacdef")
    reader = open_reader(log, backwards(StartPosition.LATEST))
    assert len(reader.poll(3)) == 3  # type: ignore[arg-type]
    log.clean(100)
    log.clean(100)
    assert reader.poll(3) is ReadEnd.BACKWARDS_SEGMENT_REMOVED


def test_it_ends_with_the_log() -> None:
    log = log_of("ab")
    reader = open_reader(log, backwards(StartPosition.LATEST))
    log.close()
    assert reader.poll(3) is ReadEnd.CLOSED
