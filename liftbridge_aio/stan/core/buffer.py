"""Messages that were received and wait for a reader."""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar


class Sequenced(Protocol):
    """What a buffer has to know of a message."""

    @property
    def sequence(self) -> int:
        """The number of the message."""

    @property
    def data(self) -> bytes:
        """Its bytes."""


MessageT = TypeVar("MessageT", bound=Sequenced)


class Buffer(Generic[MessageT]):
    """Messages in the order in which they came, each sequence once.

    Servers deliver a message again when its ack does not come in time, also if it still waits
    here. It then replaces what waits, so that a slow reader does not make the buffer grow.
    """

    def __init__(self) -> None:
        self.max_messages = 0
        """Most messages that waited at once."""
        self.max_bytes = 0
        self.bytes = 0
        self._messages: dict[int, MessageT] = {}
        self._order: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, sequence: object) -> bool:
        return sequence in self._messages

    def put(self, message: MessageT) -> None:
        """Append a message, or replace the one with the same sequence."""
        known = self._messages.get(message.sequence)
        if known is None:
            self._order.append(message.sequence)
        else:
            self.bytes -= len(known.data)
        self._messages[message.sequence] = message
        self.bytes += len(message.data)
        self.max_messages = max(self.max_messages, len(self._messages))
        self.max_bytes = max(self.max_bytes, self.bytes)

    def pop(self) -> MessageT | None:
        """Remove and return the first message; None if there is none."""
        while self._order:
            message = self._messages.pop(self._order.popleft(), None)
            if message is not None:
                self.bytes -= len(message.data)
                return message
        return None

    def discard(self, sequence: int) -> None:
        """Remove a message, if it waits."""
        message = self._messages.pop(sequence, None)
        if message is not None:
            self.bytes -= len(message.data)

    def clear(self) -> None:
        """Remove all messages."""
        self._messages.clear()
        self._order.clear()
        self.bytes = 0
