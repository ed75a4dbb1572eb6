"""The bounded buffer of received messages between the connection and the user."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from liftbridge_aio.errors import ConcurrentRead, LiftbridgeError
from liftbridge_aio.model import EndReason
from liftbridge_aio.wire.framing import PREFIX_BYTES

_OVERHEAD_BYTES: Final = 59
"""Memory of a buffered message beside its bytes: an object and its place in the queue."""


def size_of(messages: list[bytes]) -> int:
    """Return the bytes of messages as flow control counts them."""
    return sum(map(len, messages)) + PREFIX_BYTES * len(messages)


def held_by(messages: list[bytes]) -> int:
    """Return the approximate memory of messages, in bytes."""
    return size_of(messages) + _OVERHEAD_BYTES * len(messages)


class Bell(Protocol):
    """Wakes a waiting task when the state has changed."""

    def ring(self) -> None:
        """Wake the waiting task; cheap if there is none."""


class Doorbell:
    """A bell for one waiting task."""

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None

    @property
    def awaited(self) -> bool:
        """True if a task waits."""
        return self._waiter is not None

    def ring(self) -> None:
        """Wake the waiting task, if there is one."""
        _wake(self._waiter)

    async def wait(self) -> None:
        """Wait for the next ring. Cancelling loses nothing.

        Raises:
            ConcurrentRead: another task waits already.
        """
        if self._waiter is not None:
            raise ConcurrentRead("two tasks read the same subscription")
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


class ReceiveBuffer:
    """Received messages in order, then the end.

    The event loop puts, and never waits: the server may send more once credit is returned, as the
    user takes messages. One task takes.

    Args:
        capacity: returns how many bytes may be buffered now.
        account: called with the change of memory, in bytes, overhead included.
    """

    bell: Bell
    """Rung when `wanted` messages are buffered, and at the end."""
    wanted = 1
    """Number of messages that the reader waits for."""

    def __init__(
        self, capacity: Callable[[], int], account: Callable[[int], None] = lambda _: None
    ) -> None:
        self.waiting: deque[bytes] = deque()
        """Messages that were not taken yet."""
        self.judged = 0
        """Number of these, from the left, that were checked and are wanted."""
        self.held_bytes = 0
        """Approximate memory of messages that were not released yet, in bytes."""
        self.reason: EndReason | None = None
        self.replaying = False
        """True while a part of the log is read again, before what was taken can be delivered."""
        self.capacity = capacity
        self._account = account
        self._drained: Callable[[int], None] | None = None
        self._stale_bytes = 0
        self._unused_bytes = 0
        self._error: LiftbridgeError | None = None
        self._ended = False
        self._doorbell = self.bell = Doorbell()
        self._writer: asyncio.Future[None] | None = None

    @property
    def ended(self) -> bool:
        """True if nothing more will be put."""
        return self._ended

    @property
    def over(self) -> bool:
        """True if, behind what is buffered, nothing more will be delivered."""
        return self._ended and not self.replaying

    @property
    def full(self) -> bool:
        """True if the connection should hold back further messages."""
        return self.held_bytes >= self.capacity()

    @property
    def half_full(self) -> bool:
        """True if so much is buffered that the server may soon have to stop."""
        return 2 * self.held_bytes >= self.capacity()

    # The side that puts

    def connect(self, drained: Callable[[int], None]) -> None:
        """Return credit to this call from now on.

        Args:
            drained: called with the bytes of its messages that were released.
        """
        self._drained = drained

    def disconnect(self) -> None:
        """Return no more credit: the call that put the buffered messages has ended."""
        self._drained = None
        self._stale_bytes = self._unused_bytes

    def put(self, messages: list[bytes]) -> None:
        """Add messages, and wake the reader if there are as many as it waits for."""
        size = size_of(messages)
        self.waiting.extend(messages)
        self._unused_bytes += size
        self._hold(size + _OVERHEAD_BYTES * len(messages))
        if len(self.waiting) >= self.wanted or self.half_full:
            self.bell.ring()

    async def wait_for_space(self) -> None:
        """Wait until less than half of the capacity is used. Cancelling ends the wait."""
        while self.half_full:
            self._writer = asyncio.get_running_loop().create_future()
            try:
                await self._writer
            finally:
                self._writer = None

    def end(self, reason: EndReason) -> None:
        """End in an orderly way; the first end counts."""
        if not self._ended:
            self._ended = True
            self.reason = reason
            self.bell.ring()

    def fail(self, error: LiftbridgeError) -> None:
        """End with an error, which is raised once, after the buffered messages."""
        if not self._ended:
            self._ended = True
            self._error = error
            self.bell.ring()

    def fail_after_end(self, error: LiftbridgeError) -> None:
        """Replace the end by an error: a message buffered before it is malformed."""
        self._ended = True
        self.reason, self._error = None, error
        self.bell.ring()

    # The side that takes

    @property
    def average_bytes(self) -> int:
        """Approximate memory of a buffered message, in bytes."""
        return self.held_bytes // max(len(self.waiting), 1)

    def take(self, most: int) -> list[bytes]:
        """Take the next messages; call `release` when they were used."""
        waiting = self.waiting
        take_next = waiting.popleft
        taken = [take_next() for _ in range(min(most, len(waiting)))]
        self.judged = max(self.judged - len(taken), 0)
        return taken

    def put_back(self, messages: list[bytes]) -> None:
        """Return messages that were taken and judged, but not used."""
        self.waiting.extendleft(reversed(messages))
        self.judged += len(messages)

    def release(self, messages: list[bytes]) -> None:
        """Return the credit and the memory of messages that were taken."""
        if not messages:
            return
        size = size_of(messages)
        self._unused_bytes -= size
        stale = min(self._stale_bytes, size)
        self._stale_bytes -= stale
        self._hold(-size - _OVERHEAD_BYTES * len(messages))
        if self._drained is not None:
            # With a size of 0 too: on the plain path a task may wait for space.
            self._drained(size - stale)
        if self._writer is not None and not self.half_full:
            _wake(self._writer)

    def keep(self, count: int, kept: list[int]) -> None:
        """Mark the next `count` messages as judged, and discard those that are not kept.

        Args:
            count: how many were judged.
            kept: indexes of those to keep among them, in order.
        """
        waiting, chosen = self.waiting, frozenset(kept)
        before = [waiting.popleft() for _ in range(self.judged)]
        judged = [waiting.popleft() for _ in range(count)]
        waiting.extendleft(judged[index] for index in reversed(kept))
        waiting.extendleft(reversed(before))
        self.judged += len(kept)
        self.release([each for index, each in enumerate(judged) if index not in chosen])

    def cut(self, keep: int) -> None:
        """Discard what is buffered behind the first `keep` messages."""
        waiting = self.waiting
        kept = [waiting.popleft() for _ in range(min(keep, len(waiting)))]
        thrown = list(waiting)
        waiting.clear()
        waiting.extend(kept)
        self.judged = min(self.judged, len(kept))
        self.release(thrown)

    def forget_error(self) -> None:
        """Discard an error that was not raised yet."""
        self._error = None

    def take_error(self) -> LiftbridgeError | None:
        """Take the error that was not raised yet, if there is one."""
        error, self._error = self._error, None
        return error

    @property
    def awaited(self) -> bool:
        """True if a task waits for messages."""
        return self._doorbell.awaited

    async def wait(self, count: int = 1) -> None:
        """Wait until `count` messages are buffered, or this is half full, or ended.

        May return early; check again. Cancelling loses nothing.

        Raises:
            ConcurrentRead: another task waits already.
        """
        self.wanted = count
        await self._doorbell.wait()

    def _hold(self, difference: int) -> None:
        self.held_bytes += difference
        self._account(difference)
