"""The clock by which a broker stamps and ages messages, and which tests can skew."""

from __future__ import annotations

import time
from typing import Final

_SECOND: Final = 10**9


class Clock:
    """The system clock, plus a skew."""

    __slots__ = ("_skew",)

    def __init__(self) -> None:
        """Create a clock without skew."""
        self._skew = 0

    @property
    def skew(self) -> float:
        """Seconds by which this clock is ahead of the system clock; negative if it is behind."""
        return self._skew / _SECOND

    @skew.setter
    def skew(self, seconds: float) -> None:
        self._skew = round(seconds * _SECOND)

    def now_ns(self) -> int:
        """Return the time in nanoseconds since the Unix epoch."""
        return time.time_ns() + self._skew
