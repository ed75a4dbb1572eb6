"""Servers that speak HTTP/2 and are no Liftbridge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import h2.config
import h2.connection
import h2.events

from liftbridge_aio._core.addresses import parse_address


@dataclass(frozen=True)
class Answer:
    """A foreign server's answer to every request, and the text that an error must contain."""

    headers: Mapping[str, str]
    shown: str
    body: bytes = b""


HTML: Final = b"<html>no</html>"
GRPC: Final = {":status": "200", "content-type": "application/grpc", "grpc-status": "12"}
FOREIGN: Final = {
    "404": Answer({":status": "404", "server": "nginx"}, "HTTP status 404"),
    "HTML": Answer({":status": "200", "content-type": "text/html"}, "text/html", HTML),
    "301": Answer({":status": "301", "location": "https://there"}, "https://there"),
    "403": Answer({":status": "403", "content-type": "text/html"}, "HTTP status 403", HTML),
    "a service in Go": Answer(
        {**GRPC, "grpc-message": "unknown service proto.API"}, "unknown service proto.API"
    ),
    "a service in Python": Answer({**GRPC, "grpc-message": "Method not found!"}, "gRPC server"),
    "a service of grpclib": Answer(
        {":status": "200", "grpc-status": "12", "grpc-message": "Method not found"},
        "not a Liftbridge server: Method not found",
    ),
}
WITHOUT_UPSTREAM: Final = Answer({":status": "503", "content-type": "text/html"}, "503", HTML)
"""A proxy whose server is away."""


async def answer_all(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer
) -> None:
    """Answer every request of a connection alike."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    connection.initiate_connection()
    writer.write(connection.data_to_send())
    while data := await reader.read(65_536):
        for event in connection.receive_data(data):
            if isinstance(event, h2.events.RequestReceived) and event.stream_id is not None:
                end = not answer.body
                connection.send_headers(event.stream_id, list(answer.headers.items()), end)
                if answer.body:
                    connection.send_data(event.stream_id, answer.body, end_stream=True)
        writer.write(connection.data_to_send())


class Takeover:
    """A port behind which a Liftbridge server is, until something else takes it over."""

    def __init__(self, upstream: str) -> None:
        self.address = ""
        self._upstream = upstream
        self._answer: Answer | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    def take_over(self, answer: Answer) -> None:
        """Break all connections; those that follow reach a foreign server."""
        self._answer = answer
        self.cut()

    def cut(self) -> None:
        """Break all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self._writers.add(writer)
        try:
            if self._answer is not None:
                await answer_all(reader, writer, self._answer)
            else:
                await self._forward(reader, writer)
        except ConnectionError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection(*parse_address(self._upstream))
        self._writers.add(to_server)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_copy(reader, to_server))
                group.create_task(_copy(from_server, writer))
        except* ConnectionError:
            pass
        finally:
            self._writers.discard(to_server)
            to_server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def takeover(upstream: str = "127.0.0.1:1") -> AsyncIterator[Takeover]:
    """A port of its own before `upstream`."""
    port = Takeover(upstream)
    server = await asyncio.start_server(port.accept, "127.0.0.1", 0)
    port.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield port
    finally:
        server.close()
        port.cut()
