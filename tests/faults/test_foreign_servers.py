"""Errors for HTTP/2 servers other than Liftbridge, with their address and their answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import grpc
import pytest
from grpclib.health.service import Health
from grpclib.server import Server

from liftbridge_aio import (
    Client,
    ClientOptions,
    ConnectionFailed,
    NotLiftbridge,
    PublishOutcomeUnknown,
    StartAt,
    UnsupportedByServer,
)
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.retry import Backoff
from support.faults import BOUND, Recorder, eventually, nothing_left_behind, within
from support.peers.foreign_servers import FOREIGN, WITHOUT_UPSTREAM, takeover

pytestmark = pytest.mark.real_time

OPTIONS = ClientOptions(
    backoff=Backoff(initial=0.05, maximum=0.1),
    call_timeout=1.5,
    publish_timeout=1.5,
    ack_timeout=1.5,
    resubscribe_timeout=1.5,
    close_timeout=0.1,
)


@pytest.mark.parametrize("name", FOREIGN)
async def test_connecting_says_what_answered(name: str) -> None:
    answer = FOREIGN[name]
    async with nothing_left_behind(), takeover() as port:
        port.take_over(answer)
        client = Client(port.address, options=OPTIONS)
        with pytest.raises(NotLiftbridge, match=port.address) as caught:
            await within(BOUND, client.connect())
        assert answer.shown in str(caught.value)
        assert "certificate" not in str(caught.value)


async def test_a_foreign_server_in_the_list_does_no_harm() -> None:
    """Whichever is asked first; that is left to chance."""
    async with EmbeddedBroker() as broker:
        for name, answer in FOREIGN.items():
            async with takeover() as port:
                port.take_over(answer)
                await use_beside(port.address, broker, name)


@asynccontextmanager
async def grpclib_service() -> AsyncIterator[str]:
    server = Server([Health()])
    await server.start("127.0.0.1", 0)
    listening = server._server  # grpclib has no other way to learn the port
    assert isinstance(listening, asyncio.Server)
    try:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def grpcio_service() -> AsyncIterator[str]:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


SERVICES: Final = {"grpclib": grpclib_service, "grpcio": grpcio_service}


@pytest.mark.parametrize("library", SERVICES)
async def test_another_service_is_no_liftbridge_and_harms_no_list(library: str) -> None:
    async with EmbeddedBroker() as broker, SERVICES[library]() as address:
        client = Client(address, options=OPTIONS)
        said = f"{address} is a gRPC server, but not a Liftbridge server: Method not found"
        with pytest.raises(NotLiftbridge, match=said):
            await within(BOUND, client.connect())
        client = Client(address, options=OPTIONS)
        try:
            with pytest.raises(NotLiftbridge, match=said):
                await within(BOUND, client.wait_ready(timeout=1.5))
        finally:
            await client.aclose()
        await use_beside(address, broker, library)


async def use_beside(foreign: str, broker: EmbeddedBroker, name: str) -> None:
    """Use the broker through a list in which another server is too, several times."""
    for number in range(6):
        async with Client(foreign, broker.address, options=OPTIONS) as client:
            stream = f"{name.replace(' ', '-')}-{number}"
            await client.wait_ready()
            await client.create_stream(stream)
            assert (await client.publish(stream, b"")).offset == 0


async def test_a_server_that_is_away_behind_a_proxy_is_no_foreign_server() -> None:
    async with takeover() as port:
        port.take_over(WITHOUT_UPSTREAM)
        with pytest.raises(ConnectionFailed, match="HTTP status 503") as caught:
            await within(BOUND, Client(port.address, options=OPTIONS).connect())
        assert not isinstance(caught.value, NotLiftbridge)


async def test_an_old_server_is_a_liftbridge_server() -> None:
    """It says which of its procedures it does not have."""
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        text = "unknown method SetCursor for service proto.API"
        broker.faults.fail("SetCursor", code="UNIMPLEMENTED", text=text)
        await client.create_stream("s")
        with pytest.raises(UnsupportedByServer, match="unknown method"):
            await client.set_cursor("c", "s", 0, 1)


async def first_message(client: Client) -> Any:
    async with client.subscribe("s", start=StartAt.earliest()) as subscription:
        return await anext(subscription)


Call = Callable[[Client], Awaitable[Any]]
CALLS: dict[str, Call] = {
    "fetch_metadata": lambda client: client.fetch_metadata(),
    "fetch_partition_metadata": lambda client: client.fetch_partition_metadata("s", 0),
    "create_stream": lambda client: client.create_stream("other"),
    "delete_stream": lambda client: client.delete_stream("s"),
    "pause_stream": lambda client: client.pause_stream("s"),
    "set_stream_readonly": lambda client: client.set_stream_readonly("s"),
    "set_cursor": lambda client: client.set_cursor("c", "s", 0, 1),
    "fetch_cursor": lambda client: client.fetch_cursor("c", "s", 0),
    "publish": lambda client: client.publish("s", b""),
    "publish by key": lambda client: client.publish("s", b"", key=b"k"),
    "publish_to_subject": lambda client: client.publish_to_subject("s", b""),
    "subscribe": first_message,
}


async def test_each_call_says_what_took_over_the_address(data_path: str) -> None:
    answer = FOREIGN["HTML" if data_path == "lane" else "a service in Go"]
    async with EmbeddedBroker() as broker, takeover(broker.address) as port:
        hook = Recorder()
        options = replace(OPTIONS, hook=hook, address_map=lambda _: port.address)
        async with Client(port.address, options=options) as client:
            await client.create_stream("s")
            await client.publish("s", b"")
            connections = len(hook.up)
            port.take_over(answer)
            await eventually(lambda: len(hook.down) >= connections)

            calls = [call(client) for call in CALLS.values()]
            ends = await within(BOUND, asyncio.gather(*calls, return_exceptions=True))
            for name, error in zip(CALLS, ends, strict=True):
                # The last try may have got no answer in the time that was left.
                found = error.__cause__ if isinstance(error, PublishOutcomeUnknown) else error
                assert isinstance(found, NotLiftbridge), f"{name}: {error!r}"
                assert port.address in str(found)
                assert answer.shown in str(found)
