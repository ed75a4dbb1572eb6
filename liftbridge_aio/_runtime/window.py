"""The limit of messages in flight; waiting for room in it is the back-pressure.

Pure but for the futures on which those wait who found no room.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class _Waiter:
    size: int
    admitted: asyncio.Future[None]


class Window:
    """Counts messages and bytes in flight; admits in the order of asking.

    A message larger than the whole window is admitted alone, so that it can be sent at all.
    """

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self.messages = 0
        self.waiting = 0
        """Publishes that wait for room."""
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._free_bytes = max_bytes
        self._waiters: deque[_Waiter] = deque()

    @property
    def bytes(self) -> int:
        """Bytes of the messages in flight."""
        return self._max_bytes - self._free_bytes

    def try_enter(self, size: int) -> bool:
        """Take room for a message of `size` bytes if there is some and nobody waits before."""
        messages = self.messages
        free = self._free_bytes - size
        if self.waiting or (messages and (messages >= self._max_messages or free < 0)):
            return False
        self.messages = messages + 1
        self._free_bytes = free
        return True

    async def enter(self, size: int) -> None:
        """Wait for room and take it. Cancelling leaves the queue."""
        if self.try_enter(size):
            return
        waiter = _Waiter(size, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        self.waiting += 1
        try:
            await waiter.admitted
        except asyncio.CancelledError:
            if waiter.admitted.cancelled():
                # It stays in the queue until its turn: taking it out would cost a search.
                self.waiting -= 1
                self._admit()
            else:
                self.leave(size)
            raise

    def leave(self, size: int, messages: int = 1) -> None:
        """Give the room of messages of `size` bytes in all back, and admit who waits for it."""
        self.messages -= messages
        self._free_bytes += size
        if self._waiters:
            self._admit()

    def _fits(self, size: int) -> bool:
        return not self.messages or (
            self.messages < self._max_messages and size <= self._free_bytes
        )

    def _admit(self) -> None:
        while self._waiters:
            waiter = self._waiters[0]
            if not waiter.admitted.done():
                if not self._fits(waiter.size):
                    return
                self.waiting -= 1
                self._let_in(waiter)
            self._waiters.popleft()

    def _let_in(self, waiter: _Waiter) -> None:
        self.messages += 1
        self._free_bytes -= waiter.size
        waiter.admitted.set_result(None)

    def queue(self) -> tuple[asyncio.Future[None], ...]:
        """Return the futures of the publishes that wait now."""
        return tuple(waiter.admitted for waiter in self._waiters if not waiter.admitted.done())
