"""Frames as a server sends them, and what the client's side makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes
from hpack import Encoder

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 1
ACK: Final = 1
END_HEADERS: Final = 4
PADDED: Final = 8

_HEADER: Final = Struct(">IBI")
_PREFIX: Final = Struct(">BI")
_NUMBER: Final = Struct(">I")
WIDEST: Final = 2**31 - 1

RESPONSE: Final = [(":status", "200"), ("content-type", "application/grpc+proto")]
TRAILERS: Final = [("grpc-status", "0")]


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return _HEADER.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def grpc(*messages: bytes) -> bytes:
    return b"".join(_PREFIX.pack(0, len(message)) + message for message in messages)


def flow_size(messages: Sequence[bytes]) -> int:
    return sum(map(len, messages)) + 5 * len(messages)


def data(stream_id: int, payload: bytes, *, end: bool = False, padding: int | None = None) -> bytes:
    flags = END_STREAM if end else 0
    if padding is not None:
        flags |= PADDED
        payload = bytes([padding]) + payload + bytes(padding)
    return frame(DATA, flags, stream_id, payload)


def response(stream_id: int, *, encoder: Encoder | None = None) -> bytes:
    return frame(HEADERS, END_HEADERS, stream_id, (encoder or Encoder()).encode(RESPONSE))


def trailers(stream_id: int) -> bytes:
    return frame(HEADERS, END_HEADERS | END_STREAM, stream_id, Encoder().encode(TRAILERS))


def window_update(stream_id: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, _NUMBER.pack(increment))


def rst_stream(stream_id: int) -> bytes:
    return frame(RST_STREAM, 0, stream_id, _NUMBER.pack(8))


PING_FRAME: Final = frame(PING, 0, 0, b"12345678")
GOAWAY_FRAME: Final = frame(GOAWAY, 0, 0, bytes(8))
OPENING: Final = frame(SETTINGS, 0, 0) + 2 * frame(SETTINGS, ACK, 0)
"""The server's first frames: its settings, and the acks of both of ours."""


def client(streams: Sequence[int], *, window: int = WIDEST) -> H2Connection:
    """Return h2 as the client's side that has opened these streams, with its output taken."""
    connection = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
    connection.initiate_connection()
    connection.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window})
    connection.increment_flow_control_window(WIDEST - 65535)
    request = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "here")]
    for stream_id in streams:
        connection.send_headers(stream_id, request)
    connection.data_to_send()
    return connection


def increments(credit: bytes) -> dict[int, int]:
    """Read WINDOW_UPDATE frames: credit by stream."""
    found: dict[int, int] = {}
    for start in range(0, len(credit), 13):
        head, flags, stream_id = _HEADER.unpack_from(credit, start)
        (increment,) = _NUMBER.unpack_from(credit, start + 9)
        assert (head, flags) == (4 << 8 | WINDOW_UPDATE, 0)
        assert 1 <= increment <= WIDEST
        found[stream_id] = found.get(stream_id, 0) + increment
    return found
