"""The clock that a broker stamps and ages messages by, which tests may set wrong."""

from __future__ import annotations

import time
from typing import Final

_SECOND: Final = 10**9


class Clock:
    """The system's time, off by as much as wanted."""

    __slots__ = ("_skew",)

    def __init__(self) -> None:
        """Begin with the right time."""
        self._skew = 0

    @property
    def skew(self) -> float:
        """By how many seconds this clock is ahead of the system's; negative if it is behind."""
        return self._skew / _SECOND

    @skew.setter
    def skew(self, seconds: float) -> None:
        self._skew = round(seconds * _SECOND)

    def now_ns(self) -> int:
        """Return the time in nanoseconds since the Unix epoch."""
        return time.time_ns() + self._skew
