"""Envelopes of published messages made fast, and envelopes of acks read many at a time.

`envelope` does the same one by one and looks at everything; what it makes and what is made here
mean the same. That takes up to a hundred times as long, as it goes through betterproto2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.model import UNCHECKED_OFFSET, Ack, AckPolicy

from .codec import PublishRefusal, decode_acks, decode_publish_response
from .crc32c import crc32c
from .envelope import decode_ack

_UNCHECKED_START: Final = bytes.fromhex("b90e43b4 00 08 00 00")
"""A published message without a checksum."""
_CHECKED_START: Final = bytes.fromhex("b90e43b4 00 0c 01 00")
"""The same with one, which follows."""
_ACK_START: Final = bytes.fromhex("b90e43b4 00 08 00 01")
"""An ack as servers send it, without a checksum."""

# Tags of Message's fields.
_OFFSET: Final = b"\x08"
_KEY: Final = b"\x12"
_VALUE: Final = b"\x1a"
_HEADERS: Final = b"\x4a"
_ACK_INBOX: Final = b"\x52"
_CORRELATION_ID: Final = b"\x5a"
_ACK_POLICY: Final = b"\x60"

# Tags of an entry of its headers.
_NAME: Final = b"\x0a"
_CONTENT: Final = b"\x12"

_ACK_IN_RESPONSE: Final = b"\x0a"
"""Tag of the ack in a PublishResponse, which is what the codec reads many of at once."""


def publish_fields(
    ack_inbox: str, ack_policy: AckPolicy, expected_offset: int = UNCHECKED_OFFSET
) -> bytes:
    """Make what many messages have in common; for `encode_envelope`."""
    inbox = ack_inbox.encode()
    return b"".join(
        (
            _OFFSET + _varint(expected_offset % 2**64),
            _ACK_INBOX + _varint(len(inbox)) + inbox,
            _ACK_POLICY + _varint(ack_policy),
        )
    )


def encode_envelope(
    fields: bytes,
    value: bytes,
    correlation_id: str,
    *,
    key: bytes | None = None,
    headers: Mapping[str, bytes] | None = None,
    crc: bool = False,
) -> bytes:
    """Make the bytes that publish a message; see `envelope.encode_message`, which checks more.

    Encoded protobuf messages that are joined merge, so `fields` (`publish_fields`) is encoded once.
    """
    correlation = correlation_id.encode()
    before, between = _around(len(value), len(correlation))
    parts = [_UNCHECKED_START, fields, before, value, between, correlation]
    if key:
        parts += _KEY, _varint(len(key)), key
    for name, content in (headers or {}).items():
        entry = _field(_NAME, name.encode()) + _field(_CONTENT, content)
        parts += _HEADERS, _varint(len(entry)), entry
    if crc:
        payload = b"".join(parts[1:])
        return b"".join((_CHECKED_START, crc32c(payload).to_bytes(4, "big"), payload))
    return b"".join(parts)


@lru_cache(maxsize=4096)
def _around(value_size: int, correlation_size: int) -> tuple[bytes, bytes]:
    """Make what stands before the value, and between it and the correlation id."""
    return _VALUE + _varint(value_size), _CORRELATION_ID + _varint(correlation_size)


def _field(tag: bytes, content: bytes) -> bytes:
    return tag + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def decode_ack_envelopes(datas: Sequence[bytes]) -> list[Ack | MalformedData]:
    """Read what arrived at an ack inbox, in order; refusals are acks too, see `Ack.ack_error`.

    Returns:
        For each the ack, or the error that says why it is none. Nothing is raised, since whoever
        knows an inbox can send anything to it.
    """
    responses = [_as_response(data) for data in datas if data.startswith(_ACK_START)]
    if len(responses) == len(datas):
        acks = decode_acks(responses)
        if acks is not None:
            return list(acks)
    return [_decoded(data) for data in datas]


def _decoded(data: bytes) -> Ack | MalformedData:
    try:
        if not data.startswith(_ACK_START):
            return decode_ack(data)
        answer = decode_publish_response(_as_response(data))
    except MalformedData as error:
        return error
    if isinstance(answer, PublishRefusal):
        return MalformedData("an ack envelope holds something else beside the ack")
    return answer


def _as_response(data: bytes) -> bytes:
    """Put the ack of an envelope where a PublishResponse has its own."""
    return _before_ack(len(data) - len(_ACK_START)) + data[len(_ACK_START) :]


@lru_cache(maxsize=4096)
def _before_ack(size: int) -> bytes:
    return _ACK_IN_RESPONSE + _varint(size)
