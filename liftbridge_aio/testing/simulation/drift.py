"""Clocks of simulated hosts that run too fast or too slowly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

INSTANT: Final = 1e-9
"""Seconds by which timers are late, so that no rounding lets one fire before its time."""


class Drift:
    """How far the clocks of hosts are ahead.

    A clock that runs right again keeps what it has gained, as monotonic clocks do.

    Args:
        now: returns the right time.
        host: returns the name of the host that runs.
    """

    def __init__(self, now: Callable[[], float], host: Callable[[], str]) -> None:
        self._now = now
        self._host = host
        self._rates: dict[str, float] = {}
        """Seconds of a host's clock in each right second."""
        self._gained: dict[str, tuple[float, float]] = {}
        """By how much a clock was ahead at some time: that time, and how much."""

    def set_rate(self, host: str, rate: float) -> None:
        """Let the clock of a host run at a rate from now on."""
        self._gained[host] = self._now(), self._ahead_of(host)
        self._rates[host] = rate

    @property
    def rate(self) -> float:
        """The rate of the clock of the host that runs."""
        return self._rates.get(self._host(), 1.0)

    def ahead(self) -> float:
        """Return by how much the clock of the host that runs is ahead; below 0: behind."""
        return self._ahead_of(self._host())

    def _ahead_of(self, host: str) -> float:
        if host not in self._gained:
            return 0.0
        since, gained = self._gained[host]
        return gained + (self._now() - since) * (self._rates[host] - 1.0)

    def seconds(self, delay: float) -> float:
        """Return the right seconds until the clock of the host that runs has run for `delay`."""
        return delay / self.rate + INSTANT
