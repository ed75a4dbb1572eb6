"""The checkpoint of a producer with a store, and how it is written. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from liftbridge_aio._subscribe.core.checkpoint import Checkpoint
from liftbridge_aio.errors import MalformedData
from liftbridge_aio.wire.transactions_codec import (
    WireProducerCheckpoint,
    decode_ack,
    decode_producer_checkpoint,
    encode_ack,
    encode_producer_checkpoint,
)

from .core.transaction import AckIntent, Place
from .core.visibility import AckEntry
from .errors import NewerFormat

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ProducerCheckpoint:
    """The state that the next producer of the same name must know."""

    producer: bytes = b""
    """The producer id under which the transactions are published."""
    clock: int = 0
    positions: Mapping[Place, Checkpoint] = field(default_factory=dict)
    """Positions of partitions."""
    intents: tuple[AckIntent, ...] = ()
    """An ack for each partition that it may have published to. They commit what the checkpoint
    commits, and roll back the rest."""

    def encode(self) -> bytes:
        """Return the record of it."""
        sources = {
            _journal(place): (position.value, bytes(position))
            for place, position in self.positions.items()
        }
        acks = {
            _journal((stream, partition)): encode_ack([entry])
            for stream, partition, entry in self.intents
        }
        return encode_producer_checkpoint(
            WireProducerCheckpoint(VERSION, self.producer, self.clock, sources, acks)
        )


def decode(data: bytes) -> ProducerCheckpoint:
    """Return the checkpoint of a record.

    Raises:
        NewerFormat: it has a later version.
        MalformedData: it is none.
    """
    version, producer, clock, sources, ack_intents = decode_producer_checkpoint(data)
    if version > VERSION:
        raise NewerFormat(
            f"the checkpoint has version {version}, and this package reads version {VERSION}"
        )
    if version != VERSION:
        raise MalformedData(f"the record is no checkpoint of a producer: it has version {version}")
    intents = tuple(
        AckIntent(*_place(journal), AckEntry(*entry))
        for journal, ack in ack_intents.items()
        for entry in decode_ack(ack)
    )
    positions = {
        _place(journal): Checkpoint.from_bytes(reading) for journal, (_, reading) in sources.items()
    }
    return ProducerCheckpoint(producer, clock, positions, intents)


def _journal(place: Place) -> str:
    """Return the name of a partition, in the way of Gazette."""
    stream, partition = place
    return f"{stream}/{partition}"


def _place(journal: str) -> Place:
    stream, _, partition = journal.rpartition("/")
    try:
        return stream, int(partition)
    except ValueError:
        raise MalformedData(f"the checkpoint names no partition: {journal!r}") from None
