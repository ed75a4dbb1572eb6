"""The acks that transactions write to logs, and the checkpoints of readers and producers."""

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
        "ReadProducer": ("bytes id = 1", "fixed64 clock = 2"),
        "ReadCheckpoint": (
            "int32 version = 1",
            "string stream = 2",
            "int32 partition = 3",
            "int64 created = 4",
            "int32 position = 5",
            "int64 value = 6",
            "int64 delivered = 7",
            "bool committed = 8",
            "repeated ReadProducer producers = 9",
        ),
        "Source": ("int64 read_through = 1", "bytes checkpoint = 100"),
        # These two are what entries of a `map` are on the wire.
        "SourceOf": ("string partition = 1", "Source source = 2"),
        "AckOf": ("string partition = 1", "bytes ack = 2"),
        "ProducerCheckpoint": (
            "repeated SourceOf sources = 1",
            "repeated AckOf ack_intents = 2",
            "uint32 version = 100",
            "bytes id = 101",
            "fixed64 clock = 102",
        ),
    },
)
_ACK: Final[Any] = _CLASSES["Ack"]
_CHECKPOINT: Final[Any] = _CLASSES["ReadCheckpoint"]
_CHECKPOINT_VERSION: Final = 1
_PRODUCER_CHECKPOINT: Final[Any] = _CLASSES["ProducerCheckpoint"]

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
        raise MalformedData(f"the value of an ack of transactions is malformed: {error}") from None
    return [
        (entry.id, entry.clock, entry.state.begin, entry.state.last_ack, entry.final)
        for entry in ack.entries
    ]


WireCheckpoint: TypeAlias = tuple[
    str, int, int, tuple[int, int], int, tuple[tuple[bytes, int], ...] | None
]
"""Stream, partition, creation, start, messages delivered of it, and clocks of producers."""


def encode_checkpoint(
    stream: str,
    partition: int,
    created: int,
    start: tuple[int, int],
    delivered: int,
    producers: Iterable[tuple[bytes, int]] | None,
) -> bytes:
    """Encode a ReadCheckpoint."""
    checkpoint = _CHECKPOINT(
        version=_CHECKPOINT_VERSION,
        stream=stream,
        partition=partition,
        created=created,
        position=start[0],
        value=start[1],
        delivered=delivered,
        committed=producers is not None,
    )
    for producer, clock in producers or ():
        checkpoint.producers.add(id=producer, clock=clock)
    encoded: bytes = checkpoint.SerializeToString()
    return encoded


def decode_checkpoint(data: bytes) -> WireCheckpoint:
    """Decode a ReadCheckpoint.

    Raises:
        MalformedData: the bytes are none, or of a later version.
    """
    try:
        found = _CHECKPOINT.FromString(data)
    except PARSE_ERRORS as error:
        raise MalformedData(f"a checkpoint is malformed: {error}") from None
    if found.version != _CHECKPOINT_VERSION:
        raise MalformedData(
            f"a checkpoint has version {found.version}, and this package reads version 1"
        )
    producers = tuple((each.id, each.clock) for each in found.producers)
    return (
        found.stream,
        found.partition,
        found.created,
        (found.position, found.value),
        found.delivered,
        producers if found.committed else None,
    )


class WireProducerCheckpoint(NamedTuple):
    """A ProducerCheckpoint."""

    version: int
    producer: bytes
    clock: int
    sources: Mapping[str, tuple[int, bytes]]
    """Position and encoded checkpoint of the reading, by partition."""
    ack_intents: Mapping[str, bytes]


def encode_producer_checkpoint(checkpoint: WireProducerCheckpoint) -> bytes:
    """Encode a ProducerCheckpoint."""
    version, producer, clock, sources, ack_intents = checkpoint
    message = _PRODUCER_CHECKPOINT(version=version, id=producer, clock=clock)
    for partition, (position, reading) in sources.items():
        source = message.sources.add(partition=partition).source
        source.read_through, source.checkpoint = position, reading
    for partition, ack in ack_intents.items():
        message.ack_intents.add(partition=partition, ack=ack)
    encoded: bytes = message.SerializeToString()
    return encoded


def decode_producer_checkpoint(data: bytes) -> WireProducerCheckpoint:
    """Decode a ProducerCheckpoint.

    Raises:
        MalformedData: the bytes are none.
    """
    try:
        found = _PRODUCER_CHECKPOINT.FromString(data)
    except PARSE_ERRORS as error:
        raise MalformedData(f"the checkpoint of a producer is malformed: {error}") from None
    sources = {each.partition: each.source for each in found.sources}
    return WireProducerCheckpoint(
        found.version,
        found.id,
        found.clock,
        {key: (each.read_through, each.checkpoint) for key, each in sources.items()},
        {each.partition: each.ack for each in found.ack_intents},
    )
