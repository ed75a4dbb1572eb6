"""Something else than a Liftbridge server answers: a typed error, in time, and nothing hangs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from liftbridge_aio import (
    Client,
    ClientOptions,
    ConnectionFailed,
    LiftbridgeError,
    NotLiftbridge,
    RequestTimeout,
)
from liftbridge_aio._core.addresses import parse_address
from support.faults import BOUND, QUICK, nothing_left_behind, within
from support.servers.node import Server

pytestmark = pytest.mark.real_time

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

HTTP2_SETTINGS = bytes.fromhex("000000040000000000")


@asynccontextmanager
async def listening(talk: Talk) -> AsyncIterator[str]:
    """A server of the test's own; the address to reach it."""
    writers: set[asyncio.StreamWriter] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        try:
            await talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(bytes(range(256)) * 40)
    await reader.read()


async def garbage_after_settings(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    writer.write(HTTP2_SETTINGS)
    await reader.readexactly(24)
    writer.write(b"\xff" * 4096)
    await reader.read()


async def closes_at_once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def closes_after_the_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    await reader.readexactly(100)
    writer.close()


async def http_1(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(24)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    await reader.read()


async def silence(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


@dataclass(frozen=True)
class Strange:
    talk: Talk
    expected: type[LiftbridgeError]


STRANGE = {
    "garbage": Strange(garbage, NotLiftbridge),
    "garbage after the settings": Strange(garbage_after_settings, ConnectionFailed),
    "closes at once": Strange(closes_at_once, ConnectionFailed),
    "closes after the request": Strange(closes_after_the_request, ConnectionFailed),
    "HTTP/1.1": Strange(http_1, NotLiftbridge),
    "silence": Strange(silence, RequestTimeout),
}
OPTIONS = ClientOptions(backoff=QUICK, call_timeout=0.6, close_timeout=0.3)


@pytest.mark.parametrize("name", STRANGE)
async def test_connecting_says_what_is_wrong(name: str) -> None:
    strange = STRANGE[name]
    async with nothing_left_behind(), listening(strange.talk) as address:
        client = Client(address, options=OPTIONS)
        with pytest.raises(strange.expected) as caught:
            await within(0.6 + 1.0, client.connect())
        assert caught.value.hint
        assert "closed" in repr(client)


@pytest.mark.parametrize("name", STRANGE)
async def test_waiting_for_readiness_ends_too(name: str) -> None:
    strange = STRANGE[name]
    async with nothing_left_behind(), listening(strange.talk) as address:
        client = Client(address, options=OPTIONS)
        with pytest.raises((ConnectionFailed, RequestTimeout)) as caught:
            await within(0.6 + 1.0, client.wait_ready())
        assert caught.value.hint
        await client.aclose()


@pytest.mark.parametrize("name", ["garbage", "HTTP/1.1", "closes after the request"])
async def test_a_second_address_helps(server: Server, name: str) -> None:
    """One seed that is no Liftbridge server does no harm beside one that is."""
    options = ClientOptions(backoff=QUICK, call_timeout=10.0)
    async with (
        listening(STRANGE[name].talk) as address,
        Client(address, server.address, options=options) as client,
    ):
        await within(BOUND, client.ping())


async def test_nobody_listens() -> None:
    async with listening(silence) as address:
        pass
    with pytest.raises(ConnectionFailed) as caught:
        await within(BOUND, Client(address, options=OPTIONS).connect())
    assert not isinstance(caught.value, NotLiftbridge)
    assert address in str(caught.value)


@pytest.mark.parametrize("size", [0, 1, 9, 20, 30, 40, 60, 100, 150, 200])
async def test_cut_in_the_middle_of_the_handshake(server: Server, size: int) -> None:
    """The connection breaks after so many bytes from the server; the next one is whole."""
    connections = 0

    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        whole = connections > 1
        from_server, to_server = await asyncio.open_connection(*parse_address(server.address))

        async def upstream() -> None:
            while data := await reader.read(65_536):
                to_server.write(data)
            to_server.close()

        task = asyncio.create_task(upstream())
        try:
            left = size
            while whole or left:
                data = await from_server.read(65_536 if whole else left)
                if not data:
                    break
                writer.write(data)
                await writer.drain()
                left -= len(data)
            if not whole:
                writer.transport.abort()
        finally:
            task.cancel()
            to_server.close()

    async with listening(break_off) as address:
        options = ClientOptions(backoff=QUICK, address_map=lambda _: address)
        client = Client(address, options=options)
        await within(BOUND, client.wait_ready())
        await within(BOUND, client.fetch_metadata())
        await client.aclose()
        assert connections >= 2
