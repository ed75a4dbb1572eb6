"""The exact position of a reading: a start that goes on behind the last delivered message. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.model import StartAt, StartPosition


@dataclass(frozen=True, slots=True)
class Checkpoint(StartAt):
    """A start behind the last message that a subscription delivered.

    Made by `Subscription.checkpoint`; `start=` and `seek` take it. It is the reader's own, and
    stands in the middle of a transaction too; store its `bytes` together with what was made of the
    messages. `from_bytes` reads them.
    """

    stream: str = ""
    partition: int = 0
    created: int = 0
    """The creation timestamp of the stream: in another one of the same name it is refused."""
    delivered: int = 0
    """Number of delivered messages of the ack at its offset."""
    producers: tuple[tuple[bytes, int], ...] | None = field(default=None, repr=False)
    """Of a committed reading: producers of single messages, and the newest clocks of these, at
    most `ReadCommitted.max_producers`. Of a producer that is not among them, a message that stands
    before the offset and is repeated behind it is delivered again."""

    def __bytes__(self) -> bytes:
        """Encode it; about 20 bytes for each producer."""
        from liftbridge_aio.wire.transactions_codec import encode_checkpoint  # noqa: PLC0415 - imports protobuf

        return encode_checkpoint(
            self.stream,
            self.partition,
            self.created,
            (self.position, self.value),
            self.delivered,
            self.producers,
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Decode a checkpoint.

        Raises:
            MalformedData: the bytes are none, or of a later version.
        """
        from liftbridge_aio.wire.transactions_codec import decode_checkpoint  # noqa: PLC0415 - imports protobuf

        found = decode_checkpoint(data)
        stream, partition, created, (position, value), delivered, producers = found
        try:
            at = StartPosition(position)
        except ValueError:
            raise MalformedData(f"a checkpoint has the unknown start {position}") from None
        return cls(
            at,
            value,
            stream=stream,
            partition=partition,
            created=created,
            delivered=delivered,
            producers=producers,
        )
