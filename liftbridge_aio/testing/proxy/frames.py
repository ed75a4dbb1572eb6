"""Finds the HTTP/2 frames in a stream of bytes (RFC 9113, sections 3.4 and 4.1). Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The bytes a client sends before its first frame."""
HEADER_BYTES: Final = 9
"""The size of a frame header."""
TYPE_KNOWN_BYTES: Final = 4
"""The number of leading bytes of a frame that hold its length and type."""


class FrameType(IntEnum):
    """The frame types that gRPC uses, with their numbers on the wire."""

    DATA = 0x0
    HEADERS = 0x1
    RST_STREAM = 0x3
    SETTINGS = 0x4
    PING = 0x6
    GOAWAY = 0x7
    WINDOW_UPDATE = 0x8
    CONTINUATION = 0x9


class Part(Enum):
    """The parts of a stream of frames."""

    PREFACE = "preface"
    """The first 24 bytes sent by a client."""
    LENGTH = "length and type"
    """The first 4 bytes of a frame."""
    FLAGS = "flags and stream"
    """The next 5 bytes."""
    PAYLOAD = "payload"
    """The bytes after the header: HPACK in a HEADERS frame, a gRPC message in a DATA frame."""
    UNKNOWN = "unknown bytes"
    """Bytes that are not cleartext HTTP/2, from the first invalid byte to the end of the stream."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of bytes that belong to the same part of the same frame."""

    part: Part
    start: int
    """The index in the scanned bytes at which it begins."""
    stop: int
    """The index in the scanned bytes at which it ends."""
    offset: int
    """Bytes of the same frame, or of the preface, before it."""
    frame_type: int | None = None
    """The type of the frame, known from its fifth byte on."""
    frame_bytes: int | None = None
    """The size of the frame with its header, known from its fifth byte on."""


class FrameScanner:
    """Parses the frames of one direction of a connection.

    It buffers nothing, and the split of the bytes into chunks makes no difference. A stream that
    does not begin as HTTP/2 requires (the preface of a client, then SETTINGS) has no frames.
    """

    def __init__(self, *, preface: bool) -> None:
        """Start at the first byte; `preface` is True for the direction from the client."""
        self._part = Part.PREFACE if preface else Part.LENGTH
        self._left = len(PREFACE) if preface else TYPE_KNOWN_BYTES
        self._offset = 0
        self._first_frame = True
        self._known = 0  # the first four bytes of a frame, as a number
        self._frame_type: int | None = None
        self._frame_bytes: int | None = None

    def scan(self, data: bytes) -> Iterator[Piece]:
        """Scan these bytes and return non-empty pieces that cover them all, in order."""
        start = 0
        while start < len(data):
            stop = self._stop_of_part(data, start)
            if stop > start:
                yield Piece(
                    self._part, start, stop, self._offset, self._frame_type, self._frame_bytes
                )
            self._pass(data, start, stop)
            start = stop

    def skip(self, data: bytes) -> None:
        """Scan these bytes like `scan` but return nothing, which is many times faster."""
        start = 0
        while start < len(data):
            if self._part is Part.LENGTH and not self._offset and not self._first_frame:
                start = _after_whole_frames(data, start)
            if start < len(data):
                stop = self._stop_of_part(data, start)
                self._pass(data, start, stop)
                start = stop

    def _stop_of_part(self, data: bytes, start: int) -> int:
        if self._part is Part.UNKNOWN:
            return len(data)
        stop = min(len(data), start + self._left)
        if self._part is not Part.PREFACE:
            return stop
        wanted = PREFACE[self._offset :]
        return next((at for at in range(start, stop) if data[at] != wanted[at - start]), stop)

    def _pass(self, data: bytes, start: int, stop: int) -> None:
        if self._part is Part.UNKNOWN:
            return
        if self._part is Part.LENGTH:
            for byte in data[start:stop]:
                self._known = self._known << 8 | byte
        self._offset += stop - start
        self._left -= stop - start
        if self._left and stop < len(data):  # an invalid byte within the preface
            self._part = Part.UNKNOWN
        while not self._left and self._part is not Part.UNKNOWN:
            self._enter_next_part()

    def _enter_next_part(self) -> None:
        if self._part is Part.LENGTH:
            length, self._frame_type = divmod(self._known, 256)
            if self._first_frame and self._frame_type != FrameType.SETTINGS:
                self._part, self._frame_type = Part.UNKNOWN, None
                return
            self._first_frame = False
            self._frame_bytes = HEADER_BYTES + length
            self._part, self._left = Part.FLAGS, HEADER_BYTES - TYPE_KNOWN_BYTES
        elif self._part is Part.FLAGS and self._frame_bytes is not None:
            self._part, self._left = Part.PAYLOAD, self._frame_bytes - HEADER_BYTES
        else:
            self._part, self._left = Part.LENGTH, TYPE_KNOWN_BYTES
            self._offset = self._known = 0
            self._frame_type = self._frame_bytes = None


def _after_whole_frames(data: bytes, start: int) -> int:
    """Return the start of the first incomplete frame."""
    while start + HEADER_BYTES <= len(data):
        stop = start + HEADER_BYTES + int.from_bytes(data[start : start + 3], "big")
        if stop > len(data):
            break
        start = stop
    return start
