"""The hot messages of NATS Streaming: publishes and their acks, messages and theirs.

What is sent is joined from parts, as encoded protobuf messages merge; what is received is read by
protobuf's C runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from liftbridge_aio.errors import MalformedData

from . import stan
from .hot_schema import PARSE_ERRORS, build_classes

_CLASSES: Final = build_classes(
    "liftbridge_aio.wire.stan_hot",
    {
        "MsgProto": (
            "uint64 sequence = 1",
            "string subject = 2",
            "string reply = 3",
            "bytes data = 4",
            "int64 timestamp = 5",
            "bool redelivered = 6",
            "uint32 redelivery_count = 7",
        ),
        "PubAck": ("string guid = 1", "string error = 2"),
    },
)
_PUB_ACK: Final[Any] = _CLASSES["PubAck"].FromString

# Tags of fields.
_GUID: Final = b"\x12"
_DATA: Final = b"\x2a"
_ACKED_GUID: Final = 0x0A
_ACKED_SEQUENCE: Final = b"\x10"


class ReceivedMessage(Protocol):
    """A MsgProto."""

    sequence: int
    subject: str
    reply: str
    data: bytes
    timestamp: int
    redelivered: bool
    redelivery_count: int


def publish_start(client_id: str, connection_id: bytes, channel: str, reply: str = "") -> bytes:
    """Encode the fields that the PubMsgs of a session to a channel have in common."""
    return bytes(
        stan.PubMsg(client_id=client_id, subject=channel, reply=reply, conn_id=connection_id)
    )


def encode_publish(head: bytes, guid: bytes, data: bytes) -> bytes:
    """Encode a PubMsg, whose other fields `publish_start` has encoded."""
    return b"".join((head, _GUID, _varint(len(guid)), guid, _DATA, _varint(len(data)), data))


def decode_publish_ack(data: bytes) -> tuple[bytes, str]:
    """Decode a PubAck: return guid and error, which is empty if the message is stored.

    Raises:
        MalformedData: the bytes are none.
    """
    # Nearly always there is nothing but a guid of less than 128 bytes.
    if len(data) > 1 and data[0] == _ACKED_GUID and data[1] == len(data) - 2 < 0x80:
        return data[2:], ""
    try:
        ack = _PUB_ACK(data)
    except PARSE_ERRORS as error:
        raise MalformedData(f"what came to the subject of acks is no PubAck: {error}") from None
    return ack.guid.encode(), ack.error


decode_message: Callable[[bytes], ReceivedMessage] = _CLASSES["MsgProto"].FromString
"""Decodes a MsgProto, raises one of `PARSE_ERRORS`; without a sequence it is none either."""


def ack_head(channel: str) -> bytes:
    """Encode the field that the Acks of a channel have in common."""
    return bytes(stan.Ack(subject=channel))


def encode_acks(head: bytes, sequences: Iterable[int]) -> list[bytes]:
    """Encode Acks, whose other field `ack_head` has encoded."""
    head += _ACKED_SEQUENCE
    return [head + _varint(sequence) for sequence in sequences]


def _varint(number: int) -> bytes:
    if number < 0x80:
        return _BYTES[number]
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    if number < 0x200000:
        return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14))
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


_BYTES: Final = [bytes([number]) for number in range(0x80)]
