"""`broker.faults` on connections and on the clock, seen on the wire."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final

import pytest
from grpclib.exceptions import StreamTerminatedError
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, Event, SettingsAcknowledged

from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.wire import proto, rpc
from support.peers.http2_bytes import asks, message
from support.raw import BOUND, FROM_EARLIEST, Wire

HOUR: Final = 3600 * 10**9


class RawConnection:
    """An HTTP/2 connection without gRPC, which shows frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http2 = H2Connection()
        self._http2.initiate_connection()

    @classmethod
    async def open(cls, broker: EmbeddedBroker) -> RawConnection:
        connection = cls(*await asyncio.open_connection(broker.host, broker.port))
        connection.send()
        await connection.until(SettingsAcknowledged)
        return connection

    def send(self) -> None:
        self._writer.write(self._http2.data_to_send())

    async def close(self) -> None:
        self._writer.transport.abort()
        await self._writer.wait_closed()

    def call(self, path: str, request: bytes) -> int:
        """Begin a call with one request, and return the number of its stream."""
        number = self._http2.get_next_available_stream_id()
        self._http2.send_headers(number, list(asks(path).items()))
        self._http2.send_data(number, message(request), end_stream=True)
        self.send()
        return number

    async def until(self, kind: type[Event]) -> list[Event]:
        """Return all events up to one of this kind."""
        events: list[Event] = []
        async with asyncio.timeout(BOUND):
            while not any(isinstance(event, kind) for event in events):
                data = await self._reader.read(65_536)
                assert data, "the broker closed the connection"
                events += self._http2.receive_data(data)
        return events

    async def echo(self, ping: bytes) -> None:
        """Wait until the broker has processed everything up to a ping of 8 bytes."""
        self._http2.ping(ping)
        self.send()
        received = b""
        while ping not in received:
            received += await self.read()

    async def read(self) -> bytes:
        """Return raw bytes: h2 accepts nothing after a GOAWAY."""
        async with asyncio.timeout(BOUND):
            return await self._reader.read(65_536)


@pytest.fixture
async def connection(broker: EmbeddedBroker) -> AsyncIterator[RawConnection]:
    """A connection of its own."""
    connection = await RawConnection.open(broker)
    yield connection
    await connection.close()


@pytest.mark.parametrize("reset", [False, True])
async def test_connections_are_closed_or_reset(broker: EmbeddedBroker, reset: bool) -> None:
    reader, writer = await asyncio.open_connection(broker.host, broker.port)
    await reader.readexactly(9)  # the broker has accepted the connection

    await broker.faults.cut_links(reset=reset)

    if reset:
        with pytest.raises(ConnectionResetError):
            await reader.read()
    else:
        await reader.read()
    writer.close()


async def test_no_more_connections_are_closed_than_requested(broker: EmbeddedBroker) -> None:
    connections = [await RawConnection.open(broker) for _ in range(3)]

    assert await broker.faults.cut_links(most=2) == 2

    assert broker.statistics().connections == 1
    for connection in connections:
        await connection.close()


async def test_the_next_connections_are_refused(broker: EmbeddedBroker, wire: Wire) -> None:
    request = proto.FetchMetadataRequest()
    await wire.call(rpc.FETCH_METADATA, request)
    refused = broker.faults.refuse_links(times=2)

    for _ in range(2):
        other = Wire(broker.host, broker.port)
        with pytest.raises((StreamTerminatedError, OSError)):
            await other.call(rpc.FETCH_METADATA, request)
        other.close()
    await refused.wait()

    await wire.call(rpc.FETCH_METADATA, request)
    other = Wire(broker.host, broker.port)
    await other.call(rpc.FETCH_METADATA, request)
    other.close()


async def test_go_away_names_the_last_call_which_continues(
    broker: EmbeddedBroker, wire: Wire, connection: RawConnection
) -> None:
    await wire.create("s")
    path, request = rpc.SUBSCRIBE.path, bytes(proto.SubscribeRequest(stream="s"))
    number = connection.call(path, request)
    await connection.until(DataReceived)

    assert await broker.faults.go_away(error_code=11, carrying="Subscribe") == 1

    [told] = await connection.until(ConnectionTerminated)
    assert isinstance(told, ConnectionTerminated)
    assert (told.error_code, told.last_stream_id) == (11, number)
    await wire.publish("s", b"after")
    assert b"after" in await connection.read()
    assert broker.statistics().connections == 2


async def test_calls_after_a_go_away_are_ignored(
    broker: EmbeddedBroker, wire: Wire, connection: RawConnection
) -> None:
    path = rpc.CREATE_STREAM.path
    await broker.faults.go_away(last_stream_id=1)

    connection.call(path, bytes(proto.CreateStreamRequest(name="served", subject="served")))
    connection.call(path, bytes(proto.CreateStreamRequest(name="passed", subject="passed")))

    await connection.echo(b"in order")  # everything before was processed

    reply = await wire.call(rpc.FETCH_METADATA, proto.FetchMetadataRequest())
    assert {one.name for one in reply.stream_metadata} == {"__cursors", "served"}


async def test_numbers_out_of_range_are_refused(broker: EmbeddedBroker) -> None:
    with pytest.raises(ValueError, match="error_code"):
        await broker.faults.go_away(error_code=2**32)
    with pytest.raises(ValueError, match="last_stream_id"):
        await broker.faults.go_away(last_stream_id=2**31)
    with pytest.raises(ValueError, match="most"):
        await broker.faults.cut_links(most=-1)
    with pytest.raises(ValueError, match="no such procedure: 'Subscripe'"):
        await broker.faults.cut_links(carrying="Subscripe")  # type: ignore[arg-type]


async def test_a_stopped_broker_has_no_connections() -> None:
    broker = EmbeddedBroker()

    assert await broker.faults.cut_links() == 0
    assert await broker.faults.go_away() == 0


async def test_reads_by_time_use_the_skewed_clock(broker: EmbeddedBroker, wire: Wire) -> None:
    await wire.create("s")
    await wire.publish("s", b"before")
    broker.faults.skew_clock(7200)
    await wire.publish("s", b"after")

    start = {
        "start_position": proto.StartPosition.TIMESTAMP,
        "start_timestamp": time.time_ns() + HOUR,
    }
    async with wire.subscribe("s", **start) as reading:
        assert (await reading.next()).value == b"after"
    async with wire.subscribe("s", **FROM_EARLIEST) as reading:
        assert [one.value for one in await reading.take(2)] == [b"before", b"after"]


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1e10])
async def test_the_skew_of_a_clock_is_limited(broker: EmbeddedBroker, seconds: float) -> None:
    with pytest.raises(ValueError, match="within a hundred years"):
        broker.faults.skew_clock(seconds)
