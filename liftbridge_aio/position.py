"""Where a reading of one partition stands: what to deliver, what to drop, when to stop.

Servers repeat messages after a failover, start below the offset that was asked for (W18) and do
not always end a bounded reading (W20), so the decision is taken here, once per message. Pure.
"""

from __future__ import annotations

import enum
from typing import Final

_REMEMBERED: Final = 1024
"""How many timestamps of delivered messages are kept to recognise a repeat; a power of two."""
_MASK: Final = _REMEMBERED - 1


class Verdict(enum.Enum):
    """What to do with a message."""

    DELIVER = "deliver"
    DELIVER_LAST = "deliver last"
    """Deliver it, then end: it is the stop position."""
    DROP = "drop"
    """Below the start, or a repeat."""
    STOP = "stop"
    """Beyond the stop position: end without it."""
    RESET = "reset"
    """Another message than the one that was delivered from this offset."""


class Position:
    """Position of a reading towards higher offsets.

    Args:
        start: the first offset wanted; None where that is not known as an offset.
        stop_offset: the last offset wanted.
        stop_timestamp: messages younger than this (Unix nanoseconds) are not wanted.
    """

    def __init__(
        self,
        start: int | None = None,
        *,
        stop_offset: int | None = None,
        stop_timestamp: int | None = None,
    ) -> None:
        self.stop_offset = stop_offset
        self.stop_timestamp = stop_timestamp
        self.last: int | None = None
        """The last offset delivered."""
        self._start = start
        self._floor = -1 if start is None else start - 1
        self._offsets = [-1] * _REMEMBERED
        self._timestamps = [0] * _REMEMBERED

    @property
    def next(self) -> int | None:
        """The offset to ask for when the reading is resumed; None: as at the beginning."""
        return self._start if self.last is None else self.last + 1

    @property
    def empty(self) -> bool:
        """Whether the reading was to end at the newest message of a partition without any."""
        return self.stop_offset == -1

    @property
    def finished(self) -> bool:
        """Whether nothing that is wanted can lie ahead."""
        return self.stop_offset is not None and self._floor >= self.stop_offset

    def judge(self, offset: int, timestamp: int) -> Verdict:
        """Decide about the next message from the server and move on."""
        if offset <= self._floor:
            slot = offset & _MASK
            if self._offsets[slot] == offset and self._timestamps[slot] != timestamp:
                return Verdict.RESET
            return Verdict.DROP
        stop = self.stop_offset
        if stop is not None and offset > stop:
            return Verdict.STOP
        if self.stop_timestamp is not None and timestamp > self.stop_timestamp:
            return Verdict.STOP
        self._floor = self.last = offset
        slot = offset & _MASK
        self._offsets[slot] = offset
        self._timestamps[slot] = timestamp
        return Verdict.DELIVER_LAST if offset == stop else Verdict.DELIVER


class ReversePosition:
    """Position of a reading towards lower offsets; the same face as `Position`.

    Args:
        start: the highest offset wanted.
        stop_offset: the lowest offset wanted.
        stop_timestamp: messages older than this (Unix nanoseconds) are not wanted.
    """

    def __init__(
        self, start: int, *, stop_offset: int | None = None, stop_timestamp: int | None = None
    ) -> None:
        self.stop_offset = stop_offset
        self.stop_timestamp = stop_timestamp
        self.last: int | None = None
        """The last offset delivered."""
        self._ceiling = start + 1

    @property
    def next(self) -> int | None:
        """The offset to ask for when the reading is resumed."""
        return max(self._ceiling - 1, 0)

    @property
    def empty(self) -> bool:
        """Whether the partition has no message to begin with."""
        return self._ceiling == 0 and self.last is None

    @property
    def finished(self) -> bool:
        """Whether nothing that is wanted can lie ahead."""
        return self._ceiling <= (self.stop_offset or 0)

    def judge(self, offset: int, timestamp: int) -> Verdict:
        """Decide about the next message from the server and move on."""
        if offset >= self._ceiling:
            return Verdict.DROP
        stop = self.stop_offset
        if stop is not None and offset < stop:
            return Verdict.STOP
        if self.stop_timestamp is not None and timestamp < self.stop_timestamp:
            return Verdict.STOP
        self._ceiling = self.last = offset
        return Verdict.DELIVER_LAST if offset in {0, stop} else Verdict.DELIVER
