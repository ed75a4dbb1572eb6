"""The event loop of a simulation: that of simloop, which needs Python 3.12, for long runs."""

from __future__ import annotations

import asyncio
import hashlib
import heapq
from typing import Final

from simloop import SimLoop

FEW: Final = 100
"""Cancelled timers that may be kept."""


class Trace:
    """The digest of all decisions of a loop, in place of a list of them, which fills the memory."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def record(self, kind: str, when: float, seq: int, label: str, host: str = "") -> None:
        """Take in what ran, or was sent, and when; what waits for its turn is told when it runs."""
        if kind != "schedule":
            self._digest.update(f"{kind}|{when}|{seq}|{label}|{host}".encode())

    def hash(self) -> str:
        """Return the digest of what came so far."""
        return self._digest.hexdigest()


class Loop(SimLoop):
    """An event loop whose clock moves when nothing can run.

    Args:
        seed: decides what runs next, and how long a packet takes.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._recorder = Trace()
        self._cancelled_timers = 0
        """Those cancelled since timers were last sorted out, at most."""

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Sort out cancelled timers now and then: most are, long before their time comes."""
        self._cancelled_timers += 1
        if self._cancelled_timers > max(FEW, len(self._timers) // 2):
            self._cancelled_timers = 0
            self._timers[:] = [each for each in self._timers if not each[3].cancelled()]
            heapq.heapify(self._timers)
