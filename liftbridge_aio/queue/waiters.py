"""The tasks that wait for a delivery, each in its turn."""

from __future__ import annotations

import asyncio
from collections import deque

from liftbridge_aio._subscribe.receive_buffer import Bell
from liftbridge_aio.groups.workers import Workers


class Waiters:
    """Wakes one of the tasks that wait, or the workers of `run`."""

    def __init__(self) -> None:
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.bell: Workers | None = None
        self.spare: Bell | None = None
        """Rung after those of this process; None: nothing else waits."""
        self._loop = asyncio.get_running_loop()

    @property
    def free(self) -> int:
        """The number of deliveries that would be taken now."""
        waiting = sum(not waiter.done() for waiter in self.waiting)
        return waiting + (0 if self.bell is None else self.bell.free)

    def share(self, bell: Workers) -> None:
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
        self._wake()
        if self.spare is not None:
            self.spare.ring()

    def _wake(self) -> None:
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
            self._wake()
