"""The scenes that a hostile server plays on a call, by name."""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hpack import Encoder

from support.peers.hostile_server import Call, Line
from support.peers.http2_bytes import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    GOAWAY,
    GRPC,
    HEADERS,
    MAX_FRAME,
    PADDED,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    block,
    data,
    frame,
    go_away,
    headers,
    message,
    reset,
    settings,
    trailers,
    window_update,
)

HEADER_TABLE, ENABLE_PUSH, MAX_STREAMS, WINDOW, FRAME_SIZE, LIST_SIZE = range(1, 7)

HANDSHAKE: Final = message(b"")
Frames = Callable[[int], bytes]


class Effect(enum.Enum):
    """The effect of frames sent instead of an answer, or in the middle of one."""

    NONE = "none"
    """The call goes on: the proper answer that follows is taken."""
    ENDS_CALL = "ends the call"
    """The client gives the call up, or takes it for ended, by itself."""
    ENDS_LINK = "ends the link"
    """The client closes the connection, by itself."""


@dataclass(frozen=True)
class Scene:
    """The answer to a request.

    Attributes:
        effect: what it does.
        said: the frames, given the number of the call's stream.
        accepted: whether the headers of an answer, and a handshake, come before.
        answers: whether the frames hold the headers of the answer.
    """

    effect: Effect
    said: Frames
    accepted: bool = False
    answers: bool = False

    async def play(self, line: Line, call: Call) -> bool:
        """Do as a `Plan` does."""
        if self.accepted and not call.accepted:
            await line.accept(call)
            if call.name == "Subscribe":
                await line.say(data(call.number, HANDSHAKE))
        await line.say(self.said(call.number))
        call.accepted = call.accepted or self.answers
        return self.effect is Effect.NONE


def none(said: Frames) -> Scene:
    """Frames that mean nothing."""
    return Scene(Effect.NONE, said)


def answered(said: Frames) -> Scene:
    """Headers of an answer that mean nothing else."""
    return Scene(Effect.NONE, said, answers=True)


def call(said: Frames) -> Scene:
    """Frames that end the call, before anything was answered."""
    return Scene(Effect.ENDS_CALL, said)


def link(said: Frames) -> Scene:
    """Frames that break the rules of HTTP/2, before anything was answered."""
    return Scene(Effect.ENDS_LINK, said)


def call_later(said: Frames) -> Scene:
    """Frames that end the call in the middle of an answer."""
    return Scene(Effect.ENDS_CALL, said, accepted=True)


def link_later(said: Frames) -> Scene:
    """Frames that break the rules of HTTP/2 in the middle of an answer."""
    return Scene(Effect.ENDS_LINK, said, accepted=True)


def indexed_bomb(stream: int) -> bytes:
    """A few KiB that are tens of MiB of headers once unpacked: the same entry again and again."""
    block = Encoder().encode([("x", "y" * 4000)]) + b"\xbe" * 16_000
    return frame(HEADERS, END_HEADERS, stream, block)


def continuations(stream: int, count: int, size: int, *, end: bool = False) -> bytes:
    """A header block in many pieces."""
    piece = b"\x00\x01x" + b"\x7f\x00" + b"y" * 127
    first = frame(HEADERS, 0, stream, block(GRPC))
    more = frame(CONTINUATION, 0, stream, (piece * (size // len(piece) + 1))[:size])
    last = frame(CONTINUATION, END_HEADERS, stream) if end else b""
    return first + more * count + last


def status_of(status: object, **more: str) -> Frames:
    """Trailers alone, as refusals come."""
    return lambda n: headers(n, {**GRPC, "grpc-status": str(status), **more}, end=True)


SCENES: Final[dict[str, Scene]] = {
    # Frames
    "frame longer than allowed": link(lambda n: frame(DATA, 0, n, b"", length=MAX_FRAME + 1)),
    "headers of 16 MiB": link(lambda n: frame(HEADERS, 4, n, b"", length=2**24 - 1)),
    "unknown frame of 16 MiB": link(lambda n: frame(0xEE, 0, n, b"", length=2**24 - 1)),
    "DATA on the connection": link(lambda _: frame(DATA, 0, 0, b"x")),
    "HEADERS on the connection": link(lambda _: frame(HEADERS, 4, 0, block(GRPC))),
    "SETTINGS on a stream": link(lambda n: frame(SETTINGS, 0, n)),
    "SETTINGS of odd length": link(lambda _: frame(SETTINGS, 0, 0, b"12345")),
    "SETTINGS acknowledged with settings": link(lambda _: frame(SETTINGS, ACK, 0, bytes(6))),
    "PING of 7 bytes": link(lambda _: frame(PING, 0, 0, bytes(7))),
    "PING on a stream": link(lambda n: frame(PING, 0, n, bytes(8))),
    "RST_STREAM of 3 bytes": link(lambda n: frame(RST_STREAM, 0, n, bytes(3))),
    "RST_STREAM on the connection": link(lambda _: frame(RST_STREAM, 0, 0, bytes(4))),
    "RST_STREAM of an idle stream": none(lambda n: reset(n + 100)),
    "WINDOW_UPDATE of 3 bytes": link(lambda _: frame(WINDOW_UPDATE, 0, 0, bytes(3))),
    "PRIORITY of 4 bytes": link(lambda n: frame(PRIORITY, 0, n, bytes(4))),
    "GOAWAY of 3 bytes": link(lambda _: frame(GOAWAY, 0, 0, bytes(3))),
    "GOAWAY on a stream": link(lambda n: frame(GOAWAY, 0, n, bytes(8))),
    "padding longer than the frame": link(lambda n: frame(DATA, PADDED, n, b"\xffx")),
    "padding of headers longer than they are": link(
        lambda n: frame(HEADERS, PADDED | END_HEADERS, n, b"\xffx")
    ),
    "a stream that depends on itself": link(
        lambda n: frame(PRIORITY, 0, n, struct.pack(">IB", n, 0))
    ),
    "garbage": link(lambda _: bytes(range(256)) * 100),
    "HTTP/1.1 in the middle": link(lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    # Headers
    "headers that are no HPACK": link(lambda n: frame(HEADERS, 4, n, b"\xff" * 50)),
    "an index that the table has not": link(lambda n: frame(HEADERS, 4, n, b"\xbf")),
    "table larger than agreed": link(lambda n: frame(HEADERS, 4, n, b"\x3f\xff\xff\x7f")),
    "header bomb": link(indexed_bomb),
    "endless CONTINUATION": link(lambda n: continuations(n, 80, MAX_FRAME)),
    "endless empty CONTINUATION": link(lambda n: continuations(n, 500, 0)),
    "CONTINUATION to no headers": link(lambda n: frame(CONTINUATION, 4, n, block(GRPC))),
    "CONTINUATION of another stream": link(
        lambda n: frame(HEADERS, 0, n, block(GRPC)) + frame(CONTINUATION, 4, n + 2)
    ),
    "another frame within a header block": link(
        lambda n: frame(HEADERS, 0, n, block(GRPC)) + frame(PING, 0, 0, bytes(8))
    ),
    "DATA within a header block": link(
        lambda n: frame(HEADERS, 0, n, block(GRPC)) + data(n, HANDSHAKE)
    ),
    "header name in capitals": answered(lambda n: headers(n, {**GRPC, "X-Big": "1"})),
    "header beyond ASCII": link(
        lambda n: frame(HEADERS, 4, n, block(GRPC) + b"\x00\x06x-hack\x02\xff\xfe")
    ),
    "pseudo header after others": answered(
        lambda n: headers(n, {"content-type": "application/grpc", ":status": "200"})
    ),
    "no status of HTTP": call(lambda n: headers(n, {"content-type": "application/grpc"})),
    "two statuses of HTTP": call(
        lambda n: frame(HEADERS, 4, n, block([(":status", "200"), (":status", "500")]))
    ),
    "status of HTTP that is no number": call(lambda n: headers(n, {**GRPC, ":status": "many"})),
    "pseudo header of requests": answered(lambda n: headers(n, {":path": "/x", **GRPC})),
    "header of one connection": answered(lambda n: headers(n, {**GRPC, "connection": "close"})),
    "headers that end the call": call(lambda n: headers(n, GRPC, end=True)),
    "status 404": call(lambda n: headers(n, {":status": "404", "content-type": "text/html"})),
    "wrong content type": call(
        lambda n: headers(n, {**GRPC, "content-type": "text/html"}) + data(n, b"<html>" * 99)
    ),
    "no content type": call(lambda n: headers(n, {":status": "200"}) + data(n, HANDSHAKE)),
    "other encoding of messages": call(
        lambda n: headers(n, {**GRPC, "content-type": "application/grpc+json"})
    ),
    "wrong content length": call(
        lambda n: headers(n, {**GRPC, "content-length": "1"}) + data(n, HANDSHAKE) + trailers(n, 14)
    ),
    "absurd content length": link(lambda n: headers(n, {**GRPC, "content-length": "9" * 5000})),
    "endless informational answers": none(lambda n: headers(n, {":status": "103"}) * 500),
    "headers twice": link(lambda n: headers(n, GRPC) + headers(n, GRPC)),
    # Statuses
    "status of gRPC that is no number": call(status_of("xyz")),
    "absurd status of gRPC": call(status_of(10**30)),
    "negative status of gRPC": call(status_of(-1)),
    "empty status of gRPC": call(status_of("")),
    "status of gRPC of Arabic digits": call(status_of("5 ")),
    "text of 60 KB": link(status_of(13, **{"grpc-message": "%41" * 20_000})),
    "text that is no percent encoding": call(status_of(13, **{"grpc-message": "%zz%%%ff%0"})),
    "details that are no base64": call(status_of(13, **{"grpc-status-details-bin": "***"})),
    "binary metadata that is no base64": call(status_of(13, **{"x-bin": "*"})),
    "metadata that only looks binary": answered(lambda n: headers(n, {**GRPC, "x-bin": "====="})),
    # Messages
    "message of 4 GiB": call_later(lambda n: data(n, message(b"xx", length=2**32 - 1))),
    "message beyond max_receive_bytes": call_later(
        lambda n: data(n, message(b"", length=2**20 + 1))
    ),
    "compressed message": call_later(lambda n: data(n, message(b"x", flag=1))),
    "flag of no meaning": call_later(lambda n: data(n, message(b"x", flag=255))),
    "message that is none": call_later(lambda n: data(n, message(b"\xff" * 20)) + trailers(n)),
    "message cut off by the end": call_later(
        lambda n: data(n, message(b"x", length=9)) + trailers(n)
    ),
    "prefix cut off by the end": call_later(lambda n: data(n, b"\0\0") + trailers(n)),
    "message cut off by END_STREAM": call_later(
        lambda n: data(n, message(b"x", length=9), end=True)
    ),
    "end without trailers": call_later(lambda n: data(n, b"", end=True)),
    "trailers without a status": call_later(lambda n: headers(n, {"x": "y"}, end=True)),
    "trailers that do not end": link_later(lambda n: headers(n, {"grpc-status": "0"})),
    "trailers with a pseudo header": call_later(lambda n: headers(n, GRPC, end=True)),
    "DATA before headers": link(lambda n: data(n, HANDSHAKE)),
    # After the end
    "DATA after the end": call_later(lambda n: trailers(n, 14) + data(n, HANDSHAKE)),
    "headers after the end": call_later(lambda n: trailers(n, 14) + headers(n, GRPC)),
    "end after the end": call_later(lambda n: trailers(n, 14) * 3),
    "DATA after a reset": call_later(lambda n: reset(n) + data(n, HANDSHAKE) * 3),
    "RST_STREAM after the end": call_later(lambda n: trailers(n, 14) + reset(n) * 3),
    "WINDOW_UPDATE after the end": call_later(lambda n: trailers(n, 14) + window_update(n, 9) * 3),
    # Streams
    "DATA on an idle stream": link(lambda n: data(n + 100, HANDSHAKE)),
    "HEADERS on an idle stream": link(lambda n: headers(n + 100, GRPC)),
    "HEADERS on an even stream": link(lambda _: headers(2, GRPC)),
    "DATA on an even stream": link(lambda _: data(2, HANDSHAKE)),
    "push": link(
        lambda n: frame(
            PUSH_PROMISE,
            END_HEADERS,
            n,
            struct.pack(">I", 2)
            + block({":method": "GET", ":scheme": "http", ":authority": "x", ":path": "/"}),
        )
    ),
    "push of an odd stream": link(
        lambda n: frame(PUSH_PROMISE, END_HEADERS, n, struct.pack(">I", 77))
    ),
    "reset": call(reset),
    "reset refused": call(lambda n: reset(n, 7)),
    "reset with a code of no meaning": call(lambda n: reset(n, 2**32 - 1)),
    # Windows
    "WINDOW_UPDATE of 0 on the connection": link(lambda _: window_update(0, 0)),
    "WINDOW_UPDATE of 0": call(lambda n: window_update(n, 0)),
    "window of the connection overflows": link(lambda _: window_update(0, 2**31 - 1) * 2),
    "window of the stream overflows": call(lambda n: window_update(n, 2**31 - 1) * 2),
    "WINDOW_UPDATE of an idle stream": link(lambda n: window_update(n + 100, 1)),
    "windows overflow by settings": link(
        lambda n: window_update(n, 2**31 - 2**17) + settings((WINDOW, 2**31 - 1))
    ),
    "windows of 4 GiB": link(lambda _: settings((WINDOW, 2**32 - 1))),
    "frames of 0 bytes": link(lambda _: settings((FRAME_SIZE, 0))),
    "frames of 4 GiB": link(lambda _: settings((FRAME_SIZE, 2**32 - 1))),
    "push enabled twice": link(lambda _: settings((ENABLE_PUSH, 2))),
    "no window, ever": none(lambda _: settings((WINDOW, 0))),
    "no streams": none(lambda _: settings((MAX_STREAMS, 0))),
    "no header table": none(lambda _: settings((HEADER_TABLE, 0))),
    "header table of 4 GiB": none(lambda _: settings((HEADER_TABLE, 2**32 - 1))),
    "headers of 0 bytes": none(lambda _: settings((LIST_SIZE, 0))),
    "settings of no meaning": none(lambda _: settings(*((n, n) for n in range(1000, 3000)))),
    "acknowledges what nobody set": none(lambda _: frame(SETTINGS, ACK, 0) * 20),
    # Going away
    "GOAWAY": link(go_away),
    "GOAWAY before this call": link(lambda _: go_away(0)),
    "GOAWAY of the future": link(lambda _: go_away(2**31 - 1)),
    "GOAWAY with a code of no meaning": link(lambda n: go_away(n, 2**32 - 1, b"\xff" * 9999)),
    "GOAWAY for too many pings": link(lambda n: go_away(n, 11, b"too_many_pings")),
    "GOAWAY, then DATA": link(lambda n: go_away(n) + headers(n, GRPC) + data(n, HANDSHAKE)),
    "GOAWAY twice, to grow": link(lambda n: go_away(1) + go_away(n + 100)),
}
