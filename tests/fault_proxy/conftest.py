"""A fault proxy between plain TCP programs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from liftbridge_aio._core.addresses import parse_address
from liftbridge_aio.testing import FaultProxy
from support.peers.tcp import BOUND, Dial, EchoServer, Streams, eventually


@pytest.fixture
async def echo() -> AsyncIterator[EchoServer]:
    echo = EchoServer()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    echo.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield echo
    server.close()
    for writer in echo.writers:
        writer.transport.abort()
    await asyncio.wait_for(server.wait_closed(), BOUND)
    await eventually(lambda: echo.ended == len(echo.writers))


@pytest.fixture
async def proxy(echo: EchoServer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(echo.address) as proxy:
        yield proxy


@pytest.fixture
async def dial(proxy: FaultProxy) -> AsyncIterator[Dial]:
    """Opens connections through the proxy and drops them in the end."""
    writers: list[asyncio.StreamWriter] = []

    async def open_connection() -> Streams:
        reader, writer = await asyncio.open_connection(*parse_address(proxy.address))
        writers.append(writer)
        return reader, writer

    yield open_connection
    for writer in writers:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
