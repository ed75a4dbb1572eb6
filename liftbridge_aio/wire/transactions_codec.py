"""The acks that transactions write to the log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

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
    },
)
_ACK: Final[Any] = _CLASSES["Ack"]

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
