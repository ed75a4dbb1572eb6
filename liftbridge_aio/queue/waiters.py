"""Tasks that wait for a delivery, first come first served."""

from __future__ import annotations

import asyncio
from collections import deque

from liftbridge_aio._subscribe.receive_buffer import Bell
from liftbridge_aio.groups.workers import Workers


class Waiters:
    """Wakes one waiting task, or the workers of `run`, when there is something to deliver."""

    def __init__(self) -> None:
        # State
        self.waiting: deque[asyncio.Future[None]] = deque()
        """Futures of waiting tasks, oldest first; a done one was cancelled."""
        self.bell: Workers | None = None
        """The workers of `run`, while it runs; woken if no task waits."""
        self.spare: Bell | None = None
        """The lender to other members, woken after this process; None without `nats`."""
        self._loop = asyncio.get_running_loop()

    @property
    def free(self) -> int:
        """The number of deliveries that tasks and workers would take now."""
        waiting = sum(not waiter.done() for waiter in self.waiting)
        return waiting + (0 if self.bell is None else self.bell.free)

    def share(self, bell: Workers) -> None:
        """Wake these workers if no task waits, until `unshare`."""
        self.bell = bell

    def unshare(self) -> None:
        """Wake no workers."""
        self.bell = None

    async def wait(self) -> None:
        """Wait until there may be a delivery, or the queue has ended."""
        waiter = self._loop.create_future()
        self.waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.wake()  # pass the wake-up to another task
            raise

    def wake(self) -> None:
        """Wake one waiting task, or the workers; then the lender."""
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
        """Wake all waiting tasks and the workers."""
        for _ in range(len(self.waiting) + 1):
            self._wake()
