"""The tasks that wait for a delivery, each in its turn."""

from __future__ import annotations

import asyncio
from collections import deque

from liftbridge_aio._subscribe.receive_buffer import Bell


class Waiters:
    """Wakes one of the tasks that wait, or the workers of `run`."""

    def __init__(self) -> None:
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.bell: Bell | None = None
        self._loop = asyncio.get_running_loop()

    def share(self, bell: Bell) -> None:
        """Ring this bell where no task waits, until `unshare`."""
        self.bell = bell

    def unshare(self) -> None:
        """Ring no bell."""
        self.bell = None

    async def wait(self) -> None:
        """Wait until there may be a delivery, or an end. Cancelling loses nothing."""
        waiter = self._loop.create_future()
        self.waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.wake()  # it was meant for somebody
            raise

    def wake(self) -> None:
        """Wake one task that waits, or ring the bell."""
        while self.waiting:
            waiter = self.waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        if self.bell is not None:
            self.bell.ring()

    def wake_all(self) -> None:
        """Wake all tasks that wait, and ring the bell."""
        for _ in range(len(self.waiting) + 1):
            self.wake()
