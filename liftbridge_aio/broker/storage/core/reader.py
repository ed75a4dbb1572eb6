"""Reading a partition from a start position to a stop position, forwards or backwards.

Pure: `poll` never waits; an empty batch means "poll again after the log has changed".
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from liftbridge_aio.broker.errors import BrokerError, Code
from liftbridge_aio.model import Message, StartPosition, StopPosition

from .log import NO_OFFSET, LogState, PartitionLog
from .segment import Segment
from .timestamp_lookup import LookupFailed

_NEVER: Final = -1


class ReadEnd(enum.Enum):
    """Reasons why a reader has ended; the values are a real server's texts."""

    STOP_REACHED = "Stop offset reached"
    READONLY = "End of readonly partition"
    CLOSED = "commit log was closed"
    DELETED = "commit log was deleted"
    SEGMENT_REMOVED = "failed to read message headers: segment has been closed"
    """The current segment was removed, even if the reader had read all of it."""
    BACKWARDS_SEGMENT_REMOVED = "segment has been closed"
    """The same for a reverse reader."""
    EOF = "EOF"
    """A reverse reader has reached the beginning."""


@dataclass(frozen=True, slots=True)
class ReadRange:
    """The requested start and stop of a subscription; positions may be unknown numbers."""

    start: int = StartPosition.NEW_ONLY
    start_offset: int = 0
    start_timestamp: int = 0
    stop: int = StopPosition.ON_CANCEL
    stop_offset: int = 0
    stop_timestamp: int = 0
    reverse: bool = False
    """Read backwards, as servers after v1.9 can."""


class Reader(Protocol):
    """A position in a log."""

    def poll(self, limit: int) -> Sequence[Message] | ReadEnd:
        """Return up to `limit` messages that are available, or the reason why there are no more."""


class LogReader:
    """Reads a log forwards."""

    def __init__(self, log: PartitionLog, start: int, stop: int = _NEVER) -> None:
        """Create a reader that begins at `start`.

        As on a real server, a start that is not committed yet means the message after the current
        high watermark, one that is no longer stored means the oldest message, and only the offset
        `stop` itself ends the reading, a later one does not.
        """
        waits = start > log.high_watermark or log.oldest_offset == NO_OFFSET
        self._next = log.high_watermark + 1 if waits else start
        self._reads_from: Segment | None = None if waits else log.segment_of(start)
        self._log = log
        self._stop = stop
        self._stopped = False

    def poll(self, limit: int) -> Sequence[Message] | ReadEnd:
        """Return up to `limit` messages that are available, or the reason why there are no more."""
        if self._stopped:
            return ReadEnd.STOP_REACHED
        log = self._log
        if log.state is not LogState.OPEN:
            return _ENDS[log.state]
        # After a truncation, offsets that were read are read again.
        self._next = min(self._next, log.high_watermark + 1)
        batch = log.read(self._next, limit)
        removed = self._reads_from is not None and log.was_removed(self._reads_from)
        if removed and (batch or self._next <= log.high_watermark):
            return ReadEnd.SEGMENT_REMOVED
        if not batch:
            at_end = log.high_watermark == log.newest_offset
            return ReadEnd.READONLY if log.readonly and at_end else batch
        if batch[0].offset <= self._stop <= batch[-1].offset:
            batch = self._cut(batch)
        self._next = batch[-1].offset + 1
        self._reads_from = log.segment_of(batch[-1].offset)
        return batch

    def _cut(self, batch: Sequence[Message]) -> Sequence[Message]:
        for index, message in enumerate(batch):
            if message.offset == self._stop:
                self._stopped = True
                return batch[: index + 1]
        return batch


class ReverseReader:
    """Reads a log backwards, over the segments that exist when it begins."""

    def __init__(self, log: PartitionLog, start: int, stop: int = _NEVER) -> None:
        """Create a reader that begins at `start`, or at the high watermark if that is lower.

        As on a real server, `start` is treated as a position in its segment, counted from the
        segment's base offset: where compaction left gaps, reading begins with a later message, or
        in the previous segment. There is nothing to read before an offset that is no longer stored.

        Raises:
            BrokerError: nothing is committed.
        """
        if log.high_watermark == NO_OFFSET:
            raise BrokerError(Code.INTERNAL, "Failed to create stream reader: segment not found")
        start = min(start, log.high_watermark)
        self._log = log
        self._stop = stop
        self._end: ReadEnd | None = None
        self._left = _segments_until(log.segments, start)
        self._next = _offset_at(self._left[-1], start)

    def poll(self, limit: int) -> Sequence[Message] | ReadEnd:
        """Return up to `limit` messages, or the reason why there are no more."""
        if self._end is not None:
            return self._end
        if self._log.state is not LogState.OPEN:
            return _ENDS[self._log.state]
        batch: Sequence[Message] = ()
        while self._left and not batch:
            segment = self._left[-1]
            if segment not in self._log.segments:
                return ReadEnd.BACKWARDS_SEGMENT_REMOVED
            lowest = max(self._next - limit + 1, segment.base_offset)
            batch = segment.read(lowest, limit, self._next + 1)
            self._next = lowest - 1
            if self._next < segment.base_offset:
                self._left.pop()
                self._next = _last_offset(self._left[-1]) if self._left else NO_OFFSET
        return self._cut(batch[::-1]) if batch else ReadEnd.EOF

    def _cut(self, batch: Sequence[Message]) -> Sequence[Message]:
        for index, message in enumerate(batch):
            if message.offset == self._stop:
                self._end = ReadEnd.STOP_REACHED
                return batch[: index + 1]
        return batch


def _segments_until(segments: Sequence[Segment], start: int) -> list[Segment]:
    """Return the segments up to the first that ends with `start` or later."""
    until = 0
    while until < len(segments) - 1 and _last_offset(segments[until]) < start:
        until += 1
    return list(segments[: until + 1])


def _last_offset(segment: Segment) -> int:
    return segment.base_offset - 1 if segment.last_offset is None else segment.last_offset


def _offset_at(segment: Segment, start: int) -> int:
    """Return the offset of the message at position `start - base_offset` of a segment.

    Without such a message, return the offset before the segment.
    """
    position = start - segment.base_offset
    if not 0 <= position < segment.count:
        return segment.base_offset - 1
    return segment.read(segment.base_offset, position + 1, segment.next_offset)[-1].offset


_ENDS: Final = {LogState.CLOSED: ReadEnd.CLOSED, LogState.DELETED: ReadEnd.DELETED}


def open_reader(log: PartitionLog, requested: ReadRange) -> Reader:
    """Resolve positions to offsets and create a reader.

    Raises:
        BrokerError: a position is unknown or cannot be found, the stop is before the start, even
            of a reverse reader, or the log is closed and has the start.
    """
    try:
        start = _start_offset(log, requested)
        stop = _stop_offset(log, requested)
    except LookupFailed as error:
        raise BrokerError(
            Code.INTERNAL, f"Failed to lookup offset for timestamp: {error}"
        ) from error
    if stop != _NEVER and stop < start:
        raise BrokerError(
            Code.INVALID_ARGUMENT, f"Stop offset is before start offset: {stop} < {start}"
        )
    if requested.reverse:
        return ReverseReader(log, start, stop)
    holds_start = start <= log.high_watermark and log.oldest_offset != NO_OFFSET
    if log.state is LogState.CLOSED and holds_start:
        # Otherwise the first read fails, as on a real server.
        raise BrokerError(Code.INTERNAL, "Failed to create stream reader: segment has been closed")
    return LogReader(log, start, stop)


def _start_offset(log: PartitionLog, requested: ReadRange) -> int:
    match requested.start:
        case StartPosition.OFFSET:
            start = requested.start_offset
        case StartPosition.TIMESTAMP:
            start = log.earliest_offset_from(requested.start_timestamp)
        case StartPosition.EARLIEST:
            start = log.oldest_offset
        case StartPosition.LATEST:
            start = log.newest_offset
        case StartPosition.NEW_ONLY:
            start = log.next_offset
        case _:
            raise BrokerError(Code.INVALID_ARGUMENT, f"Unknown StartPosition {requested.start}")
    return max(start, 0)


def _stop_offset(log: PartitionLog, requested: ReadRange) -> int:
    match requested.stop:
        case StopPosition.ON_CANCEL:
            return log.newest_offset if log.readonly else _NEVER
        case StopPosition.OFFSET:
            return requested.stop_offset
        case StopPosition.TIMESTAMP:
            return log.latest_offset_until(requested.stop_timestamp)
        case StopPosition.LATEST:
            if log.newest_offset == NO_OFFSET:
                raise BrokerError(Code.RESOURCE_EXHAUSTED, "Stream is empty")
            return log.newest_offset
        case _:
            raise BrokerError(Code.INVALID_ARGUMENT, f"Unknown StopPosition {requested.stop}")
