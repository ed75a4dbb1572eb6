"""One stored message as bytes: a record with checksums. Pure.

A record is as long as the same message in a segment file of a v1.9.0 server, so that segments roll
and expire at the same messages as there. The format itself is our own:

====== ========================= =================================================================
Bytes  Field                     Meaning
====== ========================= =================================================================
4      marker                    start of a record, for a search after damage
4      size                      of the whole record
8      offset
8      timestamp                 Unix nanoseconds
4 4 4  key, value, headers       length, length, number
4      checksum of the header    of the fields above, seeded with the position in the file
4      checksum of the body      of what follows, seeded with the checksum of the header
...    key, value, headers       each header: length of the name (2), of the value (4), name, value
====== ========================= =================================================================

The header has a checksum of its own so that a damaged body can be skipped. The position is part of
it so that bytes inside a message, or of an earlier write, are never mistaken for a record. Subject
and reply subject are stored as the headers `subject` and `reply`.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from liftbridge_aio.model import Message

MARKER: Final = b"\xf7Lb\x01"
"""The first bytes of every record."""

MAX_HEADER_NAME_BYTES: Final = 0xFFFF
"""Longest header name that fits in a record; half of that crashes a real server."""

_HEADER: Final = Struct(">4sIqqIIIII")
_FIELDS: Final = Struct(">4sIqqIII")
_CHECKSUMS: Final = Struct(">II")
_LENGTHS: Final = Struct(">HI")
_POSITION_MASK: Final = 0xFFFF_FFFF

HEADER_BYTES: Final = _HEADER.size
"""Length of the part before key and value."""


class TornRecord(Exception):
    """The bytes end before the record does."""

    def __init__(self, needed: int) -> None:
        super().__init__(f"the record is at least {needed} bytes long")
        self.needed = needed
        """Bytes of the record, as far as known."""


class CorruptRecord(Exception):
    """The bytes are not those that were stored."""

    def __init__(self, what: str, size: int | None = None) -> None:
        super().__init__(what)
        self.size = size
        """Bytes to the next record, None if the header is damaged."""


class RecordMark(NamedTuple):
    """The size, offset and timestamp of a record."""

    size: int
    offset: int
    timestamp: int


def record_size(message: Message) -> int:
    """Return the size of a message in a segment, on a v1.9.0 server and here."""
    size = HEADER_BYTES + len(message.key) + len(message.value)
    for name, value in message.headers.items():
        encoded = len(name) if name.isascii() else len(name.encode())
        size += 6 + encoded + len(value)
    return size


def encode(message: Message, position: int) -> bytes:
    """Encode a message as the record at `position` of its file.

    Raises:
        ValueError: the message does not fit in a record: a header name is longer than
            `MAX_HEADER_NAME_BYTES`, or the subjects are not those in the headers.
    """
    headers = message.headers
    _check_subjects(message)
    body = [message.key, message.value]
    for name, value in headers.items():
        encoded_name = name.encode()
        if len(encoded_name) > MAX_HEADER_NAME_BYTES:
            raise ValueError(f"a header name of {len(encoded_name)} bytes is too long to be stored")
        body += (_LENGTHS.pack(len(encoded_name), len(value)), encoded_name, value)
    joined = b"".join(body)
    fields = _FIELDS.pack(
        MARKER,
        HEADER_BYTES + len(joined),
        message.offset,
        message.timestamp,
        len(message.key),
        len(message.value),
        len(headers),
    )
    header_checksum = crc32(fields, position & _POSITION_MASK)
    return b"".join(
        (fields, _CHECKSUMS.pack(header_checksum, crc32(joined, header_checksum)), joined)
    )


def check(data: bytes, start: int, position: int) -> RecordMark:
    """Check the record at `data[start]`, which is at `position` of its file.

    Raises:
        TornRecord: `data` ends too early.
        CorruptRecord: a checksum does not match.
    """
    fields, _ = _checked(data, start, position)
    return RecordMark(fields[1], fields[2], fields[3])


def decode(
    data: bytes, start: int, position: int, stream: str, partition: int
) -> tuple[Message, int]:
    """Check and decode the record at `data[start]`, which is at `position` of its file.

    Returns:
        The message, and the index in `data` of the next record.

    Raises:
        TornRecord: `data` ends too early.
        CorruptRecord: a checksum does not match.
    """
    fields, body = _checked(data, start, position)
    _, size, offset, timestamp, key_length, value_length, header_count, _, _ = fields
    value_end = key_length + value_length
    packed = body[value_end:]
    read_headers = _cached_headers if len(packed) <= _MAX_CACHED_BYTES else _headers
    headers, subject, reply_subject = read_headers(packed, header_count)
    message = Message(
        stream,
        partition,
        offset,
        body[:key_length],
        body[key_length:value_end],
        timestamp,
        headers.copy(),
        subject,
        reply_subject,
    )
    return message, start + size


def find_header(data: bytes, start: int, position: int) -> int | None:
    """Find the next intact header, from `data[start]` on.

    Args:
        data: part of a file.
        start: index in `data` to begin at.
        position: position of `data[0]` in the file.

    Returns:
        Index in `data` of the header, None if there is none.
    """
    at = data.find(MARKER, start)
    while at >= 0:
        try:
            check(data, at, position + at)
        except TornRecord as torn:
            if torn.needed > HEADER_BYTES:
                return at
        except CorruptRecord as corrupt:
            if corrupt.size is not None:
                return at
        else:
            return at
        at = data.find(MARKER, at + 1)
    return None


def _checked(
    data: bytes, start: int, position: int
) -> tuple[tuple[bytes, int, int, int, int, int, int, int, int], bytes]:
    body_at = start + HEADER_BYTES
    if len(data) < body_at:
        raise TornRecord(HEADER_BYTES)
    fields = _HEADER.unpack_from(data, start)
    size, header_checksum, body_checksum = fields[1], fields[7], fields[8]
    if crc32(data[start : start + _FIELDS.size], position & _POSITION_MASK) != header_checksum:
        raise CorruptRecord("the checksum of its header does not match")
    body = data[body_at : start + size]
    if len(body) < size - HEADER_BYTES:
        raise TornRecord(size)
    if crc32(body, header_checksum) != body_checksum:
        raise CorruptRecord("the checksum of its body does not match", size)
    return fields, body


def _headers(packed: bytes, count: int) -> tuple[dict[str, bytes], str, str]:
    headers: dict[str, bytes] = {}
    at = 0
    for _ in range(count):
        name_length, length = _LENGTHS.unpack_from(packed, at)
        name_at = at + _LENGTHS.size
        header_at = name_at + name_length
        at = header_at + length
        headers[packed[name_at:header_at].decode()] = packed[header_at:at]
    return headers, headers.get("subject", b"").decode(), headers.get("reply", b"").decode()


# Most messages of a stream have the same headers, and decoding these is half the work.
_cached_headers = lru_cache(maxsize=32)(_headers)
_MAX_CACHED_BYTES: Final = 512


def _check_subjects(message: Message) -> None:
    headers = message.headers
    if (
        headers.get("subject", b"") != message.subject.encode()
        or headers.get("reply", b"") != message.reply_subject.encode()
    ):
        raise ValueError("a stored message has its subject and reply subject among its headers")
