"""Messages that were received and wait for a reader."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

_LAST_FIELD: Final = slice(-10, -9)
_TIMESTAMP: Final = b"\x28"
"""The last field of a message that is delivered for the first time is a timestamp of nine bytes. In
one that is delivered again this byte is within a timestamp, where it is 0x80 or more."""


class Identity(NamedTuple):
    """The fields of a message that a buffer uses."""

    sequence: int
    redelivered: bool


class Buffer:
    """Encoded messages in the order in which they came, each sequence once.

    They are decoded when a reader takes them: bytes cost the garbage collector nothing while they
    wait. Servers deliver a message again when its ack does not come in time, also if it still waits
    here. It then replaces what waits, so that a slow reader does not make the buffer grow.

    Args:
        identify: decodes a message so far; returns None for bytes that are none.
    """

    # State: `again` has the redelivered messages in `_encoded` by sequence, with True for those
    # that were acked meanwhile and so wait no more; `_acked` is their number.

    def __init__(self, identify: Callable[[bytes], Identity | None]) -> None:
        self.max_messages = 0
        """Most messages that waited at once."""
        self.max_bytes = 0
        self.bytes = 0
        """Bytes that wait, as they came."""
        self.again: dict[int, bool] = {}
        self._acked = 0
        self._identify = identify
        self._encoded: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._encoded) - self._acked

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._encoded)

    def put(self, arrived: Sequence[bytes]) -> None:
        """Append messages that came together, or put them in place of those that wait."""
        for data in arrived:
            if data[_LAST_FIELD] != _TIMESTAMP:
                self._merge(arrived)
                break
        else:
            self._encoded.extend(arrived)
            self.bytes += sum(map(len, arrived))
        self.max_messages = max(self.max_messages, len(self))
        self.max_bytes = max(self.max_bytes, self.bytes)

    def _merge(self, arrived: Sequence[bytes]) -> None:
        latest: dict[int, tuple[bytes, bool]] = {}
        for data in self._encoded:
            identity = self._identify(data)
            if identity is not None and not self.again.get(identity.sequence):
                latest[identity.sequence] = data, identity.redelivered
        for data in arrived:
            identity = self._identify(data)
            if identity is not None:
                latest[identity.sequence] = data, identity.redelivered
        self.clear()
        self.again = {sequence: False for sequence, (_, again) in latest.items() if again}
        self._encoded.extend(data for data, _ in latest.values())
        self.bytes = sum(map(len, self._encoded))

    def pop(self) -> bytes | None:
        """Remove and return the first; None if there is none.

        While there is something in `again`, tell `popped` which it was.
        """
        if not self._encoded:
            return None
        data = self._encoded.popleft()
        self.bytes -= len(data)
        return data

    def popped(self, sequence: int) -> bool:
        """Return False if the message that was popped was acked while it waited."""
        was_acked = self.again.pop(sequence, False)
        self._acked -= was_acked
        return not was_acked

    def acked(self, sequence: int) -> None:
        """Remove a message that waits to be delivered again, if there is such a one."""
        if self.again.get(sequence) is False:
            self.again[sequence] = True
            self._acked += 1

    def clear(self) -> None:
        """Remove all messages."""
        self._encoded.clear()
        self.again.clear()
        self._acked = self.bytes = 0
