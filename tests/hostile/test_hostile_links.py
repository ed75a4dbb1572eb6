"""Connections to servers that read nothing, or that accept no call."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest
from grpclib.config import Configuration
from h2.config import H2Configuration

from hostile.test_hostile_server import OPTIONS, PATIENCE, ask
from liftbridge_aio import Client
from liftbridge_aio.net.protocol import BrokerProtocol, ConnectionHandler
from support.faults import eventually, nothing_left_behind, steps, within
from support.peers.hostile_scenes import MAX_STREAMS
from support.peers.hostile_server import Call, HostileServer, Line
from support.peers.http2_bytes import DATA, MAX_FRAME, PING, frame, settings

MOST: Final = 2**20
FULL: Final = 2**16
"""Unsent bytes at which calls are asked to wait."""


class DeafTransport(asyncio.Transport):
    """Leads to a peer that takes nothing in: all that is written waits."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: BrokerProtocol | None = None
        self.waiting = 0
        self.aborted = False
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.waiting += len(data)
        if self.waiting > FULL and self.protocol is not None:
            self.protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True

    def abort(self) -> None:
        self._closing = self.aborted = True


def connected() -> tuple[BrokerProtocol, DeafTransport]:
    """A client's end of a connection that has just been made."""
    transport = DeafTransport()
    config = Configuration().__for_test__()
    protocol = BrokerProtocol(
        ConnectionHandler(lambda: None),
        config,
        H2Configuration(client_side=True, header_encoding="ascii"),
        on_data=lambda: None,
    )
    transport.protocol = protocol
    protocol.connection_made(transport)
    protocol.data_received(settings())
    return protocol, transport


async def test_answers_that_nobody_takes_in_end_the_connection() -> None:
    protocol, transport = connected()
    pings = frame(PING, 0, 0, bytes(8)) * 1000
    while not transport.aborted:
        protocol.data_received(pings)
        assert transport.waiting < MOST


async def test_large_messages_on_a_slow_link_are_no_unread_answers() -> None:
    protocol, transport = connected()
    transport.write(bytes(4 * MOST))
    for _ in range(100):
        protocol.data_received(frame(PING, 0, 0, bytes(8)))
    assert not transport.is_closing()


@pytest.mark.parametrize(
    "said",
    [b"\xff" * 100, frame(DATA, 0, 0, b"x"), frame(7, 0, 0, bytes(8))],
    ids=["overlong", "broken", "GOAWAY"],
)
async def test_what_is_unsent_holds_no_connection_open(said: bytes) -> None:
    """Closing waits for what is unsent, which is for ever where nobody takes it in."""
    protocol, transport = connected()
    protocol.data_received(said)
    assert transport.aborted


async def test_a_frame_too_long_is_refused_by_its_first_bytes() -> None:
    protocol, transport = connected()
    protocol.data_received(frame(DATA, 0, 1, length=MAX_FRAME + 1))
    assert transport.is_closing()


@pytest.mark.parametrize("data_path", ["lane", "plain"], indirect=True)
@pytest.mark.usefixtures("data_path")
async def test_a_call_that_could_not_begin_hears_that_the_connection_is_lost() -> None:
    """Its server allows no more calls; grpclib would let it wait for one to end, for ever."""
    server = HostileServer()
    allowed = asyncio.Event()

    async def forbid(line: Line, _: Call) -> bool:
        await line.say(settings((MAX_STREAMS, 0)), frame(PING, 0, 0, bytes(8)))
        allowed.set()
        return False

    server.plans["FetchPartitionMetadata"] = forbid
    async with (
        nothing_left_behind(),
        server.listening(),
        Client(server.address, options=OPTIONS) as client,
    ):
        first = asyncio.create_task(ask(client))
        await within(PATIENCE, allowed.wait())
        [line] = server.spoiled
        await eventually(lambda: line.pongs, PATIENCE)
        second = asyncio.create_task(ask(client))
        await steps(20)  # it has its turn: there is nothing that would tell that it waits
        line.writer.transport.abort()
        await within(PATIENCE, asyncio.gather(first, second))
