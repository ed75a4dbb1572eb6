"""Cut records into the messages of a claimed log, and put them together again. Pure."""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

HEADER: Final = "claimed-log"
"""Header of every message of a claimed log."""
VERSION: Final = 1
WRITER_BYTES: Final = 16
PART_BYTES: Final = 512 * 1024
"""Most bytes of a record in one message: it stays below the usual limit, 1 MiB."""

_LAYOUT: Final = struct.Struct(">BB16sII")


class Kind(enum.IntEnum):
    """The kind of a message of a claimed log; the numbers are those of the header."""

    CLAIM = 0
    """A writer has taken the log over."""
    PART = 1
    """A record, or a part of one."""
    MARKER = 2
    """Nothing: it was written to make the server show what came before it."""


class Mark(NamedTuple):
    """The header of a message of a claimed log."""

    kind: Kind
    writer: bytes
    """Random bytes that a writer has drawn for its claim."""
    part: int = 0
    """Number of this part of the record."""
    parts: int = 1
    """Number of parts of the record."""

    def encode(self) -> bytes:
        """Return the value of the header."""
        return _LAYOUT.pack(VERSION, self.kind, self.writer, self.part, self.parts)


class LogRecord(NamedTuple):
    """A record of a claimed log."""

    offset: int
    """That of its last message."""
    value: bytes


def decode_mark(header: bytes | None) -> Mark | None:
    """Return the mark of a message; None if it has none, because somebody else wrote it.

    Raises:
        ValueError: it has another version.
    """
    if header is None:
        return None
    if len(header) != _LAYOUT.size or header[0] != VERSION:
        raise ValueError(header.hex() or "none")
    _, kind, *rest = _LAYOUT.unpack(header)
    return Mark(Kind(kind), *rest)


def parts_of(writer: bytes, value: bytes) -> Iterator[tuple[Mark, bytes]]:
    """Yield the messages of a record."""
    count = max(-(-len(value) // PART_BYTES), 1)
    for index in range(count):
        part = value[index * PART_BYTES : (index + 1) * PART_BYTES]
        yield Mark(Kind.PART, writer, index, count), part


class Assembler:
    """Puts records together from the messages of a log, from any offset on.

    A record counts once all its parts are there. One that was begun and not ended, because its
    writer crashed or was fenced, is passed over.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._writer = b""

    def feed(self, offset: int, mark: Mark | None, value: bytes) -> LogRecord | None:
        """Take the next message; return the record that it completes."""
        if mark is None or mark.kind is Kind.MARKER:
            return None
        if mark.kind is Kind.CLAIM or not mark.part:
            self._parts, self._writer = [], mark.writer
        if mark.kind is Kind.CLAIM:
            return None
        if mark.writer != self._writer or mark.part != len(self._parts):
            return None  # it began before the first message
        self._parts.append(value)
        if len(self._parts) < mark.parts:
            return None
        whole, self._parts = b"".join(self._parts), []
        return LogRecord(offset, whole)
