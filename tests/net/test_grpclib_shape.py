"""What the client uses of grpclib and h2 beyond their public names, pinned.

A release of either that changes one of these must fail here, in words, and not in a user's hands.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator

import pytest
from grpclib import client, protocol, utils
from grpclib.config import Configuration
from grpclib.const import Cardinality, Status
from grpclib.exceptions import GRPCError, StreamTerminatedError
from h2.connection import H2Connection
from h2.events import SettingsAcknowledged
from h2.settings import SettingCodes

from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.net.exchange import BytesCodec
from liftbridge_aio.net.link import Link, Purpose
from liftbridge_aio.wire.rpc import FETCH_METADATA


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
async def channel(broker: EmbeddedBroker) -> AsyncIterator[client.Channel]:
    channel = client.Channel(broker.host, broker.port, codec=BytesCodec())
    yield channel
    channel.close()


def request(channel: client.Channel) -> client.Stream[bytes, bytes]:
    return channel.request(FETCH_METADATA.path, Cardinality.UNARY_UNARY, bytes, bytes)


async def test_a_channel_keeps_its_protocol_and_connects_in_connect(
    channel: client.Channel,
) -> None:
    assert vars(client.Channel)["_protocol"] is None
    assert inspect.iscoroutinefunction(client.Channel.__connect__)
    found = await channel.__connect__()
    assert channel._protocol is found
    assert channel._connected
    found.handler.close()
    assert not channel._connected


async def test_the_factory_of_protocols_can_be_replaced() -> None:
    source = inspect.getsource(client.Channel._create_connection)
    assert "self._protocol_factory" in source
    assert list(inspect.signature(protocol.H2Protocol.__init__).parameters) == [
        *("self", "handler", "config", "h2_config")
    ]
    channel = client.Channel("127.0.0.1", 1)
    assert isinstance(channel._protocol_factory(), protocol.H2Protocol)
    assert isinstance(channel._config, Configuration)


async def test_a_protocol_leads_to_transport_h2_and_processors(channel: client.Channel) -> None:
    found = await channel.__connect__()
    connection = found.connection
    assert isinstance(connection._transport, asyncio.Transport)
    assert isinstance(connection._connection, H2Connection)
    assert not connection.is_closing()
    assert callable(found.processor.processors[SettingsAcknowledged])
    assert found.processor.streams == {}
    connection._connection.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1000})
    connection.flush()
    transport = connection._transport
    found.processor.close("closed by the test")
    assert connection.is_closing()
    assert not hasattr(connection, "_transport")
    assert transport.is_closing()


async def test_a_stream_offers_what_an_exchange_needs(channel: client.Channel) -> None:
    assert client.Stream.initial_metadata is None
    async with request(channel) as stream:
        await stream.send_message(b"", end=True)
        await stream.recv_initial_metadata()
        assert stream.initial_metadata is not None
        assert isinstance(stream._wrapper, utils.Wrapper)
        assert not stream._trailers_only
        assert channel._protocol is not None
        assert stream._stream.connection is channel._protocol.connection
        prefix = await stream._stream.recv_data(5)
        assert prefix[0] == 0
        assert len(await stream._stream.recv_data(int.from_bytes(prefix[1:], "big"))) > 0
        assert await stream._stream.recv_data(5) == b""
        await stream._stream.recv_trailers()
        stream._maybe_raise()


async def test_a_status_is_found_in_headers_that_came_alone(channel: client.Channel) -> None:
    with pytest.raises(GRPCError) as caught:  # noqa: PT012 - the call is left by its error
        async with channel.request(
            "/proto.API/NoSuchProcedure", Cardinality.UNARY_UNARY, bytes, bytes
        ) as stream:
            await stream.send_message(b"", end=True)
            await stream.recv_initial_metadata()
    assert caught.value.status is Status.UNIMPLEMENTED


async def test_leaving_by_an_error_resets_and_does_not_wait(channel: client.Channel) -> None:
    class Left(Exception):
        pass

    stream = channel.request("/proto.API/Subscribe", Cardinality.UNARY_STREAM, bytes, bytes)
    with pytest.raises(Left):  # noqa: PT012 - entering and leaving is what is tested
        async with asyncio.timeout(2.0), stream:
            await stream.send_request()
            raise Left
    assert channel._protocol is not None
    assert channel._protocol.processor.streams == {}


async def test_a_broken_call_cancels_the_waiting_task_and_leaves_its_count_raised(
    channel: client.Channel,
) -> None:
    """The hazard because of which calls run in tasks of their own, and are uncancelled there.

    Twice, here: once for the close, once for the connection that is then lost.
    """
    counts: list[int] = []

    async def wait() -> None:
        task = asyncio.current_task()
        assert task is not None
        stream = channel.request("/proto.API/PublishAsync", Cardinality.STREAM_STREAM, bytes, bytes)
        with pytest.raises(StreamTerminatedError):  # noqa: PT012 - the call is left by its error
            async with stream:
                await stream.send_request()
                waiting.set()
                with stream._wrapper:
                    await stream._stream.recv_data(5)
        counts.append(task.cancelling())

    waiting = asyncio.Event()
    task = asyncio.create_task(wait())
    await waiting.wait()
    await asyncio.sleep(0)
    assert channel._protocol is not None
    channel._protocol.processor.close("broken by the test")
    await asyncio.wait([task], timeout=2.0)
    assert counts == [2]
    task.result()


async def test_h2_gives_credit_when_asked_with_nothing_read(channel: client.Channel) -> None:
    """Link relies on it after windows have shrunk."""
    found = await channel.__connect__()
    async with request(channel) as stream:
        await stream.send_message(b"", end=True)
        number = stream._stream.id
        assert number is not None
        assert number in found.processor.streams
        found.connection._connection.acknowledge_received_data(0, number)
        await stream.recv_message()


async def test_a_link_dials_once(broker: EmbeddedBroker) -> None:
    """A channel of grpclib would connect again in silence, in the middle of a call."""
    lost: list[str] = []
    link = Link(
        broker.address,
        Purpose.CONTROL,
        stream_window=2**16,
        max_receive_bytes=2**20,
        on_lost=lambda _, reason: lost.append(reason),
    )
    await link.connect(2.0)
    await broker.stop()
    async with asyncio.timeout(2.0):
        while link.up:  # noqa: ASYNC110 - grpclib has no event for it
            await asyncio.sleep(0.001)
    await broker.start()
    assert len(lost) == 1
    with pytest.raises(StreamTerminatedError):
        await link._channel.__connect__()
    link.close()
