"""Reading a partition from a start position to a stop position.

Pure: `LogReader.poll` never waits; an empty batch means "ask again after the log has changed".
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from liftbridge_aio.model import Message, StartPosition, StopPosition

from .errors import BrokerError, Code
from .log import NO_OFFSET, LogState, LookupFailed, PartitionLog

_NEVER: Final = -1


class ReadEnd(enum.Enum):
    """Why there is nothing more to read."""

    STOP_REACHED = "stop offset reached"
    READONLY = "end of readonly partition"
    CLOSED = "commit log was closed"
    DELETED = "commit log was deleted"


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Where a subscription begins and ends, as asked for; positions may be unknown numbers."""

    start: int = StartPosition.NEW_ONLY
    start_offset: int = 0
    start_timestamp: int = 0
    stop: int = StopPosition.ON_CANCEL
    stop_offset: int = 0
    stop_timestamp: int = 0


class LogReader:
    """One reader's place in a log."""

    def __init__(self, log: PartitionLog, start: int, stop: int = _NEVER) -> None:
        """Begin before `start`.

        An offset that is not committed yet is not waited for: reading begins with the message
        after the high watermark of this moment (W18). One that is no longer stored means the
        oldest (W19). Only the offset `stop` itself ends the reading, a later one does not (W20).
        """
        waits = start > log.high_watermark or log.oldest_offset == NO_OFFSET
        self._next = log.high_watermark + 1 if waits else start
        self._log = log
        self._stop = stop
        self._stopped = False

    def poll(self, limit: int) -> Sequence[Message] | ReadEnd:
        """Return what can be read now, at most `limit` messages, or why that is the end."""
        if self._stopped:
            return ReadEnd.STOP_REACHED
        if self._log.state is LogState.DELETED:
            return ReadEnd.DELETED
        if self._log.state is LogState.CLOSED:
            return ReadEnd.CLOSED
        batch = self._log.read(self._next, limit)
        if not batch:
            at_end = self._log.high_watermark == self._log.newest_offset
            return ReadEnd.READONLY if self._log.readonly and at_end else batch
        for index, message in enumerate(batch):
            if message.offset == self._stop:
                self._stopped = True
                batch = batch[: index + 1]
                break
        self._next = batch[-1].offset + 1
        return batch


def open_reader(log: PartitionLog, wanted: ReadRange) -> LogReader:
    """Turn positions into offsets and begin to read.

    Raises:
        BrokerError: a position is unknown or cannot be found, the stop lies before the start
            (W21, W22, W23), or the log is closed and holds what is asked for.
    """
    try:
        start = _start_offset(log, wanted)
        stop = _stop_offset(log, wanted)
    except LookupFailed as error:
        text = f"Failed to lookup offset for timestamp: {error}"
        raise BrokerError(Code.INTERNAL, text) from error
    if stop != _NEVER and stop < start:
        text = f"Stop offset is before start offset: {stop} < {start}"
        raise BrokerError(Code.INVALID_ARGUMENT, text)
    if log.state is LogState.CLOSED and start <= log.high_watermark:
        # Behind the high watermark nothing is touched yet: there the first read finds out.
        text = "Failed to create stream reader: segment has been closed"
        raise BrokerError(Code.INTERNAL, text)
    return LogReader(log, start, stop)


def _start_offset(log: PartitionLog, wanted: ReadRange) -> int:
    match wanted.start:
        case StartPosition.OFFSET:
            start = wanted.start_offset
        case StartPosition.TIMESTAMP:
            start = log.earliest_offset_from(wanted.start_timestamp)
        case StartPosition.EARLIEST:
            start = log.oldest_offset
        case StartPosition.LATEST:
            start = log.newest_offset
        case StartPosition.NEW_ONLY:
            start = log.next_offset
        case _:
            text = f"Unknown StartPosition {wanted.start}"
            raise BrokerError(Code.INVALID_ARGUMENT, text)
    return max(start, 0)


def _stop_offset(log: PartitionLog, wanted: ReadRange) -> int:
    match wanted.stop:
        case StopPosition.ON_CANCEL:
            return log.newest_offset if log.readonly else _NEVER
        case StopPosition.OFFSET:
            return wanted.stop_offset
        case StopPosition.TIMESTAMP:
            return log.latest_offset_until(wanted.stop_timestamp)
        case StopPosition.LATEST:
            if log.newest_offset == NO_OFFSET:
                raise BrokerError(Code.RESOURCE_EXHAUSTED, "Stream is empty")
            return log.newest_offset
        case _:
            text = f"Unknown StopPosition {wanted.stop}"
            raise BrokerError(Code.INVALID_ARGUMENT, text)
