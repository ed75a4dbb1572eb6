"""The bounded buffer between what comes from the server and the user who reads, then the end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from .errors import ConcurrentRead, LiftbridgeError
from .model import EndReason
from .wire.framing import PREFIX_BYTES

_OVERHEAD_BYTES: Final = 59
"""What a message costs beside that while it waits here: an object and its place."""


def size_of(messages: list[bytes]) -> int:
    """Bytes of messages as flow control counts them."""
    return sum(map(len, messages)) + PREFIX_BYTES * len(messages)


def held_by(messages: list[bytes]) -> int:
    """Bytes that messages take in this process, about."""
    return size_of(messages) + _OVERHEAD_BYTES * len(messages)


class Bell(Protocol):
    """Rung whenever there is something to look at."""

    def ring(self) -> None:
        """Wake whoever waits. Cheap where nobody does."""


class Doorbell:
    """Wakes the one task that waits."""

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None

    @property
    def awaited(self) -> bool:
        """Whether a task waits."""
        return self._waiter is not None

    def ring(self) -> None:
        """Wake whoever waits."""
        _wake(self._waiter)

    async def wait(self) -> None:
        """Wait until it rings. Cancelling loses nothing.

        Raises:
            ConcurrentRead: another task waits already.
        """
        if self._waiter is not None:
            text = "two tasks read the same subscription"
            raise ConcurrentRead(text)
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


class Feed:
    """Messages as they came, in order, then the end.

    The event loop puts, and never waits: the credit that `drained` gives back, as the user takes
    messages, is what lets the server send more. One task takes.

    Args:
        capacity: bytes that may lie here just now.
        account: told how many bytes came or went, overhead included.
    """

    bell: Bell
    """Rung when as many messages wait as the reader wants, and at the end."""
    wanted = 1
    """How many messages the reader waits for."""

    def __init__(
        self, capacity: Callable[[], int], account: Callable[[int], None] = lambda _: None
    ) -> None:
        self.waiting: deque[bytes] = deque()
        """What nobody has taken yet."""
        self.judged = 0
        """How many of these, from the left, are known to be wanted."""
        self.held_bytes = 0
        """Bytes that wait or are taken and not used up, with what they cost beside."""
        self.reason: EndReason | None = None
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
        """Whether nothing more will be put."""
        return self._ended

    @property
    def full(self) -> bool:
        """Whether what comes next should wait outside."""
        return self.held_bytes >= self.capacity()

    @property
    def half_full(self) -> bool:
        """Whether so much lies here that the server may soon have to stop."""
        return 2 * self.held_bytes >= self.capacity()

    # Who puts

    def connect(self, drained: Callable[[int], None]) -> None:
        """Give credit to this call from now on.

        Args:
            drained: told how many bytes of what it put have been used up.
        """
        self._drained = drained

    def disconnect(self) -> None:
        """Give credit to nobody: the call that put what lies here is over."""
        self._drained = None
        self._stale_bytes = self._unused_bytes

    def put(self, messages: list[bytes]) -> None:
        """Add messages, and wake the reader once there are as many as it wants."""
        size = size_of(messages)
        self.waiting.extend(messages)
        self._unused_bytes += size
        self._hold(size + _OVERHEAD_BYTES * len(messages))
        if len(self.waiting) >= self.wanted or self.half_full:
            self.bell.ring()

    async def room(self) -> None:
        """Wait until less than half of the capacity is taken. Cancelling is harmless."""
        while self.half_full:
            self._writer = asyncio.get_running_loop().create_future()
            try:
                await self._writer
            finally:
                self._writer = None

    def end(self, reason: EndReason) -> None:
        """Say that the reading ended in an orderly way; the first end counts."""
        if not self._ended:
            self._ended = True
            self.reason = reason
            self.bell.ring()

    def fail(self, error: LiftbridgeError) -> None:
        """Say that the reading broke; the reader gets the error once, after what waits."""
        if not self._ended:
            self._ended = True
            self._error = error
            self.bell.ring()

    def spoil(self, error: LiftbridgeError) -> None:
        """Say that what waited before the end could not be taken: an error after all."""
        self._ended = True
        self.reason, self._error = None, error
        self.bell.ring()

    # Who takes

    @property
    def average_bytes(self) -> int:
        """Size of a message that lies here, about."""
        return self.held_bytes // max(len(self.waiting), 1)

    def take(self, most: int) -> list[bytes]:
        """Take the next messages; say `used_up` when they are."""
        waiting = self.waiting
        take_next = waiting.popleft
        taken = [take_next() for _ in range(min(most, len(waiting)))]
        self.judged = max(self.judged - len(taken), 0)
        return taken

    def take_back(self, messages: list[bytes]) -> None:
        """Put messages that were taken, judged and not used back to where they were."""
        self.waiting.extendleft(reversed(messages))
        self.judged += len(messages)

    def used_up(self, messages: list[bytes]) -> None:
        """Give back the credit and the room of messages that were taken."""
        if not messages:
            return
        size = size_of(messages)
        self._unused_bytes -= size
        stale = min(self._stale_bytes, size)
        self._stale_bytes -= stale
        self._hold(-size - _OVERHEAD_BYTES * len(messages))
        if self._drained is not None:
            # A size of 0 is told too: on the plain path a task may be waiting for room.
            self._drained(size - stale)
        if self._writer is not None and not self.half_full:
            _wake(self._writer)

    def keep(self, count: int, kept: list[int]) -> None:
        """Throw away some of the first `count` messages that are not judged yet; they are then.

        Args:
            count: how many were judged.
            kept: the places of those to keep among them, in order.
        """
        waiting, chosen = self.waiting, frozenset(kept)
        before = [waiting.popleft() for _ in range(self.judged)]
        judged = [waiting.popleft() for _ in range(count)]
        waiting.extendleft(judged[index] for index in reversed(kept))
        waiting.extendleft(reversed(before))
        self.judged += len(kept)
        self.used_up([each for index, each in enumerate(judged) if index not in chosen])

    def cut(self, keep: int) -> None:
        """Throw away what waits behind the first `keep` messages."""
        waiting = self.waiting
        kept = [waiting.popleft() for _ in range(min(keep, len(waiting)))]
        thrown = list(waiting)
        waiting.clear()
        waiting.extend(kept)
        self.judged = min(self.judged, len(kept))
        self.used_up(thrown)

    def forget_error(self) -> None:
        """Forget an error that nobody has seen."""
        self._error = None

    def take_error(self) -> LiftbridgeError | None:
        """Take the error, if there is one that nobody has seen."""
        error, self._error = self._error, None
        return error

    @property
    def awaited(self) -> bool:
        """Whether a task waits here for more."""
        return self._doorbell.awaited

    async def wait(self, count: int = 1) -> None:
        """Wait until `count` messages wait, or this is half full, or ended.

        May return before; look again. Cancelling loses nothing.

        Raises:
            ConcurrentRead: another task waits already.
        """
        self.wanted = count
        await self._doorbell.wait()

    def _hold(self, difference: int) -> None:
        self.held_bytes += difference
        self._account(difference)
