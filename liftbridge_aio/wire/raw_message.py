"""Messages for those who want the bytes and no more."""

from __future__ import annotations

from dataclasses import dataclass

from liftbridge_aio.model import Message

from .codec import decode_message


@dataclass(slots=True, eq=True)
class RawMessage:
    """A message as it came from the server, of which only the place was read.

    Treat it as read-only, as `Message`; made by `Subscription.batches`.
    """

    stream: str
    partition: int
    offset: int
    timestamp: int
    """When the leader received it, in Unix nanoseconds."""
    data: bytes
    """The encoded message: what protobuf calls `Message` in Liftbridge's API."""

    def decode(self) -> Message:
        """Read the rest of it.

        Raises:
            MalformedData: the bytes are no message.
        """
        return decode_message(self.data)
