"""Server-Sent Events as the protocol uses them: encoder and incremental parser. Pure.

Section 5.8 of the protocol, and section 9.2 of the HTML standard.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from liftbridge_aio.errors import MalformedData

from .parsing import parse_json
from .protocol import response_cursor, response_offset

DATA: Final = "data"
CONTROL: Final = "control"

_BOM: Final = b"\xef\xbb\xbf"
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_KINDS: Final = {
    b"event: data": DATA,
    b"event:data": DATA,
    b"event: control": CONTROL,
    b"event:control": CONTROL,
}
"""First lines of events."""
_BASE64_LINE: Final = 57 * 256
"""Bytes that one line of base64 holds; a multiple of three."""


class Event(NamedTuple):
    """An event: `data` has its lines joined with line feeds."""

    kind: str
    data: bytes


class Control(NamedTuple):
    """A control event: the end of the data before it."""

    next_offset: str
    cursor: str | None
    up_to_date: bool
    closed: bool


class Parser:
    """Cuts a byte stream into events.

    Lines end with CR LF, LF or CR, and with nothing else: text may contain other separators. Data
    that is still incomplete is kept as it came, so the cost per byte does not depend on the size
    of chunks and events.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        """The incomplete event; all line ends in it are LF."""
        self._ends_line = True
        """The last byte was a line end, so that another one ends the event."""
        self._skip_lf = False
        """The last byte was CR: an LF that follows belongs to it."""
        self._at_start = True

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next bytes and return the events that they complete."""
        if self._skip_lf and chunk:
            self._skip_lf = False
            if chunk[:1] == b"\n":
                chunk = chunk[1:]
        if b"\r" in chunk:
            self._skip_lf = chunk[-1:] == b"\r"
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if not chunk:
            return []
        if self._ends_line and chunk[:1] == b"\n":  # the first half of an end is in the last part
            chunk = b"".join([*self._parts, chunk])
            self._parts = []
        head, end, rest = chunk.rpartition(b"\n\n")
        self._ends_line = chunk[-1:] == b"\n"
        if not end:
            self._parts.append(chunk)
            return []
        blocks = b"".join([*self._parts, head]) if self._parts else head
        self._parts = [rest] if rest else []
        if self._at_start:
            self._at_start = False
            blocks = blocks.removeprefix(_BOM)
        return _events(blocks)


def _events(blocks: bytes) -> list[Event]:
    """Return the events of blocks of lines that blank lines separate."""
    found = []
    for block in blocks.split(b"\n\n"):
        # Most events are a line with their kind and one with data.
        first, start, data = block.partition(b"\ndata:")
        kind = _KINDS.get(first)
        if kind is not None and start and b"\n" not in data:
            parts = kind, data.removeprefix(b" ")
            found.append(tuple.__new__(Event, parts))  # twice as fast as Event()
        elif event := _uniform_event(block) or _any_event(block):
            found.append(event)
    return found


def _uniform_event(block: bytes) -> Event | None:
    """Return the event of an `event:` line and data lines that all begin alike; else None.

    Servers send nothing else, and this is several times as fast as `_any_event`.
    """
    lines = block.count(b"\n")
    spaced = block.count(b"\ndata: ")
    if spaced == lines:
        start = b"\ndata: "
    elif not spaced and block.count(b"\ndata:") == lines:
        start = b"\ndata:"
    else:
        return None
    head, _, data = block.partition(start)
    kind = _KINDS.get(head)
    return None if kind is None or not lines else Event(kind, data.replace(start, b"\n"))


def _any_event(block: bytes) -> Event | None:
    kind, lines = "message", []
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"data":
            lines.append(value.removeprefix(b" "))
        elif name == b"event":
            kind = value.removeprefix(b" ").decode(errors="replace")
    return Event(kind, b"\n".join(lines)) if lines else None


def parse_control(data: bytes) -> Control:
    """Return what the data of a control event says.

    Raises:
        MalformedData: it is no JSON object with an offset.
    """
    try:
        fields = parse_json(data)
        offset, cursor = fields["streamNextOffset"], fields.get("streamCursor")
        if not isinstance(offset, str) or not (cursor is None or isinstance(cursor, str)):
            raise TypeError
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise MalformedData(
            f"the server sent a control event without an offset: {data[:64]!r}"
        ) from error
    offset, cursor = response_offset(offset, "a control event"), response_cursor(cursor)
    closed = fields.get("streamClosed") is True
    return Control(offset, cursor, closed or fields.get("upToDate") is True, closed)


def decode_base64(data: bytes) -> bytes:
    """Return the bytes of a data event in base64, which may be split over lines.

    Raises:
        MalformedData: it is no base64.
    """
    try:
        return binascii.a2b_base64(data.replace(b"\n", b""), strict_mode=True) if data else b""
    except binascii.Error as error:
        raise MalformedData(f"the server sent what is no base64: {data[:64]!r}") from error


def encode_event(kind: str, data: bytes) -> bytes:
    """Return the bytes of an event.

    Every line end in the data, CR included, starts another `data:` line, so that data cannot
    contain an event. Parsers remove a space after the colon, so all lines have one more if one of
    them begins with a space; otherwise none has, as the conformance tests of servers want it.
    """
    lines = _LINE_END.split(data)
    start = b"data: " if any(line.startswith(b" ") for line in lines) else b"data:"
    return b"event: %b\n%b%b\n\n" % (kind.encode(), start, (b"\n" + start).join(lines))


def encode_base64(data: bytes) -> bytes:
    """Return data as base64 in lines, as binary streams have it."""
    return b"\n".join(_base64_lines(data))


def _base64_lines(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), _BASE64_LINE):
        yield binascii.b2a_base64(data[start : start + _BASE64_LINE], newline=False)


def encode_control(control: Control) -> bytes:
    """Return the bytes of a control event; a closed stream's has no cursor."""
    fields: dict[str, str | bool] = {"streamNextOffset": control.next_offset}
    if control.cursor is not None and not control.closed:
        fields["streamCursor"] = control.cursor
    if control.up_to_date:
        fields["upToDate"] = True
    if control.closed:
        fields["streamClosed"] = True
    return encode_event(CONTROL, json.dumps(fields, separators=(",", ":")).encode())
