"""Messages that were received and wait for a reader."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, Protocol, TypeVar


class Sequenced(Protocol):
    """The attributes of a message that a buffer uses."""

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
        self.popped = 0
        self.bytes = 0
        self._messages: OrderedDict[int, MessageT] = OrderedDict()

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, sequence: object) -> bool:
        return sequence in self._messages

    def put(self, message: MessageT) -> None:
        """Append a message, or put it in the place of the one with the same sequence."""
        messages, sequence, size = self._messages, message.sequence, len(message.data)
        if sequence in messages:
            size -= len(messages[sequence].data)
        messages[sequence] = message
        self.bytes += size

    def note_peaks(self) -> None:
        """Note how much waits, when messages that came together have been put in."""
        self.max_messages = max(self.max_messages, len(self._messages))
        self.max_bytes = max(self.max_bytes, self.bytes)

    def pop(self) -> MessageT | None:
        """Remove and return the first message; None if there is none."""
        if not self._messages:
            return None
        message = self._messages.popitem(last=False)[1]
        self.bytes -= len(message.data)
        self.popped += 1
        return message

    def discard(self, sequence: int) -> None:
        """Remove a message, if it waits."""
        if sequence in self._messages:
            self.bytes -= len(self._messages.pop(sequence).data)

    def clear(self) -> None:
        """Remove all messages."""
        self._messages.clear()
        self.bytes = 0
