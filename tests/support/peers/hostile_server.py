"""A Liftbridge server that behaves until a call comes for which it has other plans."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from hpack import Decoder

from liftbridge_aio.wire import proto
from support.peers.http2_bytes import (
    ACK,
    DATA,
    GRPC,
    HEADER_BYTES,
    HEADERS,
    PING,
    PREFACE,
    SETTINGS,
    SETTINGS_ACK,
    data,
    frame,
    go_away,
    headers,
    message,
    settings,
    trailers,
    window_update,
)

STREAM: Final = "s"
STORED: Final = 3
"""Messages that its only partition sends at a time; there are always more."""
BOUND: Final = 20.0


@dataclass(slots=True)
class Call:
    """A call of the client."""

    number: int
    name: str
    accepted: bool = False
    body: bytearray = field(default_factory=bytearray)
    latest: bytes = b""
    """The last request that was taken."""

    def requests(self) -> list[bytes]:
        """Take the whole messages that came on it."""
        found = []
        while len(self.body) >= 5 and len(self.body) >= 5 + int.from_bytes(self.body[1:5], "big"):
            end = 5 + int.from_bytes(self.body[1:5], "big")
            found.append(bytes(self.body[5:end]))
            del self.body[:end]
        return found


Plan = Callable[["Line", Call], Awaitable[bool]]
"""The server's action on a request, once; it returns True if the proper answer follows."""


class Line:
    """One client's connection."""

    def __init__(
        self, server: HostileServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.server = server
        self.reader = reader
        self.writer = writer
        self.pongs = 0
        """Pings that the client has answered."""
        self.gone = asyncio.Event()
        """Set once the client has closed it."""

    async def say(self, *frames: bytes) -> None:
        """Send frames, as fast as the client takes them."""
        self.writer.write(b"".join(frames))
        await self.writer.drain()

    async def dismiss(self) -> None:
        """Tell the client to close the connection, and wait until it has."""
        if not self.gone.is_set():
            await self.say(go_away())
            await asyncio.wait_for(self.gone.wait(), BOUND)

    async def serve(self) -> None:
        """Answer the client's calls until it closes the connection."""
        async for call in self._calls():
            for request in call.requests():
                call.latest = request
                self.server.serving[call.name] = self
                plan = self.server.plans.pop(call.name, None)
                if plan is not None:
                    self.server.spoiled.append(self)
                if plan is None or await plan(self, call):
                    await self._answer(call, request)

    async def _calls(self) -> AsyncIterator[Call]:
        """Read the client's frames; yield a call whenever a part of its requests came."""
        await self.say(settings())
        decoder = Decoder()
        calls: dict[int, Call] = {}
        await self.reader.readexactly(len(PREFACE))
        while True:
            head = await self.reader.readexactly(HEADER_BYTES)
            kind, flags, number = head[3], head[4], int.from_bytes(head[5:], "big")
            body = await self.reader.readexactly(int.from_bytes(head[:3], "big"))
            if kind == HEADERS:
                path = {str(name): str(value) for name, value in decoder.decode(body)}[":path"]
                calls[number] = Call(number, path.rpartition("/")[2])
            elif kind == DATA and body:
                await self.say(window_update(0, len(body)), window_update(number, len(body)))
                calls[number].body += body
                yield calls[number]
            elif kind == PING and flags & ACK:
                self.pongs += 1
            elif kind == PING:
                await self.say(frame(PING, ACK, 0, body))
            elif kind == SETTINGS and not flags & ACK:
                await self.say(SETTINGS_ACK)

    async def accept(self, call: Call) -> None:
        """Send the headers of an answer, once."""
        if not call.accepted:
            call.accepted = True
            await self.say(headers(call.number, GRPC))

    async def _answer(self, call: Call, request: bytes) -> None:
        await self.accept(call)
        if call.name == "Subscribe":
            wanted = proto.SubscribeRequest.parse(request)
            from_offset = wanted.start_position is proto.StartPosition.OFFSET
            start = wanted.start_offset if from_offset else 0
            stored_here = [message(stored(offset)) for offset in range(start, start + STORED)]
            await self.say(data(call.number, message(b"") + b"".join(stored_here)))
        elif call.name == "PublishAsync":
            published = proto.PublishRequest.parse(request)
            await self.say(data(call.number, message(ack(published.correlation_id))))
        else:
            reply = self.server.reply(call.name)
            await self.say(data(call.number, message(reply)), trailers(call.number))


class HostileServer:
    """Listens on loopback; an async context manager.

    Args:
        receive_bytes: of the sockets' buffer for what clients send.
    """

    def __init__(self, *, receive_bytes: int = 0) -> None:
        self.plans: dict[str, Plan] = {}
        """By name of procedure, what it does with the next request."""
        self.lines: list[Line] = []
        self.spoiled: list[Line] = []
        """The connections on which it did not answer normally, one for each request."""
        self.serving: dict[str, Line] = {}
        """By name of procedure, where the last request came."""
        self.address = ""
        self._receive_bytes = receive_bytes
        self._tasks: set[asyncio.Task[None]] = set()

    def reply(self, name: str) -> bytes:
        """The proper answer to a unary call."""
        host, port = self.address.split(":")
        partition = proto.PartitionMetadata(leader="n1", replicas=["n1"], isr=["n1"])
        if name == "FetchPartitionMetadata":
            return bytes(proto.FetchPartitionMetadataResponse(metadata=partition))
        streams = [
            proto.StreamMetadata(name=name, partitions={0: partition})
            for name in (STREAM, "__cursors")
        ]
        broker = proto.Broker(id="n1", host=host, port=int(port))
        return bytes(proto.FetchMetadataResponse(brokers=[broker], stream_metadata=streams))

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(self, reader, writer)
        self.lines.append(line)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await line.serve()
        line.gone.set()
        writer.transport.abort()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[HostileServer]:
        """Serve; in the end every connection is closed and every task has ended."""
        listener = socket.create_server(("127.0.0.1", 0))
        if self._receive_bytes:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_bytes)
        server = await asyncio.start_server(self._talk, sock=listener)
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                _, hanging = await asyncio.wait(self._tasks, timeout=BOUND)
                assert not hanging


def stored(offset: int, **changes: object) -> bytes:
    """One of the messages, or one that is not quite it."""
    fields = {"offset": offset, "value": b"%d" % offset, "timestamp": 10 + offset, "stream": STREAM}
    return bytes(proto.Message(**{**fields, **changes}))  # type: ignore[arg-type]


def ack(correlation_id: str, **changes: object) -> bytes:
    """The answer to a message that was published."""
    fields = {
        "stream": STREAM,
        "msg_subject": STREAM,
        "offset": 7,
        "correlation_id": correlation_id,
    }
    wire = proto.Ack(**{**fields, **changes})  # type: ignore[arg-type]
    return bytes(proto.PublishResponse(ack=wire, correlation_id=correlation_id))
