"""Clients that send too much of something: bounded memory, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from hpack import Encoder

from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.wire import proto
from support.faults import eventually
from support.peers.http2_bytes import (
    CONTINUATION,
    END_HEADERS,
    GRPC,
    HEADERS,
    MAX_FRAME,
    PING,
    PREFACE,
    PRIORITY,
    SETTINGS_ACK,
    asks,
    block,
    data,
    frame,
    headers,
    message,
    reset,
    settings,
    window_update,
)
from support.raw import Wire

PATIENCE: Final = 30.0
MIB: Final = 2**20
ROOM: Final = 96 * MIB
"""By how much the process may grow while a flood is on; most of them ask for far more."""
WINDOW, FRAME_SIZE = 4, 5


def request(number: int, procedure: str, *, end: bool = False) -> bytes:
    """The headers of a call."""
    return headers(number, asks(f"/proto.API/{procedure}"), end=end)


def subscribe(number: int, *, end: bool = True) -> bytes:
    """A whole subscription."""
    wanted = bytes(proto.SubscribeRequest(stream="s"))
    return request(number, "Subscribe") + data(number, message(wanted), end=end)


def numbers(count: int) -> Iterator[int]:
    """Numbers of streams that a client may open."""
    return iter(range(1, 2 * count, 2))


Flood = Callable[[], Iterator[bytes]]


def bomb() -> Iterator[bytes]:
    """64 MB of headers in 20 KB."""
    block = Encoder().encode([("x", "y" * 4000)]) + b"\xbe" * 16_000
    yield frame(HEADERS, END_HEADERS, 1, block)


def cut_off_headers() -> Iterator[bytes]:
    """Headers that never end."""
    yield frame(HEADERS, 0, 1, block(GRPC))
    yield from [frame(CONTINUATION, 0, 1, bytes(1))] * 60


def unread_requests() -> Iterator[bytes]:
    """Much more than the one request that a Subscribe takes, on many calls."""
    for number in numbers(100):
        yield subscribe(number, end=False)
        yield from [frame(0, 0, number, bytes(MAX_FRAME))] * 200


def huge_request() -> Iterator[bytes]:
    """A message of 4 GiB, as far as it may be sent."""
    yield request(1, "Publish") + data(1, message(b"x", length=2**32 - 1))
    yield from [data(1, bytes(MAX_FRAME))] * 200


def huge_message() -> Iterator[bytes]:
    """As much as a message may have, without its end, on many calls."""
    for number in numbers(12):
        yield request(number, "PublishAsync") + data(number, message(b"x", length=4 * MIB - 9))
        yield from [data(number, bytes(MAX_FRAME))] * 150


FLOODS: Final[dict[str, Flood]] = {
    "pings": lambda: iter([frame(PING, 0, 0, bytes(8)) * 100] * 80),
    "settings": lambda: iter([settings((WINDOW, 1000)) * 100] * 50),
    "window updates": lambda: iter([window_update(0, 1) * 100] * 100),
    "priorities": lambda: (frame(PRIORITY, 0, n, struct.pack(">IB", 0, 1)) for n in numbers(3_000)),
    "rapid resets": lambda: (subscribe(n) + reset(n) for n in numbers(1_500)),
    "resets of calls without a request": lambda: (
        request(n, "Subscribe") + reset(n) for n in numbers(1_500)
    ),
    "hundreds of calls without a request": lambda: (request(n, "Subscribe") for n in numbers(600)),
    "hundreds of subscriptions": lambda: map(subscribe, numbers(400)),
    "hundreds of calls of nothing": lambda: (request(n, "x" * 500, end=True) for n in numbers(500)),
    "empty DATA": lambda: iter([request(1, "Publish"), *[frame(0, 0, 1) * 100] * 50]),
    "headers that never end": cut_off_headers,
    "header bomb": bomb,
    "a frame of 16 MiB": lambda: iter([frame(HEADERS, 4, 1, length=2**24 - 1), bytes(20 * MIB)]),
    "requests that nobody reads": unread_requests,
    "a message of 4 GiB": huge_request,
    "messages that never end": huge_message,
    "no window": lambda: iter([settings((WINDOW, 0)), *map(subscribe, numbers(200))]),
}


def resident() -> int:
    """Bytes of memory that this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@dataclass
class Attacker:
    """A client that reads nothing, after it has agreed upon the settings."""

    writer: asyncio.StreamWriter

    async def send(self, flood: Iterator[bytes]) -> None:
        """Send all of it, or as much as the broker takes within a second."""
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(1.0):
                for frames in flood:
                    self.writer.write(frames)
                    await self.writer.drain()


def connected(broker: EmbeddedBroker) -> socket.socket:
    """A connection that says nothing by itself."""
    return socket.create_connection((broker.host, broker.port))


@asynccontextmanager
async def attacker(broker: EmbeddedBroker) -> AsyncIterator[Attacker]:
    """A connection to the broker."""
    raw = connected(broker)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader, writer = await asyncio.open_connection(sock=raw, limit=1024)
    writer.write(PREFACE + settings())
    await reader.readexactly(9)  # and nothing more
    writer.write(SETTINGS_ACK * 3)
    try:
        yield Attacker(writer)
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("name", FLOODS)
async def test_a_flood(broker: EmbeddedBroker, wire: Wire, name: str) -> None:
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    await wire.publish("s", b"before")
    gc.collect()
    before, tasks = resident(), asyncio.all_tasks()
    async with attacker(broker) as hostile:
        await asyncio.gather(hostile.send(FLOODS[name]()), wire.publish("s", b"meanwhile"))
        await wire.publish("s", b"after")
        grown = resident() - before
    await eventually(lambda: broker.statistics().connections == 1, PATIENCE)
    await eventually(lambda: broker.statistics().subscriptions == 0, PATIENCE)
    await eventually(lambda: asyncio.all_tasks() <= tasks | {asyncio.current_task()}, PATIENCE)
    assert [one.value for one in await wire.read("s")] == [b"before", b"meanwhile", b"after"]
    assert grown < ROOM, f"{grown / MIB:.0f} MiB"
    assert not problems


async def test_a_client_that_reads_no_answers_is_given_up(
    broker: EmbeddedBroker, wire: Wire
) -> None:
    async with attacker(broker) as hostile:
        listener = broker._listener
        assert listener is not None
        for one in listener.connections:  # so that little fits in the kernel
            raw = one.transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        await hostile.send(iter([frame(PING, 0, 0, bytes(8)) * 500] * 40))
        await eventually(lambda: broker.statistics().connections == 1, PATIENCE)
        assert await wire.publish("s", b"x")


async def test_half_open_and_silent_clients_are_in_nobodys_way(
    broker: EmbeddedBroker, wire: Wire
) -> None:
    """They hold a descriptor each, and no task; a broker that stops is rid of them."""
    tasks = len(asyncio.all_tasks())
    with ExitStack() as sockets:
        silent = [sockets.enter_context(connected(broker)) for _ in range(200)]
        for one in silent[:100]:
            one.sendall(PREFACE[:10])
        await eventually(lambda: broker.statistics().connections == 201, PATIENCE)
        await eventually(lambda: len(asyncio.all_tasks()) <= tasks, PATIENCE)
        assert await wire.publish("s", b"x")
        await asyncio.wait_for(broker.stop(), 5.0)
        assert broker.statistics().connections == 0


def test_brokers_bind_loopback_unless_told() -> None:
    assert EmbeddedBroker().host == "127.0.0.1"
