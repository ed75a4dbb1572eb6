"""The position in one partition: decides what to deliver, what to drop, and when to stop. Pure.

Servers repeat messages after a failover, may start below the requested offset, and do not always
end a bounded subscription (tests/contract/README.md), so each message is judged here.

Many messages are judged at a time. Nearly always all of them are wanted, which must cost next to
nothing; all other cases are judged message by message.
"""

from __future__ import annotations

import enum
from array import array
from operator import gt, lt
from typing import Final

_REMEMBERED: Final = 1024
"""Timestamps of delivered messages that are kept to recognise repeats; a power of two."""
_MASK: Final = _REMEMBERED - 1


class Verdict(enum.Enum):
    """The decision about a message."""

    DELIVER = "deliver"
    DELIVER_LAST = "deliver last"
    """Deliver it, then end: it is the stop position."""
    DROP = "drop"
    """Below the start, or a repeat."""
    STOP = "stop"
    """Beyond the stop position: end without it."""
    RESET = "reset"
    """It is not the message that was delivered from this offset before."""


ENDING: Final = frozenset({Verdict.DELIVER_LAST, Verdict.STOP, Verdict.RESET})
"""Verdicts after which nothing more is judged."""


class _Remembered:
    """The timestamps of the messages delivered last, by offset.

    Arrays, because two lists of as many numbers would take 80 KiB of each quiet subscription; none
    before there is something to remember.
    """

    __slots__ = ("_offsets", "_timestamps")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._timestamps = array("q")

    def add(self, offset: int, timestamp: int) -> None:
        """Remember a message."""
        slot = offset & _MASK
        self._arrays()[slot] = offset
        self._timestamps[slot] = timestamp

    def add_all(self, offsets: list[int], timestamps: list[int]) -> None:
        """Remember many messages, whose offsets rise."""
        if offsets[-1] - offsets[0] >= len(offsets):
            for offset, timestamp in zip(offsets, timestamps, strict=True):
                self.add(offset, timestamp)
            return
        known = self._arrays()
        offsets, timestamps = offsets[-_REMEMBERED:], timestamps[-_REMEMBERED:]
        first = offsets[0] & _MASK
        before_end = _REMEMBERED - first
        for ring, numbers in (
            (known, array("q", offsets)),
            (self._timestamps, array("q", timestamps)),
        ):
            ring[first : first + len(numbers)] = numbers[:before_end]
            if len(numbers) > before_end:
                ring[: len(numbers) - before_end] = numbers[before_end:]

    def contradicts(self, offset: int, timestamp: int) -> bool:
        """Return True if another message was delivered from this offset."""
        slot = offset & _MASK
        known = self._offsets
        return bool(known) and known[slot] == offset and self._timestamps[slot] != timestamp

    def _arrays(self) -> array[int]:
        if not self._offsets:
            self._offsets = array("q", [-1]) * _REMEMBERED
            self._timestamps = array("q", [0]) * _REMEMBERED
        return self._offsets


class Position:
    """Position of a reader towards higher offsets.

    Args:
        start: the first offset wanted; None if that is not known as an offset.
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
        self._remembered = _Remembered()

    @property
    def next(self) -> int | None:
        """The offset at which to resume; None: as at the beginning."""
        return self._start if self.last is None else self.last + 1

    @property
    def empty(self) -> bool:
        """True if it was to end at the newest message of an empty partition."""
        return self.stop_offset == -1

    @property
    def finished(self) -> bool:
        """True if no wanted message can follow."""
        return self.stop_offset is not None and self._floor >= self.stop_offset

    def wants(self, offset: int, timestamp: int) -> bool:
        """Return True if a message would be delivered if it came next."""
        return (
            offset > self._floor
            and (self.stop_offset is None or offset <= self.stop_offset)
            and (self.stop_timestamp is None or timestamp <= self.stop_timestamp)
        )

    def judge(self, offset: int, timestamp: int) -> Verdict:
        """Decide about the next message from the server and move on."""
        if offset <= self._floor:
            repeats = not self._remembered.contradicts(offset, timestamp)
            return Verdict.DROP if repeats else Verdict.RESET
        stop = self.stop_offset
        if stop is not None and offset > stop:
            return Verdict.STOP
        if self.stop_timestamp is not None and timestamp > self.stop_timestamp:
            return Verdict.STOP
        self._floor = self.last = offset
        self._remembered.add(offset, timestamp)
        return Verdict.DELIVER_LAST if offset == stop else Verdict.DELIVER

    def judge_all(self, offsets: list[int], timestamps: list[int]) -> list[Verdict] | None:
        """Decide about the next messages from the server, and move on.

        Returns:
            None where all of them are to be delivered and more may come; else the verdicts, up to
            and including the first that ends the subscription.
        """
        if not offsets:
            return None
        stop, stop_timestamp = self.stop_offset, self.stop_timestamp
        if (
            offsets[0] > self._floor
            and all(map(lt, offsets, offsets[1:]))
            and (stop is None or offsets[-1] <= stop)
            and (stop_timestamp is None or max(timestamps) <= stop_timestamp)
        ):
            self._floor = self.last = offsets[-1]
            self._remembered.add_all(offsets, timestamps)
            if offsets[-1] != stop:
                return None
            return [Verdict.DELIVER] * (len(offsets) - 1) + [Verdict.DELIVER_LAST]
        return _one_by_one(self, offsets, timestamps)


class ReversePosition:
    """Position of a reader towards lower offsets; same interface as `Position`.

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
    def next(self) -> int:
        """The offset at which to resume."""
        return max(self._ceiling - 1, 0)

    @property
    def empty(self) -> bool:
        """True if the partition has no message."""
        return self._ceiling == 0 and self.last is None

    @property
    def finished(self) -> bool:
        """True if no wanted message can follow."""
        return self._ceiling <= (self.stop_offset or 0)

    def wants(self, offset: int, timestamp: int) -> bool:
        """Return True if a message would be delivered if it came next."""
        return (
            offset < self._ceiling
            and offset >= (self.stop_offset or 0)
            and (self.stop_timestamp is None or timestamp >= self.stop_timestamp)
        )

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

    def judge_all(self, offsets: list[int], timestamps: list[int]) -> list[Verdict] | None:
        """Decide about the next messages from the server, and move on.

        Returns:
            None where all of them are to be delivered and more may come; else the verdicts, up to
            and including the first that ends the subscription.
        """
        if not offsets:
            return None
        oldest = self.stop_timestamp
        if (
            offsets[0] < self._ceiling
            and all(map(gt, offsets, offsets[1:]))
            and offsets[-1] > (self.stop_offset or 0)
            and (oldest is None or min(timestamps) >= oldest)
        ):
            self._ceiling = self.last = offsets[-1]
            return None
        return _one_by_one(self, offsets, timestamps)


def _one_by_one(
    position: Position | ReversePosition, offsets: list[int], timestamps: list[int]
) -> list[Verdict] | None:
    verdicts: list[Verdict] = []
    for offset, timestamp in zip(offsets, timestamps, strict=True):
        verdict = position.judge(offset, timestamp)
        verdicts.append(verdict)
        if verdict in ENDING:
            return verdicts
    return None if all(verdict is Verdict.DELIVER for verdict in verdicts) else verdicts
