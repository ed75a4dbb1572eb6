"""The format of transactions in the log; see docs/transactions-format.md. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.model import ACK_HEADER, UUID_HEADER
from liftbridge_aio.wire.transactions_codec import decode_ack, encode_ack

from .core.sequencer import NO_OFFSET
from .core.uuid import PRODUCER_BYTES
from .core.visibility import AckEntry, Event
from .errors import MalformedAck, NewerFormat

T = TypeVar("T")

VERSION: Final = 1
ACK_HEADERS: Final = {ACK_HEADER: bytes([VERSION])}
"""The headers of an ack."""
MAX_ENTRIES: Final = 16_384
"""Most entries of an ack: it stays below the usual limit of a message, 1 MiB."""


def ack_values(entries: Sequence[AckEntry]) -> list[bytes]:
    """Return the values of the acks with these entries, usually of one."""
    return [
        encode_ack(entries[begin : begin + MAX_ENTRIES])
        for begin in range(0, len(entries), MAX_ENTRIES)
    ]


def event_of(
    offset: int, headers: Mapping[str, bytes], value: bytes | None, message: T
) -> Event[T]:
    """Return a message of the log as visibility sees it.

    Raises:
        NewerFormat: it is an ack of a later version.
        MalformedAck: it says that it is an ack, and its header or value is malformed.
    """
    version = headers.get(ACK_HEADER)
    if version is None:
        return Event(offset, message, headers.get(UUID_HEADER))
    if len(version) != 1:
        raise MalformedAck(
            f"the ack at offset {offset} is malformed: its header is {version[:32]!r}",
            offset=offset,
        )
    if version[0] > VERSION:
        raise NewerFormat(
            f"the ack at offset {offset} has version {version.hex()} of the format,"
            f" and this package reads version {VERSION}",
            offset=offset,
        )
    try:
        acks = tuple(AckEntry(*entry) for entry in decode_ack(value or b""))
    except MalformedData as error:
        raise MalformedAck(
            f"the ack at offset {offset} is malformed: {error.message}", offset=offset
        ) from error
    for ack in acks:
        if len(ack.producer) != PRODUCER_BYTES or not ack.clock or ack.begin < NO_OFFSET:
            raise MalformedAck(f"the ack at offset {offset} is malformed: {ack}", offset=offset)
    return Event(offset, message, None, acks)
