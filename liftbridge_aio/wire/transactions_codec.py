"""The acks and checkpoints that transactions write to logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from liftbridge_aio.errors import MalformedData

from .hot_schema import PARSE_ERRORS, build_classes

_CLASSES: Final = build_classes(
    "liftbridge_aio.wire.transactions_hot",
    {
        "ProducerState": ("fixed64 last_ack = 1", "int64 begin = 2"),
        "Entry": (
            "bytes id = 1",
            "ProducerState state = 2",
            "fixed64 clock = 3",
            "bool final = 4",
        ),
        "Ack": ("repeated Entry entries = 1",),
        "Source": ("int64 read_through = 1", "int64 rows = 100", "int64 created = 101"),
        # These two are what entries of a `map` are on the wire.
        "SourceOf": ("string partition = 1", "Source source = 2"),
        "AckOf": ("string partition = 1", "bytes ack = 2"),
        "Checkpoint": (
            "repeated SourceOf sources = 1",
            "repeated AckOf ack_intents = 2",
            "uint32 version = 100",
            "bytes id = 101",
            "fixed64 clock = 102",
        ),
    },
)
_ACK: Final[Any] = _CLASSES["Ack"]
_CHECKPOINT: Final[Any] = _CLASSES["Checkpoint"]

WireEntry: TypeAlias = tuple[bytes, int, int, int, bool]
"""Producer, clock, begin, the clock committed before, and whether it is final."""


def encode_ack(entries: Iterable[WireEntry]) -> bytes:
    """Encode an Ack."""
    ack = _ACK()
    for producer, clock, begin, previous, final in entries:
        entry = ack.entries.add(id=producer, clock=clock, final=final)
        entry.state.last_ack, entry.state.begin = previous, begin
    encoded: bytes = ack.SerializeToString()
    return encoded


def decode_ack(data: bytes) -> list[WireEntry]:
    """Decode an Ack.

    Raises:
        MalformedData: the bytes are none.
    """
    try:
        ack = _ACK.FromString(data)
    except PARSE_ERRORS as error:
        text = f"the value of an ack of transactions is malformed: {error}"
        raise MalformedData(text) from None
    return [
        (entry.id, entry.clock, entry.state.begin, entry.state.last_ack, entry.final)
        for entry in ack.entries
    ]


class WireCheckpoint(NamedTuple):
    """A Checkpoint."""

    version: int
    producer: bytes
    clock: int
    sources: Mapping[str, tuple[int, int, int]]
    """Position, rows read at it, and creation timestamp of the stream; by partition."""
    ack_intents: Mapping[str, bytes]


def encode_checkpoint(checkpoint: WireCheckpoint) -> bytes:
    """Encode a Checkpoint."""
    version, producer, clock, sources, ack_intents = checkpoint
    message = _CHECKPOINT(version=version, id=producer, clock=clock)
    for partition, (position, rows, created) in sources.items():
        source = message.sources.add(partition=partition).source
        source.read_through, source.rows, source.created = position, rows, created
    for partition, ack in ack_intents.items():
        message.ack_intents.add(partition=partition, ack=ack)
    encoded: bytes = message.SerializeToString()
    return encoded


def decode_checkpoint(data: bytes) -> WireCheckpoint:
    """Decode a Checkpoint.

    Raises:
        MalformedData: the bytes are none.
    """
    try:
        found = _CHECKPOINT.FromString(data)
    except PARSE_ERRORS as error:
        text = f"the checkpoint of a producer is malformed: {error}"
        raise MalformedData(text) from None
    sources = {each.partition: each.source for each in found.sources}
    return WireCheckpoint(
        found.version,
        found.id,
        found.clock,
        {key: (each.read_through, each.rows, each.created) for key, each in sources.items()},
        {each.partition: each.ack for each in found.ack_intents},
    )
