"""Starting and stopping a broker."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress

import pytest
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from liftbridge_aio.broker import BrokerState, EmbeddedBroker
from liftbridge_aio.wire import proto, rpc
from support.peers.http2_bytes import (
    PREFACE,
    asks,
    data,
    headers,
    message,
    settings,
    window_update,
)
from support.raw import End, Wire, eventually


def accepts_connections(broker: EmbeddedBroker) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((broker.host, broker.port)) == 0


async def test_endless_calls_do_not_delay_a_stop(broker: EmbeddedBroker, wire: Wire) -> None:
    await wire.create("s")
    async with wire.subscribe("s") as reading, wire.publish_session() as publishing:
        await publishing.send(proto.PublishRequest(stream="s", expected_offset=-1))
        await publishing.next()
        await reading.next()
        assert broker.statistics().subscriptions == 1
        assert broker.statistics().publish_sessions == 1

        started = time.monotonic()
        await broker.aclose()
        assert time.monotonic() - started < 5.0

        assert (await reading.end()).status is Status.UNAVAILABLE
        assert (await publishing.end()).status is Status.UNAVAILABLE
    statistics = broker.statistics()
    assert (statistics.subscriptions, statistics.publish_sessions) == (0, 0)
    assert statistics.connections == 0


async def test_a_client_that_reads_nothing_does_not_delay_a_stop(broker: EmbeddedBroker) -> None:
    wire = Wire(broker.host, broker.port)
    await wire.create("s")
    for _ in range(8):
        await wire.publish("s", bytes(900_000))
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.connect((broker.host, broker.port))
    wanted = proto.SubscribeRequest(stream="s", start_position=proto.StartPosition.EARLIEST)
    deaf.sendall(
        PREFACE
        + settings((4, 2**31 - 1))  # windows so large that the server fills all buffers
        + window_update(0, 2**30)
        + headers(1, asks(rpc.SUBSCRIBE.path))
        + data(1, message(bytes(wanted)), end=True)
    )
    listener = broker._listener
    assert listener is not None

    async def stuck() -> bool:
        waiting = [one.transport.get_write_buffer_size() for one in listener.connections]
        return any(size > 0 for size in waiting)

    await eventually(stuck)

    started = time.monotonic()
    await broker.aclose()

    assert time.monotonic() - started < 5.0
    assert broker.statistics().subscriptions == 0
    assert not listener.connections
    deaf.close()
    wire.close()


async def test_stop_may_be_called_from_any_task_any_number_of_times() -> None:
    broker = EmbeddedBroker()
    await broker.aclose()
    await broker.start()

    await asyncio.gather(*(asyncio.create_task(broker.aclose()) for _ in range(3)))
    await broker.aclose()

    assert broker.state is BrokerState.STOPPED
    assert not accepts_connections(broker)


async def test_a_stop_while_it_starts_stops_it() -> None:
    broker = EmbeddedBroker()
    starting = asyncio.create_task(broker.start())
    await asyncio.sleep(0)
    assert not starting.done()

    await broker.stop()

    assert starting.done()
    assert broker.state is BrokerState.STOPPED
    assert not accepts_connections(broker)


async def test_a_cancelled_stop_still_stops(broker: EmbeddedBroker) -> None:
    stopping = asyncio.create_task(broker.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping

    await broker.stop()

    assert broker.state is BrokerState.STOPPED
    assert not accepts_connections(broker)


async def test_a_running_broker_is_not_started_again(broker: EmbeddedBroker) -> None:
    with pytest.raises(RuntimeError, match="the broker is running"):
        await broker.start()

    assert accepts_connections(broker)


async def test_a_taken_port_is_an_error_and_leaves_it_stopped(broker: EmbeddedBroker) -> None:
    second = EmbeddedBroker(port=broker.port)

    with pytest.raises(OSError, match=r"[Aa]ddress"):
        await second.start()

    assert second.state is BrokerState.STOPPED


async def test_a_host_name_means_one_port() -> None:
    async with EmbeddedBroker("localhost") as broker:
        wire = Wire("localhost", broker.port)
        await wire.create("s")
        [advertised] = (await wire.call(rpc.FETCH_METADATA, proto.FetchMetadataRequest())).brokers
        assert (advertised.host, advertised.port) == ("localhost", broker.port)
        wire.close()


async def test_answers_are_not_delayed_by_nagle(wire: Wire) -> None:
    """With Nagle's algorithm each answer would take 40 ms."""
    await wire.create("s")
    started = time.monotonic()

    await wire.publish("s", *[b""] * 100)

    assert time.monotonic() - started < 100 * 0.04


@pytest.mark.parametrize(
    "arguments",
    [{"port": -1}, {"port": 2**16}, {"cursors_partitions": -1}, {"max_message_bytes": 0}],
)
def test_senseless_arguments_are_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must"):
        EmbeddedBroker(**arguments)  # type: ignore[arg-type]


async def test_without_cursors(wire: Wire) -> None:
    async with EmbeddedBroker(cursors_partitions=0) as broker:
        other = Wire(broker.host, broker.port)
        request = proto.FetchCursorRequest(stream="s", cursor_id="c")
        end = await other.refusal(rpc.FETCH_CURSOR, request)
        assert end == End(Status.INTERNAL, "Cursors stream does not exist")
        metadata = await other.call(rpc.FETCH_METADATA, proto.FetchMetadataRequest())
        assert metadata.stream_metadata == []
        other.close()
    metadata = await wire.call(rpc.FETCH_METADATA, proto.FetchMetadataRequest())
    assert [stream.name for stream in metadata.stream_metadata] == ["__cursors"]


async def test_its_repr_and_statistics_show_its_state(broker: EmbeddedBroker, wire: Wire) -> None:
    await wire.create("s", partitions=2)
    await wire.publish("s", b"one", b"two")
    assert len(await wire.read("s")) == 2

    statistics = broker.statistics()

    assert (statistics.streams, statistics.partitions) == (2, 3)
    assert (statistics.messages_stored, statistics.messages_delivered) == (2, 2)
    assert statistics.connections == 1
    text = f"<EmbeddedBroker running at {broker.address}, 2 streams, 1 connections>"
    assert repr(broker) == text


async def test_an_idle_subscription_costs_nothing(broker: EmbeddedBroker, wire: Wire) -> None:
    await wire.create("s")
    async with wire.subscribe("s"):
        used = time.process_time()
        await asyncio.sleep(0.3)
        assert time.process_time() - used < 0.15
        assert broker.statistics().subscriptions == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/proto.API/NoSuchMethod", "unknown method NoSuchMethod for service proto.API"),
        ("/other.API/Publish", "unknown service other.API"),
        ("/Publish", 'malformed method name: "/Publish"'),
    ],
)
async def test_unknown_procedures_are_unimplemented(
    broker: EmbeddedBroker, path: str, text: str
) -> None:
    channel = Channel(broker.host, broker.port)
    method = UnaryUnaryMethod[proto.DeleteStreamRequest, proto.DeleteStreamResponse](
        channel, path, proto.DeleteStreamRequest, proto.DeleteStreamResponse
    )

    with pytest.raises(GRPCError) as refused:
        await method(proto.DeleteStreamRequest())

    assert (refused.value.status, refused.value.message) == (Status.UNIMPLEMENTED, text)
    channel.close()


async def test_connections_accepted_during_a_stop_are_closed() -> None:
    async with EmbeddedBroker() as broker:
        address = (broker.host, broker.port)
        clients = [socket.create_connection(address) for _ in range(3)]
        await asyncio.sleep(0)  # the event loop now accepts them while the broker begins to stop
        await broker.stop()
        loop = asyncio.get_running_loop()
        for client in clients:
            client.settimeout(0)
            with suppress(ConnectionResetError):
                async with asyncio.timeout(5):
                    while await loop.sock_recv(client, 1000):
                        pass
            client.close()
