"""The deadlines of publishes: one task checks all messages in flight, instead of a timer each."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sized
from typing import Final

logger = logging.getLogger("liftbridge_aio.publisher")

_CHECKS_PER_TIMEOUT: Final = 5
"""Checks within the shortest timeout of a message in flight."""
_LONGEST_PAUSE: Final = 0.25
_SHORTEST_PAUSE: Final = 0.01


class DeadlineTimer:
    """Calls `expire` often enough for the messages in flight, and not at all without any."""

    def __init__(self, in_flight: Sized, expire: Callable[[float], None]) -> None:
        self.shortest_timeout = math.inf
        """The shortest timeout, in seconds, that is checked often enough. Only this class changes
        it."""
        self._in_flight = in_flight
        self._expire = expire
        self._needed = asyncio.Event()

    def keep(self, timeout: float) -> None:
        """Check often enough for a message with a timeout of so many seconds."""
        if timeout < self.shortest_timeout:
            self.shortest_timeout = timeout
            self._needed.set()

    async def run(self) -> None:
        """Check deadlines until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._needed.wait()
            pause = min(self.shortest_timeout / _CHECKS_PER_TIMEOUT, _LONGEST_PAUSE)
            await asyncio.sleep(max(pause, _SHORTEST_PAUSE))
            try:
                self._expire(loop.time())
            except Exception:  # else no deadline would be kept any more
                logger.exception("the deadlines of publishes could not be checked")
            if not self._in_flight:
                self.shortest_timeout = math.inf
                self._needed.clear()
