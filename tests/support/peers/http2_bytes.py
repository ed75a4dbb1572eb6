"""Frames of HTTP/2 made by hand, so that they may be wrong, and the few that a peer must read."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final

from hpack import Encoder

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_FRAME: Final = 2**14
HEADER_BYTES: Final = 9

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = range(5)
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(5, 10)

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8

GRPC: Final = {":status": "200", "content-type": "application/grpc"}


def frame(kind: int, flags: int, stream: int, body: bytes = b"", *, length: int = -1) -> bytes:
    """Make a frame, which may lie about its length."""
    size = len(body) if length < 0 else length
    return struct.pack(">IBI", size << 8 | kind, flags, stream) + body


def block(headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> bytes:
    """Pack headers without a trace in the table that both sides keep of them."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return Encoder().encode([(name, value, True) for name, value in pairs], huffman=False)


def headers(stream: int, fields: Mapping[str, str], *, end: bool = False) -> bytes:
    """Make a HEADERS frame that holds all of them."""
    return frame(HEADERS, END_HEADERS | end * END_STREAM, stream, block(fields))


def asks(path: str) -> dict[str, str]:
    """Return the headers of a call of gRPC."""
    return {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "broker",
        "te": "trailers",
        "content-type": "application/grpc",
    }


def trailers(stream: int, status: object = 0, **more: str) -> bytes:
    """Make the HEADERS frame that ends a call of gRPC."""
    return headers(stream, {"grpc-status": str(status), **more}, end=True)


def data(stream: int, payload: bytes, *, end: bool = False) -> bytes:
    """Make DATA frames of a payload."""
    pieces = [payload[at : at + MAX_FRAME] for at in range(0, len(payload), MAX_FRAME)] or [b""]
    last = len(pieces) - 1
    return b"".join(
        frame(DATA, END_STREAM * (end and number == last), stream, piece)
        for number, piece in enumerate(pieces)
    )


def message(body: bytes, *, flag: int = 0, length: int = -1) -> bytes:
    """Put the prefix of gRPC before a message; it may lie about the length."""
    return struct.pack(">BI", flag, len(body) if length < 0 else length) + body


def settings(*pairs: tuple[int, int]) -> bytes:
    """Make a SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *pair) for pair in pairs))


def window_update(stream: int, increment: int) -> bytes:
    """Make a WINDOW_UPDATE frame; 0 and the highest bit are forbidden, and possible."""
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", increment))


def reset(stream: int, code: int = 8) -> bytes:
    """Make an RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream, struct.pack(">I", code))


def go_away(last: int = 0, code: int = 0, text: bytes = b"") -> bytes:
    """Make a GOAWAY frame."""
    return frame(GOAWAY, 0, 0, struct.pack(">II", last, code) + text)


SETTINGS_ACK: Final = frame(SETTINGS, ACK, 0)
