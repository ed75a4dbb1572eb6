"""The checkpoint of a producer with a store, and how it is written. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.wire.transactions_codec import (
    WireCheckpoint,
    decode_ack,
    decode_checkpoint,
    encode_ack,
    encode_checkpoint,
)

from .core.transaction import AckIntent, Place
from .core.visibility import AckEntry
from .errors import NewerFormat

VERSION: Final = 1


class ReadPosition(NamedTuple):
    """How far a partition was read."""

    offset: int
    """The position to be read next; in a committed reading that of an ack."""
    rows: int = 0
    """How many of the messages that are shown at this position were read already."""
    created: int = 0
    """Creation timestamp of the stream."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the next producer of the same name must know."""

    producer: bytes = b""
    """The producer id under which the transactions are published."""
    clock: int = 0
    positions: Mapping[Place, ReadPosition] = field(default_factory=dict)
    intents: tuple[AckIntent, ...] = ()
    """An ack for each partition that it may have published to. They commit what the checkpoint
    commits, and roll back the rest."""

    def encode(self) -> bytes:
        """Return the record of it."""
        return encode_checkpoint(
            WireCheckpoint(
                VERSION,
                self.producer,
                self.clock,
                {_journal(place): position for place, position in self.positions.items()},
                {
                    _journal((stream, partition)): encode_ack([entry])
                    for stream, partition, entry in self.intents
                },
            )
        )


def decode(data: bytes) -> Checkpoint:
    """Return the checkpoint of a record.

    Raises:
        NewerFormat: it has a later version.
        MalformedData: it is none.
    """
    version, producer, clock, sources, ack_intents = decode_checkpoint(data)
    if version > VERSION:
        text = f"the checkpoint has version {version}, and this package reads version {VERSION}"
        raise NewerFormat(text)
    if version != VERSION:
        text = f"the record is no checkpoint of a producer: it has version {version}"
        raise MalformedData(text)
    intents = tuple(
        AckIntent(*_place(journal), AckEntry(*entry))
        for journal, ack in ack_intents.items()
        for entry in decode_ack(ack)
    )
    positions = {_place(journal): ReadPosition(*source) for journal, source in sources.items()}
    return Checkpoint(producer, clock, positions, intents)


def _journal(place: Place) -> str:
    """Return the name of a partition, in the way of Gazette."""
    stream, partition = place
    return f"{stream}/{partition}"


def _place(journal: str) -> Place:
    stream, _, partition = journal.rpartition("/")
    try:
        return stream, int(partition)
    except ValueError:
        text = f"the checkpoint names no partition: {journal!r}"
        raise MalformedData(text) from None
