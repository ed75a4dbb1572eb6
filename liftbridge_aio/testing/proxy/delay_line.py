"""The bytes in transit through a connection, with delay and rate limit. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Final

UNDELAYED_BYTES: Final = 64 * 1024
"""The maximum of bytes in transit on a connection without delay."""
_MERGED_WITHIN: Final = 0.001
"""Bytes due within this many seconds are merged, which bounds the number of pieces."""
_BURST_SECONDS: Final = 0.05
"""Seconds of idle time for which a throttled connection accumulates allowance."""
_QUANTUM_SECONDS: Final = 0.01
"""Bytes that a throttled connection forwards at once."""
_ROUNDING: Final = 1e-9
"""Seconds by which a computed time may be early: without them the last byte could be short of a
trillionth of its allowance, at a time that is the next one, too."""


@dataclass(slots=True)
class Conditions:
    """The current faults of one direction of all connections of a proxy."""

    frozen: bool = False
    """True to hold all bytes."""
    swallowing: bool = False
    """True to discard all bytes."""
    delay: float = 0.0
    """The minimum delay of a byte in seconds."""
    jitter: float = 0.0
    """The maximum of the random additional delay in seconds."""
    bytes_per_second: float | None = None
    """The rate limit of each connection; None for no limit."""

    def heal(self) -> None:
        """Reset to a connection without faults."""
        self.frozen = self.swallowing = False
        self.delay = self.jitter = 0.0
        self.bytes_per_second = None


@dataclass(slots=True)
class _Piece:
    data: bytearray
    arrived: float
    chance: float  # the fraction of the jitter that applies


class DelayLine:
    """The bytes of one direction of a connection, first in, first out at any delay.

    Conditions may change at any time and apply to bytes already in the line.
    """

    def __init__(self, conditions: Conditions, random: Random, delayed_bytes: int) -> None:
        """Create an empty line that holds up to `delayed_bytes` while there is a delay."""
        self._conditions = conditions
        self._random = random
        self._delayed_bytes = delayed_bytes
        self._pieces: deque[_Piece] = deque()
        self._credit = 0.0  # bytes that the rate limit allows now
        self._credited_at = 0.0
        self.size = 0
        """Bytes held."""

    @property
    def full(self) -> bool:
        """True if no more bytes are accepted, so that the sender has to wait."""
        delaying = self._conditions.delay or self._conditions.jitter
        return self.size >= (self._delayed_bytes if delaying else UNDELAYED_BYTES)

    def push(self, data: bytes, now: float) -> None:
        """Add bytes."""
        self.size += len(data)
        if self._pieces and now - self._pieces[-1].arrived < _MERGED_WITHIN:
            self._pieces[-1].data += data
        else:
            self._pieces.append(_Piece(bytearray(data), now, self._random.random()))

    def pop(self, now: float) -> bytes:
        """Remove and return the bytes that are due."""
        room = self._room(now)
        out = bytearray()
        while self._pieces and room > len(out) and self._due(self._pieces[0]) <= now:
            piece = self._pieces[0].data
            wanted = room - len(out)
            out += piece[:wanted]
            if wanted < len(piece):
                del piece[:wanted]
            else:
                self._pieces.popleft()
        self.size -= len(out)
        if self._conditions.bytes_per_second is not None:
            self._credit -= len(out)
        return bytes(out)

    def ready_at(self, now: float) -> float | None:
        """Return the time at which the next bytes are due; None if the line is empty."""
        if not self._pieces:
            return None
        due = self._due(self._pieces[0])
        rate = self._conditions.bytes_per_second
        if rate is None:
            return due
        self._room(now)
        wanted = min(len(self._pieces[0].data), max(1, int(rate * _QUANTUM_SECONDS)))
        return max(due, now + (wanted - self._credit) / rate)

    def clear(self) -> int:
        """Discard all bytes and return their number."""
        lost, self.size = self.size, 0
        self._pieces.clear()
        return lost

    def _due(self, piece: _Piece) -> float:
        return piece.arrived + self._conditions.delay + self._conditions.jitter * piece.chance

    def _room(self, now: float) -> int:
        rate = self._conditions.bytes_per_second
        passed, self._credited_at = now - self._credited_at, now
        if rate is None:
            self._credit = 0.0
            return self.size
        burst = max(1.0, rate * _BURST_SECONDS)
        self._credit = min(burst, self._credit + passed * rate)
        return int(self._credit + rate * _ROUNDING)
