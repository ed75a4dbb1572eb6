"""Internals of grpclib and h2 that the client uses, pinned.

A release of either that changes one of these must fail here, in words, and not in a user's hands.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator

import pytest
from grpclib import client, protocol
from grpclib.const import Cardinality, Status
from grpclib.exceptions import GRPCError, StreamTerminatedError

from liftbridge_aio import Client, StartAt
from liftbridge_aio._runtime.supervisor import Supervisor
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.net import grpclib_shape
from liftbridge_aio.net.broker_connection import BrokerConnection, Purpose
from liftbridge_aio.net.call import BytesCodec
from liftbridge_aio.net.fast_call import FastCall
from liftbridge_aio.net.grpclib_shape import data_lane_available
from liftbridge_aio.net.plain_call import PlainCall
from liftbridge_aio.wire.rpc import SUBSCRIBE
from support.peers.scripted_peer import BOUND


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
async def channel(broker: EmbeddedBroker) -> AsyncIterator[client.Channel]:
    channel = client.Channel(broker.host, broker.port, codec=BytesCodec())
    yield channel
    channel.close()


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
        async with asyncio.timeout(10.0), stream:
            await stream.send_request()
            raise Left
    assert channel._protocol is not None
    assert channel._protocol.processor.streams == {}


async def test_a_broken_call_cancels_its_task_and_leaves_the_count_raised(
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


async def test_a_connection_connects_once(broker: EmbeddedBroker) -> None:
    """A channel of grpclib would connect again in silence, in the middle of a call."""
    lost: list[str] = []
    connection = BrokerConnection(
        broker.address,
        Purpose.CONTROL,
        stream_window=2**16,
        max_receive_bytes=2**20,
        data_lane=True,
        supervisor=Supervisor("test"),
        on_lost=lambda _, reason: lost.append(reason),
    )
    await connection.connect(2.0)
    await broker.stop()
    async with asyncio.timeout(10.0):
        while connection.up:  # noqa: ASYNC110 - grpclib has no event for it
            await asyncio.sleep(0.001)
    await broker.start()
    assert len(lost) == 1
    with pytest.raises(StreamTerminatedError):
        await connection._channel.__connect__()
    connection.close()


# What becomes of the lane where grpclib is another


@pytest.fixture
def fresh_look() -> Iterator[None]:
    """The shape is looked at once in a process."""
    data_lane_available.cache_clear()
    yield
    data_lane_available.cache_clear()


@pytest.mark.usefixtures("fresh_look")
def test_the_lane_is_available_with_the_installed_versions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert data_lane_available()
    assert caplog.record_tuples == []


@pytest.mark.parametrize(
    ("owner", "name"),
    [(owner, name) for owner, names in grpclib_shape._ATTRIBUTES for name in names],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
@pytest.mark.usefixtures("fresh_look")
def test_the_lane_is_not_available_without_what_it_needs(
    owner: type, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.delattr(owner, name)
        assert not data_lane_available()
        assert not data_lane_available()
    assert [record.levelno for record in caplog.records] == [logging.WARNING], "said once"
    assert f"{owner.__name__} has no {name}" in caplog.text


@pytest.mark.parametrize(
    "name", ["__ended__", "__terminated__", "__init__"], ids=lambda name: name.strip("_")
)
@pytest.mark.usefixtures("fresh_look")
def test_the_lane_is_not_available_where_what_it_replaces_is_not_used(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def another() -> None:
        """Use nothing."""

    uses = tuple(
        (another if function is vars(protocol.Stream)[name] else function, names)
        for function, names in grpclib_shape._NAMES_USED
    )
    assert uses != grpclib_shape._NAMES_USED
    monkeypatch.setattr(grpclib_shape, "_NAMES_USED", uses)
    assert not data_lane_available()
    assert "does not use" in caplog.text


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.usefixtures("fresh_look")
async def test_a_client_takes_the_plain_path_where_the_shape_is_unknown(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    needed = (*grpclib_shape._ATTRIBUTES, (protocol.Connection, ("of_a_later_release",)))
    if not known:
        monkeypatch.setattr(grpclib_shape, "_ATTRIBUTES", needed)
    async with asyncio.timeout(BOUND), Client(broker.address) as client:
        await client.create_stream("shape")
        await client.publish("shape", b"one")
        async with client.subscribe("shape", start=StartAt.earliest()) as subscription:
            assert (await anext(subscription)).value == b"one"
            assert client._parts is not None
            links = client._parts.network.pool.connections
            assert {connection.purpose for connection in links} == {*Purpose}
            for connection in links:
                call = connection.stream(SUBSCRIBE)
                assert isinstance(call, FastCall if known else PlainCall)
