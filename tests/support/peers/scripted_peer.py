"""An HTTP/2 server that does, frame by frame, what a test says.

It keeps the books of flow control in both directions by itself, without h2: what the client allows
it to send (`credit`), and what it allows the client (`room`). What the client must not do is noted
in `violations`.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from hpack import Decoder, Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FIRST_WINDOW: Final = 2**16 - 1
LARGEST_FRAME: Final = 2**14
BOUND: Final = 10.0
"""Seconds that anything may take here at most."""

OK_HEADERS: Final = {":status": "200", "content-type": "application/grpc"}


def grpc_message(payload: bytes, *, flag: int = 0) -> bytes:
    """Put the prefix of gRPC before a message."""
    return struct.pack(">BI", flag, len(payload)) + payload


def split_messages(body: bytes) -> list[bytes]:
    """Take gRPC messages apart."""
    messages = []
    while body:
        length = int.from_bytes(body[1:5], "big")
        assert body[0] == 0
        assert len(body) >= 5 + length
        messages.append(bytes(body[5 : 5 + length]))
        body = body[5 + length :]
    return messages


@dataclass(slots=True)
class PeerStream:
    """A call of the client, as the peer sees it."""

    number: int
    headers: dict[str, str]
    credit: int
    """Bytes that the peer may still send on it."""
    room: int
    """Bytes that the client may still send on it."""
    body: bytearray = field(default_factory=bytearray)
    ended: bool = False
    reset: int | None = None

    @property
    def messages(self) -> list[bytes]:
        """Return the messages that the client has sent on it."""
        return split_messages(bytes(self.body))


class Peer:
    """The server's side of one connection, without the connection.

    Args:
        settings: what it tells the client at once.
        acknowledges_settings: whether it does so by itself, at once.
    """

    def __init__(
        self,
        settings: Mapping[int, int] | None = None,
        *,
        acknowledges_settings: bool = True,
    ) -> None:
        self.acknowledges_settings = acknowledges_settings
        self.streams: dict[int, PeerStream] = {}
        self.frames: list[Frame] = []
        """Everything that the client has sent."""
        self.violations: list[str] = []
        self.credit = FIRST_WINDOW
        """Bytes that the peer may still send on the connection."""
        self.room = FIRST_WINDOW
        """Bytes that the client may still send on the connection."""
        self.stream_window = FIRST_WINDOW
        """The client's initial window of a new stream."""
        self.closed = False
        self.on_change: Callable[[], None] = lambda: None
        self._stream_room = FIRST_WINDOW
        self._largest_frame = LARGEST_FRAME
        self._out = bytearray()
        self._in = bytearray()
        self._preface_seen = False
        self._encoder, self._decoder = Encoder(), Decoder()
        self._unacknowledged: list[dict[int, int]] = []
        self._settings_to_acknowledge: list[dict[int, int]] = []
        self.settings(settings or {})

    # What the peer says. Nothing goes out before `take`.

    def take(self) -> bytes:
        """Return what has been said, to be sent."""
        said, self._out = bytes(self._out), bytearray()
        return said

    def raw(self, frame: Frame | bytes) -> None:
        """Say a frame, whatever it is."""
        self._out += frame if isinstance(frame, bytes) else frame.serialize()

    def settings(self, settings: Mapping[int, int]) -> None:
        """Say settings; they hold once the client has acknowledged them."""
        self._unacknowledged.append(dict(settings))
        self.raw(SettingsFrame(settings=dict(settings)))

    def acknowledge_settings(self) -> None:
        """Let the oldest settings of the client hold, and say so."""
        settings = self._settings_to_acknowledge.pop(0)
        window = settings.get(SettingsFrame.INITIAL_WINDOW_SIZE)
        if window is not None:
            for stream in self.streams.values():
                stream.credit += window - self.stream_window
            self.stream_window = window
        self.raw(SettingsFrame(flags=["ACK"]))

    def headers(
        self,
        stream: PeerStream,
        headers: Mapping[str, str],
        *,
        end: bool = False,
        pieces: int = 1,
    ) -> None:
        """Say headers or trailers, spread over CONTINUATION frames if there are more `pieces`."""
        block = self._encoder.encode(list(headers.items()))
        step = -(-len(block) // pieces)
        parts = [block[start : start + step] for start in range(0, len(block), step)]
        for position, part in enumerate(parts):
            frame: Frame
            if position == 0:
                frame = HeadersFrame(stream.number, part, flags=["END_STREAM"] if end else [])
            else:
                frame = ContinuationFrame(stream.number, part)
            if position == len(parts) - 1:
                frame.flags.add("END_HEADERS")
            self.raw(frame)

    def accept(self, stream: PeerStream, *, pieces: int = 1) -> None:
        """Say the headers of an answer."""
        self.headers(stream, OK_HEADERS, pieces=pieces)

    def end(self, stream: PeerStream, status: int = 0, text: str = "") -> None:
        """Say the trailers of an answer."""
        trailers = {"grpc-status": str(status)} | ({"grpc-message": text} if text else {})
        self.headers(stream, trailers, end=True)

    def refuse(self, stream: PeerStream, status: int, text: str = "") -> None:
        """Answer by a status alone."""
        headers = {**OK_HEADERS, "grpc-status": str(status), "grpc-message": text}
        self.headers(stream, headers, end=True)

    def data(
        self,
        stream: PeerStream,
        payload: bytes,
        *,
        padding: int | None = None,
        end: bool = False,
        unlawful: bool = False,
    ) -> None:
        """Say one DATA frame.

        Args:
            stream: on which.
            payload: what.
            padding: bytes of it, if there is any.
            end: whether the stream ends with it.
            unlawful: go beyond the credit.
        """
        size = len(payload) + (0 if padding is None else padding + 1)
        stream.credit -= size
        self.credit -= size
        assert unlawful or min(stream.credit, self.credit) >= 0, "the test has no such credit"
        frame = DataFrame(stream.number, payload, flags=["END_STREAM"] if end else [])
        if padding is not None:
            frame.flags.add("PADDED")
            frame.pad_length = padding
        self.raw(frame)

    def message(self, stream: PeerStream, payload: bytes, **how: Any) -> None:
        """Say one DATA frame that holds one message."""
        self.data(stream, grpc_message(payload), **how)

    def reset(self, stream: PeerStream, code: int = 8) -> None:
        """Say that a stream is over."""
        self.raw(RstStreamFrame(stream.number, code))

    def allow(self, size: int, stream: PeerStream | None = None) -> None:
        """Give the client room, on a stream or on the connection."""
        if stream is None:
            self.room += size
        else:
            stream.room += size
        number = 0 if stream is None else stream.number
        self.raw(WindowUpdateFrame(number, size))

    def ping(self, payload: bytes = b"somebody") -> None:
        """Send a ping."""
        self.raw(PingFrame(0, payload))

    def go_away(self, last_stream: int = 0, code: int = 0) -> None:
        """Say that the connection is over."""
        self.raw(GoAwayFrame(0, last_stream, code))

    # What the client says

    def take_in(self, data: bytes) -> None:
        """Take in what came from the client."""
        self._in += data
        if not self._preface_seen and len(self._in) >= len(PREFACE):
            assert self._in.startswith(PREFACE)
            del self._in[: len(PREFACE)]
            self._preface_seen = True
        while self._preface_seen and len(self._in) >= 9:
            frame, length = Frame.parse_frame_header(memoryview(bytes(self._in[:9])))
            if len(self._in) < 9 + length:
                break
            frame.parse_body(memoryview(bytes(self._in[9 : 9 + length])))
            del self._in[: 9 + length]
            self.frames.append(frame)
            self._treat(frame, length)
        self.on_change()

    def _treat(self, frame: Frame, length: int) -> None:
        stream = self.streams.get(frame.stream_id)
        if isinstance(frame, HeadersFrame):
            headers = {
                str(name, "ascii"): str(value, "ascii")
                for name, value in self._decoder.decode(frame.data, raw=True)
            }
            self.streams[frame.stream_id] = PeerStream(
                frame.stream_id, headers, self.stream_window, self._stream_room
            )
        elif isinstance(frame, DataFrame):
            assert stream is not None
            self._take_data(stream, frame, length)
        elif isinstance(frame, WindowUpdateFrame):
            self._take_credit(frame, stream)
        elif isinstance(frame, RstStreamFrame):
            assert stream is not None
            stream.reset = frame.error_code
        elif isinstance(frame, SettingsFrame):
            self._take_settings(frame)

    def _take_data(self, stream: PeerStream, frame: DataFrame, length: int) -> None:
        stream.body += frame.data
        stream.room -= length
        self.room -= length
        if length and min(stream.room, self.room) < 0:
            self.violations.append(f"{length} bytes beyond what is allowed")
        if length > self._largest_frame:
            self.violations.append(f"a frame of {length} bytes")
        if stream.ended or stream.reset is not None:
            self.violations.append("DATA on a stream that is over")
        stream.ended = "END_STREAM" in frame.flags

    def _take_credit(self, frame: WindowUpdateFrame, stream: PeerStream | None) -> None:
        if frame.stream_id == 0:
            self.credit += frame.window_increment
            if self.credit > 2**31 - 1:
                self.violations.append("more credit on the connection than there can be")
        else:
            assert stream is not None
            stream.credit += frame.window_increment

    def _take_settings(self, frame: SettingsFrame) -> None:
        if "ACK" not in frame.flags:
            self._settings_to_acknowledge.append(dict(frame.settings))
            if self.acknowledges_settings:
                self.acknowledge_settings()
            return
        settings = self._unacknowledged.pop(0)
        self._largest_frame = settings.get(SettingsFrame.MAX_FRAME_SIZE, self._largest_frame)
        window = settings.get(SettingsFrame.INITIAL_WINDOW_SIZE)
        if window is not None:
            for stream in self.streams.values():
                stream.room += window - self._stream_room
            self._stream_room = window

    def count(self, kind: type[Frame]) -> int:
        """Count the frames of a kind that the client has sent."""
        return sum(isinstance(frame, kind) for frame in self.frames)


class SocketPeer(asyncio.Protocol):
    """A peer on a socket."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Take in what the client sent."""
        self.peer.take_in(data)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's face
        """Take note that the client has gone."""
        self.peer.closed = True
        self.peer.on_change()

    def flush(self) -> None:
        """Send what the peer has said, in one write."""
        said = self.peer.take()
        if said and self.transport is not None and not self.transport.is_closing():
            self.transport.write(said)


class PeerServer:
    """Listens on loopback for one client; an async context manager."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self._socket = SocketPeer(peer)
        self._server: asyncio.Server | None = None
        self._changed = asyncio.Event()
        peer.on_change = self._changed.set

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: self._socket, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await self.until(lambda: self._socket.transport is None or self.peer.closed)

    @property
    def address(self) -> str:
        """Address that the peer listens on."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    def send(self) -> None:
        """Send what the peer has said, in one write."""
        self._socket.flush()

    def cut(self) -> None:
        """Break the connection off."""
        if self._socket.transport is not None:
            self._socket.transport.abort()

    def pause(self) -> None:
        """Read nothing until `resume`."""
        assert self._socket.transport is not None
        self._socket.transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        assert self._socket.transport is not None
        self._socket.transport.resume_reading()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until what the client has sent makes `condition` true."""
        async with asyncio.timeout(BOUND):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def stream(self, position: int = 0) -> PeerStream:
        """Wait for the client's call, counted from 0."""
        await self.until(lambda: len(self.peer.streams) > position)
        return list(self.peer.streams.values())[position]

    async def say(self, stream: PeerStream, body: bytes, *, largest: int = LARGEST_FRAME) -> None:
        """Send `body` in DATA frames, as fast as the client gives credit for it."""
        while body:
            await self.until(lambda: min(stream.credit, self.peer.credit) > 0)
            size = min(len(body), stream.credit, self.peer.credit, largest)
            self.peer.data(stream, body[:size])
            self.send()
            body = body[size:]


class MemoryTransport(asyncio.Transport):
    """Takes what a client writes straight to a peer, without a socket."""

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self._peer = peer
        self._closing = False
        self.protocol: asyncio.Protocol | None = None

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Let the peer have it at once."""
        if not self._closing:
            self._peer.take_in(bytes(data))

    def get_write_buffer_size(self) -> int:
        """Tell how much the peer has not taken in: nothing."""
        return 0

    def is_closing(self) -> bool:
        """Tell whether it is closed, or about to be."""
        return self._closing

    def close(self) -> None:
        """Close."""
        self.abort()

    def abort(self) -> None:
        """Close; the protocol hears of it later, as on a socket."""
        if not self._closing:
            self._closing = True
            self._peer.closed = True
            if self.protocol is not None:
                asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)
