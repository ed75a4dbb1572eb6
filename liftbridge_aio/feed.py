"""The bounded buffer between the task that reads from the server and the user who iterates."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from .errors import ConcurrentRead, LiftbridgeError
from .model import EndReason, Message

_OVERHEAD_BYTES: Final = 400
"""What a message costs beside its bytes, about."""


class Feed:
    """Messages that wait to be taken, then the end.

    One task puts, one takes. `put` never waits: the putting task asks `full` and then awaits
    `room`, which is what stops the server when the reader is slow.
    """

    def __init__(
        self, capacity: Callable[[], int], account: Callable[[int], None] = lambda _: None
    ) -> None:
        self.messages: deque[Message] = deque()
        self._sizes: deque[int] = deque()
        self.buffered_bytes = 0
        self.reason: EndReason | None = None
        self._capacity = capacity
        self._account = account
        self._error: LiftbridgeError | None = None
        self._ended = False
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will be put."""
        return self._ended

    @property
    def full(self) -> bool:
        """Whether the putting task should wait for room."""
        return self.buffered_bytes >= self._capacity()

    def put(self, message: Message, size: int) -> None:
        """Add a message that came as `size` bytes, and wake the reader."""
        size += _OVERHEAD_BYTES
        self.messages.append(message)
        self._sizes.append(size)
        self.buffered_bytes += size
        self._account(size)
        self._wake_reader()

    async def room(self) -> None:
        """Wait until at most half of the capacity is taken. Cancelling is harmless."""
        while self.full:
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
            self._wake_reader()

    def fail(self, error: LiftbridgeError) -> None:
        """Say that the reading broke; the reader gets the error once, after what is buffered."""
        if not self._ended:
            self._ended = True
            self._error = error
            self._wake_reader()

    def discard(self) -> None:
        """Forget what is buffered, an error included."""
        self.messages.clear()
        self._sizes.clear()
        self._account(-self.buffered_bytes)
        self.buffered_bytes = 0
        self._error = None
        self._wake_writer()

    def pop(self) -> Message:
        """Take the next message, which must be there."""
        message = self.messages.popleft()
        size = self._sizes.popleft()
        self.buffered_bytes -= size
        self._account(-size)
        if self._writer is not None and 2 * self.buffered_bytes <= self._capacity():
            self._wake_writer()
        return message

    def take_error(self) -> LiftbridgeError | None:
        """Take the error, if there is one that nobody has seen."""
        error, self._error = self._error, None
        return error

    async def wait(self) -> None:
        """Wait for a message or the end. Cancelling loses nothing.

        Raises:
            ConcurrentRead: another task waits already.
        """
        if self._reader is not None:
            text = "two tasks read the same subscription"
            raise ConcurrentRead(text)
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _wake_writer(self) -> None:
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)
