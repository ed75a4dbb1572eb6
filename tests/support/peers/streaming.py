"""A link to a scripted peer, and a receiver that writes down what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from liftbridge_aio._core.status import CallFailure
from liftbridge_aio._runtime.supervisor import Supervisor
from liftbridge_aio.net.broker_connection import BrokerConnection, Purpose, StreamCall
from liftbridge_aio.net.protocol import BrokerProtocol
from liftbridge_aio.wire.framing import PREFIX_BYTES
from liftbridge_aio.wire.rpc import PUBLISH_ASYNC, Rpc
from support.peers.scripted_peer import (
    BOUND,
    MemoryTransport,
    Peer,
    PeerServer,
    PeerStream,
    grpc_message,
)

PATHS: Final = ("lane", "plain")

MESSAGES: Final = [b"", b"one", b"t" * 300, b"\x00\x01" * 500, b"last"]
BODY: Final = b"".join(map(grpc_message, MESSAGES))


class Recorder:
    """Writes down what comes on a call.

    Args:
        exchange: the call.
        holds: keep everything undrained until `drain`.
    """

    def __init__(self, call: StreamCall, *, holds: bool = False) -> None:
        self.messages: list[bytes] = []
        self.ends: list[CallFailure] = []
        self.faults: list[Exception] = []
        self.undrained = 0
        self.holds = holds
        self.on_received: Callable[[], None] = lambda: None
        self.on_ended: Callable[[], None] = lambda: None
        self._exchange = call
        self._changed = asyncio.Event()

    @property
    def at_capacity(self) -> bool:
        """True if the receiver takes no more for now."""
        return self.undrained > 0

    def received(self, messages: list[bytes]) -> None:
        """Write them down."""
        assert not self.ends, "a message after the end"
        assert messages, "nothing at all"
        self.messages += messages
        self.undrained += sum(map(len, messages)) + PREFIX_BYTES * len(messages)
        if not self.holds:
            self.drain()
        self._changed.set()
        self.on_received()

    def ended(self, failure: CallFailure) -> None:
        """Write it down."""
        self.ends.append(failure)
        self._changed.set()
        self.on_ended()

    def broken(self, error: Exception) -> None:
        """Write it down."""
        self.faults.append(error)
        self._changed.set()

    def drain(self) -> None:
        """Give the server credit for everything that came."""
        size, self.undrained = self.undrained, 0
        self._exchange.consumed(size)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until what has come makes `condition` true."""
        async with asyncio.timeout(BOUND):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def count(self, messages: int) -> None:
        """Wait until so many messages have come."""
        await self.until(lambda: len(self.messages) >= messages)

    async def end(self) -> CallFailure:
        """Wait for the end; fail if there are two."""
        await self.until(lambda: bool(self.ends))
        for _ in range(3):
            await asyncio.sleep(0)  # a second one would come at once
        (failure,) = self.ends
        return failure


class Calls:
    """A link whose other end is a scripted peer."""

    def __init__(self, peer: Peer, connection: BrokerConnection, supervisor: Supervisor) -> None:
        self.peer = peer
        self.connection = connection
        self.supervisor = supervisor
        self.server: PeerServer | None = None

    @property
    def protocol(self) -> BrokerProtocol:
        """The client's side of the connection."""
        protocol = self.connection._channel.first_protocol
        assert protocol is not None
        return protocol

    @property
    def on_socket(self) -> PeerServer:
        """The peer's socket."""
        assert self.server is not None
        return self.server

    def send(self) -> None:
        """Send what the peer has said: in one write, or in memory in one read."""
        if self.server is not None:
            self.server.send()
        else:
            self.read(self.peer.take())

    def read(self, *reads: bytes) -> None:
        """Let the client read exactly this, read by read."""
        for data in reads:
            if data and not self.protocol.connection.is_closing():
                self.protocol.data_received(data)

    async def open(self, rpc: Rpc[Any, Any] = PUBLISH_ASYNC) -> tuple[StreamCall, PeerStream]:
        """Open one more call; it is left with the link, if not before."""
        known = len(self.peer.streams)
        call = await self.connection.stream(rpc).__aenter__()
        if self.server is not None:
            return call, await self.server.stream(known)
        return call, list(self.peer.streams.values())[known]

    async def delivered(
        self, *, holds: bool = False, accepted: bool = True
    ) -> tuple[StreamCall, PeerStream, Recorder]:
        """Open one more call whose messages are delivered."""
        call, stream = await self.open()
        recorder = Recorder(call, holds=holds)
        call.deliver(recorder)
        if accepted:
            self.peer.accept(stream)
            self.send()
        return call, stream, recorder


@asynccontextmanager
async def calling(
    path: str,
    peer: Peer | None = None,
    *,
    in_memory: bool = False,
    stream_window: int = 2**18,
    max_receive_bytes: int = 2**22,
) -> AsyncIterator[Calls]:
    """Connect a link of the client to a scripted peer; look afterwards that nothing is left."""
    before = asyncio.all_tasks()
    peer = peer or Peer()
    supervisor = Supervisor("test")
    await supervisor.start()

    def link_to(address: str) -> BrokerConnection:
        return BrokerConnection(
            address,
            Purpose.SUBSCRIBE,
            stream_window=stream_window,
            max_receive_bytes=max_receive_bytes,
            data_lane=path == "lane",
            supervisor=supervisor,
            on_lost=lambda connection, reason: None,  # noqa: ARG005 - the face of it
        )

    if in_memory:
        calls = Calls(peer, link_to("memory:1"), supervisor)
        await _connect_in_memory(calls.connection, peer)
        calls.send()
        try:
            yield calls
        finally:
            calls.connection.close()
    else:
        async with PeerServer(peer) as server:
            calls = Calls(peer, link_to(server.address), supervisor)
            await calls.connection.connect(BOUND)
            calls.server = server
            try:
                yield calls
            finally:
                calls.connection.close()
    assert await supervisor.stop(BOUND)
    await _nothing_left(calls, before)


async def _connect_in_memory(connection: BrokerConnection, peer: Peer) -> None:
    async def connected() -> BrokerProtocol:
        protocol = connection._channel._protocol_factory()
        assert isinstance(protocol, BrokerProtocol)
        transport = MemoryTransport(peer)
        transport.protocol = protocol
        protocol.connection_made(transport)
        return protocol

    connection._channel._create_connection = connected  # type: ignore[method-assign]
    await connection.connect(BOUND)


async def _nothing_left(calls: Calls, before: set[asyncio.Task[Any]]) -> None:
    async with asyncio.timeout(BOUND):
        while left := asyncio.all_tasks() - before - {asyncio.current_task()}:
            await asyncio.wait(left)
    assert calls.protocol.processor.streams == {}
    assert calls.protocol._users == {}
    assert calls.peer.violations == []


def happen(calls: Calls, what: str, stream: PeerStream | None = None) -> None:
    """Let something happen that ends calls."""
    if what == "cut":
        calls.on_socket.cut()
    elif what == "close":
        calls.connection.close()
    elif what == "fail":
        calls.connection.fail("the test says so")
    elif what == "goaway":
        calls.peer.go_away()
        calls.send()
    else:
        assert stream is not None
        if what == "reset":
            calls.peer.reset(stream)
        else:
            calls.peer.end(stream, 5, "gone")
        calls.send()
