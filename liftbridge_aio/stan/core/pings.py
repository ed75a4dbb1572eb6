"""Counts pings without an answer, and decides that a session is lost."""

from __future__ import annotations


class PingMonitor:
    """The pings of a session that were not answered.

    Args:
        max_out: pings without an answer after which the session is lost.
    """

    def __init__(self, max_out: int) -> None:
        self.out = 0
        """Pings since the last answer."""
        self._max_out = max_out

    def ping(self) -> bool:
        """Count a ping; return False if too many are unanswered, so that none is to be sent."""
        self.out += 1
        return self.out <= self._max_out

    def answered(self) -> None:
        """Forget the pings so far: the server answered one of them."""
        self.out = 0
