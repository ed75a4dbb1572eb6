"""Start and stop positions, and how a subscription ends."""

from __future__ import annotations

import pytest

from liftbridge_aio.broker.errors import BrokerError, Code
from liftbridge_aio.broker.storage.core.log import PartitionLog
from liftbridge_aio.broker.storage.core.reader import (
    LogReader,
    ReadEnd,
    Reader,
    ReadRange,
    open_reader,
)
from liftbridge_aio.model import Message, StartPosition, StopPosition


def log_of(count: int, *, committed: int | None = None) -> PartitionLog:
    """Messages at the times 10, 20, 30 and so on."""
    log = PartitionLog()
    for number in range(count):
        log.append(Message("s", 0, 0, b"", b"", 10 * (number + 1)))
    log.commit(count - 1 if committed is None else committed)
    return log


def read(reader: Reader) -> tuple[list[int], ReadEnd | None]:
    """Return all offsets that are available, and the end if it was reached."""
    offsets: list[int] = []
    while True:
        batch = reader.poll(2)
        if isinstance(batch, ReadEnd):
            return offsets, batch
        if not batch:
            return offsets, None
        offsets += [message.offset for message in batch]


@pytest.mark.parametrize(
    ("start", "offsets"),
    [
        (ReadRange(StartPosition.EARLIEST), [0, 1, 2]),
        (ReadRange(StartPosition.LATEST), [2]),
        (ReadRange(StartPosition.NEW_ONLY), []),
        (ReadRange(StartPosition.OFFSET, start_offset=1), [1, 2]),
        (ReadRange(StartPosition.OFFSET, start_offset=-7), [0, 1, 2]),
        (ReadRange(StartPosition.TIMESTAMP, start_timestamp=20), [1, 2]),
        (ReadRange(StartPosition.TIMESTAMP, start_timestamp=21), [2]),
        (ReadRange(StartPosition.TIMESTAMP, start_timestamp=99), []),
    ],
)
def test_a_reader_starts_where_it_should_and_then_waits(
    start: ReadRange, offsets: list[int]
) -> None:
    assert read(open_reader(log_of(3), start)) == (offsets, None)


@pytest.mark.parametrize(
    ("stop", "offsets"),
    [
        (ReadRange(StartPosition.EARLIEST, stop=StopPosition.LATEST), [0, 1, 2]),
        (ReadRange(StartPosition.EARLIEST, stop=StopPosition.OFFSET, stop_offset=1), [0, 1]),
        (ReadRange(StartPosition.EARLIEST, stop=StopPosition.TIMESTAMP, stop_timestamp=20), [0, 1]),
        (ReadRange(StartPosition.EARLIEST, stop=StopPosition.TIMESTAMP, stop_timestamp=25), [0, 1]),
    ],
)
def test_a_reader_stops_where_it_should(stop: ReadRange, offsets: list[int]) -> None:
    assert read(open_reader(log_of(3), stop)) == (offsets, ReadEnd.STOP_REACHED)


def test_a_start_beyond_the_end_is_not_waited_for() -> None:
    log = log_of(1)
    reader = open_reader(log, ReadRange(StartPosition.OFFSET, start_offset=9))

    log.commit(log.append(Message("s", 0, 0, b"", b"", 20)))

    assert read(reader) == ([1], None)  # not the start that lies ahead


def test_only_committed_messages_are_read() -> None:
    assert read(open_reader(log_of(3, committed=1), ReadRange(StartPosition.EARLIEST))) == (
        [0, 1],
        None,
    )


def test_a_stop_below_the_start_never_ends_the_reading() -> None:
    log = log_of(1)
    reader = LogReader(log, start=5, stop=0)
    log.commit(log.append(Message("s", 0, 0, b"", b"", 20)))

    assert read(reader) == ([1], None)


def test_a_log_that_turns_readonly_ends_after_its_last_message() -> None:
    log = log_of(3)
    reader = open_reader(log, ReadRange(StartPosition.EARLIEST))
    log.set_readonly(True)

    assert read(reader) == ([0, 1, 2], ReadEnd.READONLY)


def test_a_readonly_log_ends_as_with_a_stop_offset() -> None:
    log = log_of(3)
    log.set_readonly(True)

    assert read(open_reader(log, ReadRange(StartPosition.EARLIEST))) == (
        [0, 1, 2],
        ReadEnd.STOP_REACHED,
    )


@pytest.mark.parametrize(
    ("count", "wanted", "code", "text"),
    [
        (
            3,
            ReadRange(stop=StopPosition.LATEST),
            Code.INVALID_ARGUMENT,
            "Stop offset is before start offset: 2 < 3",
        ),
        (0, ReadRange(stop=StopPosition.LATEST), Code.RESOURCE_EXHAUSTED, "Stream is empty"),
        (
            0,
            ReadRange(stop=StopPosition.TIMESTAMP, stop_timestamp=5),
            Code.INTERNAL,
            "Failed to lookup offset for timestamp: failed to find log segment for timestamp: EOF",
        ),
        (
            3,
            ReadRange(stop=StopPosition.TIMESTAMP, stop_timestamp=5),
            Code.INTERNAL,
            "Failed to lookup offset for timestamp: timestamp is before the beginning of the log",
        ),
        (3, ReadRange(start=9), Code.INVALID_ARGUMENT, "Unknown StartPosition 9"),
        (3, ReadRange(stop=9), Code.INVALID_ARGUMENT, "Unknown StopPosition 9"),
    ],
)
def test_invalid_ranges_are_refused(count: int, wanted: ReadRange, code: Code, text: str) -> None:
    with pytest.raises(BrokerError) as refused:
        open_reader(log_of(count), wanted)

    assert (refused.value.code, refused.value.text) == (code, text)


@pytest.mark.parametrize(
    ("start", "text"),
    [
        (StartPosition.EARLIEST, "Failed to create stream reader: segment has been closed"),
        (
            StartPosition.TIMESTAMP,
            (
                "Failed to lookup offset for timestamp: failed to find log segment for timestamp:"
                " segment has been closed"
            ),
        ),
    ],
)
def test_a_closed_log_refuses_stored_offsets(start: StartPosition, text: str) -> None:
    log = log_of(3)
    log.close()

    with pytest.raises(BrokerError) as refused:
        open_reader(log, ReadRange(start))
    assert (refused.value.code, refused.value.text) == (Code.INTERNAL, text)
    assert read(open_reader(log, ReadRange())) == ([], ReadEnd.CLOSED)
