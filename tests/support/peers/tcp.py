"""Plain TCP programs at both ends of a fault proxy."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable

BOUND = 5.0
"""Seconds after which a wait has failed."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial = Callable[[], Awaitable[Streams]]


class EchoServer:
    """Sends back what it gets, until the end of it; then ends its own side."""

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []
        self.ended = 0
        self.errors: list[str] = []
        self.received = 0
        self.reads = asyncio.Event()
        self.reads.set()
        self.address = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while True:
                await self.reads.wait()
                data = await reader.read(65_536)
                if not data:
                    break
                self.received += len(data)
                writer.write(data)
                await writer.drain()
        except ConnectionError as error:
            self.errors.append(type(error).__name__)
        self.ended += 1
        writer.close()


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND):
        while not condition():  # noqa: ASYNC110 (what it waits for happens elsewhere)
            await asyncio.sleep(0.005)


async def exchange(streams: Streams, data: bytes) -> bytes:
    reader, writer = streams
    writer.write(data)
    return await asyncio.wait_for(reader.readexactly(len(data)), BOUND)


async def ended(reader: asyncio.StreamReader) -> bool:
    """Return True if the connection has been closed or reset."""
    try:
        return await asyncio.wait_for(reader.read(1), BOUND) == b""
    except ConnectionError:
        return True


def reset_by_hand(writer: asyncio.StreamWriter) -> None:
    """Close a socket with RST."""
    raw: socket.socket = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
