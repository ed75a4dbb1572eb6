"""Messages of a call that are not read yet, in place of grpclib's own buffer.

grpclib keeps an object for each frame. A peer that sends frames of one byte, or of nothing but
padding, makes it hold some hundred times what came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

_WORTH_GIVING: Final = 2**14
"""Bytes of credit, a frame of the usual size; for less there is more to come."""


class CallBuffer:
    """The bytes of one call, in one piece. One task reads it.

    Args:
        give_credit: called with the number of bytes that the peer may send anew (RFC 9113, 5.2).
    """

    def __init__(self, give_credit: Callable[[int], None]) -> None:
        self._give_credit = give_credit
        self._data = bytearray()
        self._taken_up = 0
        """Credit that the peer has spent on these bytes, padding included."""
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None

    def add(self, data: bytes, ack_size: int) -> None:
        """Take in what came, and spent so much credit. Padding alone is given back at once."""
        if data:
            self._data += data
            self._taken_up += ack_size
            self._wake()
        elif ack_size:
            self._give_credit(ack_size)

    def eof(self) -> None:
        """Record the end of the incoming data."""
        self._ended = True
        self._wake()

    async def read(self, size: int) -> bytes:
        """Wait for so many bytes; none at the end. Cancelling loses nothing.

        Raises:
            AssertionError: the end came within them. It is what grpclib raises.
        """
        data = self._data
        while len(data) < size and not self._ended:
            self._give_back(0)  # there may be more of them than the peer has credit for
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if len(data) < size:
            if not data:
                return b""
            raise AssertionError(f"{size - len(data)} of {size} bytes are missing")
        taken = bytes(data if size == len(data) else data[:size])
        del data[:size]
        kept = len(data)
        if not kept or self._taken_up - kept >= _WORTH_GIVING:
            self._give_back(kept)
        return taken

    def unacked_size(self) -> int:
        """Return the outstanding credit, and count it as returned."""
        taken_up, self._taken_up = self._taken_up, 0
        return taken_up

    def _give_back(self, kept: int) -> None:
        """Let the peer send on, but for `kept` bytes that are still unread."""
        credit = self._taken_up - kept
        if credit > 0:
            self._taken_up = kept
            self._give_credit(credit)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
