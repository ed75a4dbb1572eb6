"""The hot messages of NATS Streaming: publishes and their acks, messages and theirs.

What is sent is joined from parts, as encoded protobuf messages merge; what is received is read by
protobuf's C runtime.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

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
_MSG: Final[Any] = _CLASSES["MsgProto"].FromString
_PUB_ACK: Final[Any] = _CLASSES["PubAck"].FromString

# Tags of fields.
_GUID: Final = b"\x12"
_DATA: Final = b"\x2a"
_ACKED_GUID: Final = 0x0A
_ACKED_SEQUENCE: Final = b"\x10"


class ReceivedMessage(NamedTuple):
    """The fields of a MsgProto."""

    sequence: int
    channel: str
    reply: str
    data: bytes
    timestamp: int
    redelivered: bool
    redelivery_count: int


class PublishAck(NamedTuple):
    """The fields of a PubAck; the error is empty if the message is stored."""

    guid: str
    error: str


def publish_head(client_id: str, connection_id: bytes, channel: str, reply: str = "") -> bytes:
    """Encode the fields that the PubMsgs of a session to a channel have in common."""
    return bytes(
        stan.PubMsg(client_id=client_id, subject=channel, reply=reply, conn_id=connection_id)
    )


def encode_publish(head: bytes, guid: str, data: bytes) -> bytes:
    """Encode a PubMsg, whose other fields `publish_head` has encoded."""
    encoded = guid.encode()
    return b"".join((head, _GUID, _varint(len(encoded)), encoded, _DATA, _varint(len(data)), data))


def decode_publish_ack(data: bytes) -> PublishAck:
    """Decode a PubAck.

    Raises:
        MalformedData: the bytes are none.
    """
    # Nearly always there is nothing but a guid of less than 128 bytes.
    if len(data) > 1 and data[0] == _ACKED_GUID and data[1] == len(data) - 2 < 0x80:
        guid = data[2:]
        if guid.isascii():
            return PublishAck(guid.decode(), "")
    try:
        ack = _PUB_ACK(data)
    except PARSE_ERRORS as error:
        text = f"what came to the subject of acks is no PubAck: {error}"
        raise MalformedData(text) from None
    return PublishAck(ack.guid, ack.error)


def decode_message(data: bytes) -> ReceivedMessage:
    """Decode a MsgProto.

    Raises:
        MalformedData: the bytes are none, or have no sequence.
    """
    try:
        message = _MSG(data)
    except PARSE_ERRORS as error:
        text = f"what came to the inbox of a subscription is no MsgProto: {error}"
        raise MalformedData(text) from None
    if not message.sequence:
        raise MalformedData("what came to the inbox of a subscription has no sequence")
    return ReceivedMessage(
        message.sequence,
        message.subject,
        message.reply,
        message.data,
        message.timestamp,
        message.redelivered,
        message.redelivery_count,
    )


def ack_head(channel: str) -> bytes:
    """Encode the field that the Acks of a channel have in common."""
    return bytes(stan.Ack(subject=channel))


def encode_ack(head: bytes, sequence: int) -> bytes:
    """Encode an Ack, whose other field `ack_head` has encoded."""
    return head + _ACKED_SEQUENCE + _varint(sequence)


def _varint(number: int) -> bytes:
    if number < 0x80:
        return _BYTES[number]
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


_BYTES: Final = [bytes([number]) for number in range(0x80)]
