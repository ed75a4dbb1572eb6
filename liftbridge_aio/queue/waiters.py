"""The tasks that wait for a delivery, each in its turn."""

from __future__ import annotations

import asyncio
from collections import deque

from liftbridge_aio._subscribe.receive_buffer import Bell


class Waiters:
    """Wakes one of the tasks that wait, or the workers of `run`."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._bell: Bell | None = None
        self._loop = asyncio.get_running_loop()

    def __bool__(self) -> bool:
        """Return True if somebody may have to be woken."""
        return bool(self._waiting) or self._bell is not None

    def share(self, bell: Bell) -> None:
        """Ring this bell where no task waits, until `unshare`."""
        self._bell = bell

    def unshare(self) -> None:
        """Ring no bell."""
        self._bell = None

    async def wait(self) -> None:
        """Wait until there may be a delivery, or an end. Cancelling loses nothing."""
        waiter = self._loop.create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.wake()  # it was meant for somebody
            raise

    def wake(self) -> None:
        """Wake one task that waits, or ring the bell."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        if self._bell is not None:
            self._bell.ring()

    def wake_all(self) -> None:
        """Wake all tasks that wait, and ring the bell."""
        for _ in range(len(self._waiting) + 1):
            self.wake()
