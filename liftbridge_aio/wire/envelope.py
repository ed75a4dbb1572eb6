"""The envelope around what clients and servers send each other straight over NATS.

    B9 0E 43 B4 | version 0 | header length | flags | message type | [CRC-32C] | protobuf

Pure functions over bytes, to be used with any NATS client: publish `encode_message(...)` to the
subject of a stream, and give the bytes that arrive at the ack inbox to `decode_ack`.

A server stores everything that is no proper envelope as a plain value and acks nothing, and
headers with wrong bounds can kill it. So everything here is checked strictly, both ways.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from liftbridge_aio._core.message_check import check_content
from liftbridge_aio.errors import InvalidRequest, MalformedData
from liftbridge_aio.model import (
    UNCHECKED_OFFSET,
    Ack,
    AckError,
    AckPolicy,
)

from . import proto
from .convert import ack_to_wire
from .crc32c import crc32c
from .strict import parse_flat

_MAGIC: Final = bytes.fromhex("b90e43b4")
_VERSION: Final = 0
_HEADER_LENGTH: Final = 8
_CRC_FLAG: Final = 0b1
_CRC_LENGTH: Final = 4
_INT64_MAX: Final = 2**63 - 1


class _Type(enum.IntEnum):
    """The message types of clients; 2 to 14 are the servers' own."""

    PUBLISH = 0
    ACK = 1


_LAST_INTERNAL_TYPE: Final = 14


@dataclass(frozen=True, slots=True)
class EnvelopeMessage:
    """A published message with everything that a publisher can set."""

    value: bytes
    key: bytes = b""
    """Empty where the publisher gave none: the wire does not tell the two apart."""
    headers: Mapping[str, bytes] = field(default_factory=dict)
    ack_inbox: str = ""
    """The NATS subject to which the ack goes; empty: nothing is acked."""
    correlation_id: str = ""
    ack_policy: AckPolicy = AckPolicy.LEADER
    expected_offset: int | None = None
    """The offset that the message must get; None is not checked."""


def encode_message(
    value: bytes,
    *,
    key: bytes | None = None,
    headers: Mapping[str, bytes] | None = None,
    ack_inbox: str = "",
    correlation_id: str = "",
    ack_policy: AckPolicy = AckPolicy.LEADER,
    expected_offset: int | None = None,
    crc: bool = False,
) -> bytes:
    """Make the bytes that publish a message when they are sent to the subject of a stream.

    Partition 0 listens on the stream's subject itself, partition N on `<subject>.N`. A
    paused partition loses what is sent to it this way.

    Args:
        value: the payload.
        key: for compaction; None is the same as empty.
        headers: stored with the message.
        ack_inbox: the NATS subject to which the ack is to go. Without one nothing is acked,
            whatever the policy.
        correlation_id: comes back in the ack.
        ack_policy: when the server acks.
        expected_offset: the offset that the message must get, on streams with optimistic
            concurrency control; None is not checked (-1 on the wire).
        crc: add a checksum of the message, so that the server does not take it for an envelope
            when it was damaged; note that it then stores the bytes as they came.

    Raises:
        InvalidRequest: a header has a name that the server overwrites or cannot bear,
            `expected_offset` is out of range, or a text cannot be written as UTF-8.
    """
    check_content(value, key, headers)
    if expected_offset is not None and not 0 <= expected_offset <= _INT64_MAX:
        raise InvalidRequest(
            f"expected_offset is an offset from 0 up, or None, not {expected_offset}"
        )
    message = proto.Message(
        value=value,
        key=key or b"",
        headers=dict(headers or {}),
        ack_inbox=ack_inbox,
        correlation_id=correlation_id,
        ack_policy=proto.AckPolicy(ack_policy),
        offset=UNCHECKED_OFFSET if expected_offset is None else expected_offset,
    )
    try:
        payload = bytes(message)
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"a header name, the ack inbox or the correlation id is not UTF-8: {error.reason}"
        ) from error
    return _seal(payload, _Type.PUBLISH, crc=crc)


def decode_message(data: bytes) -> EnvelopeMessage:
    """Read what `encode_message`, or another publisher, made.

    Raises:
        MalformedData: `data` is no proper envelope with a published message in it.
    """
    message = parse_flat(proto.Message, _open(data, _Type.PUBLISH))
    return EnvelopeMessage(
        value=message.value,
        key=message.key,
        headers=message.headers,
        ack_inbox=message.ack_inbox,
        correlation_id=message.correlation_id,
        ack_policy=_ack_policy(message.ack_policy),
        expected_offset=None if message.offset == UNCHECKED_OFFSET else message.offset,
    )


def encode_ack(ack: Ack, *, crc: bool = False) -> bytes:
    """Make the bytes that a server sends to an ack inbox."""
    return _seal(bytes(ack_to_wire(ack)), _Type.ACK, crc=crc)


def decode_ack(data: bytes) -> Ack:
    """Read what arrived at an ack inbox.

    **Look at `ack_error` of what comes back**: anything but OK says that the message was
    refused. A code that is not known yet becomes UNKNOWN. With several streams on one subject
    there is one ack for each; `stream` tells them apart.

    Raises:
        MalformedData: `data` is no proper envelope with an ack in it.
    """
    ack = parse_flat(proto.Ack, _open(data, _Type.ACK))
    return Ack(
        stream=ack.stream,
        partition_subject=ack.partition_subject,
        msg_subject=ack.msg_subject,
        offset=ack.offset,
        ack_inbox=ack.ack_inbox,
        correlation_id=ack.correlation_id,
        ack_policy=_ack_policy(ack.ack_policy),
        reception_timestamp=ack.reception_timestamp,
        commit_timestamp=ack.commit_timestamp,
        ack_error=_ack_error(ack.ack_error),
    )


def is_envelope(data: bytes) -> bool:
    """Return True if `data` starts like an envelope; decoding may still fail.

    The start was chosen by the makers of the protocol so that no UTF-8 text begins with it.
    """
    return len(data) >= _HEADER_LENGTH and data.startswith(_MAGIC)


def _seal(payload: bytes, message_type: _Type, *, crc: bool) -> bytes:
    checksum = crc32c(payload).to_bytes(_CRC_LENGTH, "big") if crc else b""
    flags = _CRC_FLAG if crc else 0
    header_length = _HEADER_LENGTH + len(checksum)
    fixed = bytes((_VERSION, header_length, flags, message_type))
    return b"".join((_MAGIC, fixed, checksum, payload))


def _open(data: bytes, wanted: _Type) -> bytes:
    """Check the header and return the payload, which may be empty."""
    if len(data) < _HEADER_LENGTH:
        raise MalformedData(
            f"no envelope: {len(data)} bytes, and the header alone has {_HEADER_LENGTH}"
        )
    if not data.startswith(_MAGIC):
        raise MalformedData(
            f"no envelope: it starts with {data[:4].hex(' ')}, not with {_MAGIC.hex(' ')}"
        )
    version, header_length, flags, message_type = data[len(_MAGIC) : _HEADER_LENGTH]
    if version != _VERSION:
        raise MalformedData(f"unknown envelope version {version}")
    if flags & ~_CRC_FLAG:
        raise MalformedData(f"unknown envelope flags {flags:#010b}")
    if message_type != wanted:
        raise MalformedData(
            f"the envelope holds {_type_name(message_type)}, not {_type_name(wanted)}"
        )
    expected_length = _HEADER_LENGTH + (_CRC_LENGTH if flags & _CRC_FLAG else 0)
    if header_length != expected_length or header_length > len(data):
        raise MalformedData(
            f"the envelope header says it has {header_length} bytes and must have"
            f" {expected_length}; {len(data)} bytes are there in all"
        )
    payload = data[header_length:]
    if flags & _CRC_FLAG:
        stated, actual = int.from_bytes(data[_HEADER_LENGTH:header_length], "big"), crc32c(payload)
        if stated != actual:
            raise MalformedData(
                f"the envelope states the checksum {stated:#010x}; its payload has {actual:#010x}"
            )
    return payload


def _type_name(message_type: int) -> str:
    match message_type:
        case _Type.PUBLISH:
            return "a published message"
        case _Type.ACK:
            return "an ack"
        case _ if message_type <= _LAST_INTERNAL_TYPE:
            return f"an internal message of the servers (type {message_type})"
        case _:
            return f"a message of unknown type {message_type}"


def _ack_policy(value: int) -> AckPolicy:
    try:
        return AckPolicy(value)
    except ValueError:
        raise MalformedData(f"unknown ack policy {value:d}") from None


def _ack_error(value: int) -> AckError:
    try:
        return AckError(value)
    except ValueError:
        # Whatever a newer server means by it, it is a refusal and must not pass for success.
        return AckError.UNKNOWN
