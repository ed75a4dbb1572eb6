"""Measures the rate of copying."""

from __future__ import annotations

from collections import deque
from typing import Final

_SPAN: Final = 10.0
"""Seconds over which the rate is measured."""
_STEP: Final = 0.25
"""Seconds between two samples."""


class Rate:
    """The rate at which a count grows.

    Args:
        now: seconds on any clock that does not go back.
    """

    def __init__(self, now: float) -> None:
        self._samples: deque[tuple[float, int]] = deque([(now, 0)])

    def note(self, count: int, now: float) -> None:
        """Note a count."""
        samples = self._samples
        if now - samples[-1][0] >= _STEP:
            samples.append((now, count))
            self._forget(now)

    def per_second(self, count: int, now: float) -> float:
        """Return the rate over the last 10 seconds."""
        self._forget(now)
        then, before = self._samples[0]
        return (count - before) / (now - then) if now > then else 0.0

    def _forget(self, now: float) -> None:
        samples = self._samples
        while len(samples) > 1 and samples[1][0] <= now - _SPAN:
            samples.popleft()
