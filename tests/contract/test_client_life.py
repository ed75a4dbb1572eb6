"""The life of a client: finding servers, connecting, closing, and what it tells of itself."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from liftbridge_aio import (
    Ack,
    Backoff,
    Client,
    ClientClosed,
    ClientOptions,
    ConnectionFailed,
    InvalidRequest,
    NotLiftbridge,
    PublishNotSent,
    PublishOutcomeUnknown,
    RequestTimeout,
)
from liftbridge_aio.testing import FaultProxy
from support.clients import EARLIEST, Watcher, read_out, rest, stored, values
from support.processes import succeeds
from support.raw import BOUND, eventually
from support.servers.node import Server
from support.servers.ports import free_ports

Call = Callable[[Client], Awaitable[object]]


def dead_address() -> str:
    return f"127.0.0.1:{free_ports(1)[0]}"


# Connecting


async def test_a_client_connects_pings_and_closes(server: Server) -> None:
    client = Client(server.address)
    assert repr(client) == f"<Client {server.address} new>"
    await client.connect()
    assert 0 < await client.ping() < BOUND
    assert repr(client) == f"<Client {server.address} connected subscriptions=0 in_flight=0>"
    await client.aclose()
    assert repr(client) == f"<Client {server.address} closed>"


async def test_health_checks_and_pings_measure_the_round_trip(
    server: Server, stream_name: str
) -> None:
    options = ClientOptions(health_interval=0.05)
    async with Client(server.address, options=options) as client:
        await client.create_stream(stream_name)
        pool = client._living.network.pool

        async def measured() -> dict[str, bool]:
            """Return whether the round trip is known, by the purpose of each connection."""
            known = pool.statistics()
            assert all((each.address, each.state) == (server.address, "up") for each in known)
            assert all(0 < (each.round_trip_time or 1) < BOUND for each in known)
            return {each.purpose: each.round_trip_time is not None for each in known}

        async def all_measured() -> bool:
            return await measured() == {"control": True, "subscribe": True}

        await client.ping()
        assert await measured() == {"control": True}
        async with client.subscribe(stream_name):
            await eventually(all_measured)
    assert pool.statistics() == ()


async def test_connecting_twice_is_connecting_once(server: Server) -> None:
    watcher = Watcher()
    client = Client(server.address, options=ClientOptions(hook=watcher))
    await asyncio.gather(client.connect(), client.connect())
    await client.connect()
    await client.aclose()
    assert [link.purpose for link in watcher.links] == ["control"]


async def test_a_client_is_made_from_the_environment(server: Server, stream_name: str) -> None:
    environment = {
        "LIFTBRIDGE_SERVERS": f" {dead_address()} , {server.address},",
        "LIFTBRIDGE_MAX_IN_FLIGHT": "7",
        "LIFTBRIDGE_ACK_TIMEOUT": "2.5",
    }
    async with Client.from_env(environment) as client:
        assert (client.options.max_in_flight, client.options.ack_timeout) == (7, 2.5)
        await client.create_stream(stream_name)
        assert await client.publish(stream_name, b"value") is not None


async def test_the_environment_of_the_process_is_the_default(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIFTBRIDGE_SERVERS", server.address)
    async with Client.from_env() as client:
        assert await client.ping() > 0


def test_what_makes_no_sense_in_the_environment_is_refused() -> None:
    for environment in (
        {},
        {"LIFTBRIDGE_SERVERS": " , "},
        {"LIFTBRIDGE_SERVERS": "host:port"},
        {"LIFTBRIDGE_SERVERS": "host:0"},
        {"LIFTBRIDGE_SERVERS": "host", "LIFTBRIDGE_CALL_TIMEOUT": "soon"},
    ):
        with pytest.raises(InvalidRequest):
            Client.from_env(environment)


def test_a_client_needs_a_server() -> None:
    with pytest.raises(InvalidRequest, match="at least one server"):
        Client()


async def test_a_dead_port_is_said_at_once() -> None:
    address = dead_address()
    began = time.monotonic()
    with pytest.raises(ConnectionFailed, match=address) as failed:
        async with Client(address):
            pass
    assert not failed.value.reached_server
    assert time.monotonic() - began < 8


async def test_one_server_of_several_is_enough(server: Server, stream_name: str) -> None:
    async with Client(dead_address(), server.address, dead_address()) as client:
        await client.create_stream(stream_name)
        await client.publish(stream_name, b"value")
        assert values(await read_out(client, stream_name)) == [b"value"]


@asynccontextmanager
async def speaking(greeting: bytes, answer: bytes) -> AsyncIterator[str]:
    """The address of a server of something else."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(greeting)
            await writer.drain()
            if await reader.read(1000):
                writer.write(answer)
                await writer.drain()
        writer.close()

    something = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with something:
        port = something.sockets[0].getsockname()[1]
        yield f"127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("greeting", "answer"),
    [
        pytest.param(b"", b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", id="http"),
        pytest.param(b'INFO {"server_id":"N","version":"2.10"} \r\n', b"-ERR\r\n", id="nats"),
    ],
)
async def test_a_server_of_something_else_is_recognised(greeting: bytes, answer: bytes) -> None:
    async with speaking(greeting, answer) as address, asyncio.timeout(BOUND):
        with pytest.raises(NotLiftbridge, match=address):
            await Client(address).connect(timeout=3)


async def test_a_server_that_says_nothing_is_not_waited_for_longer_than_told() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with silent:
        address = f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(RequestTimeout):
            await Client(address).connect(timeout=1.5)
        assert 1.4 < time.monotonic() - began < 9


async def test_wait_ready_waits_for_a_server_that_starts_later(
    server: Server, stream_name: str
) -> None:
    async with FaultProxy(server.address) as proxy:
        await proxy.refuse()
        options = ClientOptions(backoff=Backoff(maximum=0.1), address_map=lambda _: proxy.address)
        client = Client(proxy.address, options=options)
        waiting = asyncio.create_task(client.wait_ready())
        done, _ = await asyncio.wait({waiting}, timeout=0.2)
        assert not done
        await proxy.accept()
        async with asyncio.timeout(BOUND):
            await waiting
        await client.create_stream(stream_name)
        await client.aclose()


async def test_wait_ready_does_not_wait_for_ever() -> None:
    client = Client(dead_address(), options=ClientOptions(backoff=Backoff(maximum=0.1)))
    began = time.monotonic()
    with pytest.raises(ConnectionFailed):
        await client.wait_ready(timeout=0.4)
    assert time.monotonic() - began < 8
    await client.aclose()


# Closing

CALLS: list[Call] = [
    lambda client: client.publish("stream", b""),
    lambda client: client.publish_async("stream", b""),
    lambda client: client.publish_to_subject("subject", b""),
    lambda client: client.flush(),
    lambda client: anext(client.subscribe("stream")),
    lambda client: client.set_cursor("id", "stream", 0, 1),
    lambda client: client.fetch_cursor("id", "stream", 0),
    lambda client: client.create_stream("stream"),
    lambda client: client.delete_stream("stream"),
    lambda client: client.pause_stream("stream"),
    lambda client: client.resume_stream("stream"),
    lambda client: client.set_stream_readonly("stream"),
    lambda client: client.fetch_metadata(),
    lambda client: client.fetch_partition_metadata("stream", 0),
    lambda client: client.ping(),
]


async def test_nothing_works_before_it_is_connected(server: Server) -> None:
    client = Client(server.address)
    for call in CALLS:
        with pytest.raises(ClientClosed, match="not connected"):
            await call(client)


async def test_nothing_works_after_it_was_closed(server: Server) -> None:
    async with Client(server.address) as client:
        pass
    again: list[Call] = [lambda client: client.connect(), lambda client: client.wait_ready()]
    for call in CALLS + again:
        with pytest.raises(ClientClosed, match="closed"):
            await call(client)
    await client.aclose()
    assert client.statistics().connections == ()


async def test_what_was_made_by_a_client_that_is_closed_says_so(server: Server) -> None:
    async with Client(server.address) as client:
        made = client.subscribe("stream", partition=0), client.subscribe("stream")
        group = client.group("group", ["stream"])
    for one in (*made, group):
        with pytest.raises(ClientClosed, match="the client is closed"):
            await one.__aenter__()
    with pytest.raises(ClientClosed, match="the client is closed"):
        await made[0].lag()


IN_A_FORKED_CHILD = """
import asyncio, os, sys
from liftbridge_aio import Client, ClientClosed

address, stream = sys.argv[1:]

async def use(client):
    for call in (client.publish, client.publish_async, client.publish_to_subject):
        try:
            await call(stream, b"child")
        except ClientClosed as error:
            print(error)
    await client.aclose()

async def main():
    async with Client(address) as client:
        await client.create_stream(stream)
        await client.publish(stream, b"parent")
        child = os.fork()
        if not child:
            try:
                await use(client)  # the coroutine goes on in the child, without an event loop
                asyncio.events._set_running_loop(None)
                asyncio.run(use(client))
            finally:
                sys.stdout.flush()
                os._exit(0)
        os.waitpid(child, 0)
        await client.publish(stream, b"parent")

asyncio.run(main())
"""


async def test_a_forked_child_cannot_use_the_client(server: Server, stream_name: str) -> None:
    out = await succeeds(IN_A_FORKED_CHILD, server.address, stream_name)
    assert out.count(b"connected in the parent of this forked process") == 6
    async with Client(server.address) as client:
        assert await stored(client, stream_name, 2) == [b"parent", b"parent"]


async def test_publish_many_of_a_closed_client_says_so(server: Server) -> None:
    async with Client(server.address) as client:
        pass
    with pytest.raises(ClientClosed):
        await client.publish_many("stream", [b"0", b"1"])


async def test_closing_leaves_no_task_behind(server: Server, stream_name: str) -> None:
    before = asyncio.all_tasks()
    client = Client(server.address)
    await client.connect()
    await client.create_stream(stream_name)
    subscription = client.subscribe(stream_name, start=EARLIEST)
    await subscription.__aenter__()
    await client.publish_many(stream_name, [b""] * 10)
    await client.publish_unacked(stream_name, b"")
    assert asyncio.all_tasks() > before

    await asyncio.gather(client.aclose(), client.aclose())
    assert asyncio.all_tasks() == before
    await subscription.aclose()
    assert asyncio.all_tasks() == before


async def test_a_client_that_could_not_connect_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()
    with pytest.raises(ConnectionFailed):
        await Client(dead_address()).connect()
    assert asyncio.all_tasks() == before


async def test_closing_waits_for_the_acks(server: Server, stream_name: str) -> None:
    async with Client(server.address) as client:
        await client.create_stream(stream_name)
        futures = [await client.publish_async(stream_name, b"%d" % n) for n in range(500)]
    assert all(isinstance(future.result(), Ack) for future in futures)


async def test_what_is_without_ack_when_it_is_closed_fails(
    server: Server, stream_name: str
) -> None:
    async with FaultProxy(server.address) as proxy:
        options = ClientOptions(
            max_in_flight=3, close_timeout=0.2, address_map=lambda _: proxy.address
        )
        client = Client(proxy.address, options=options)
        await client.connect()
        await client.create_stream(stream_name)
        await client.publish(stream_name, b"")
        proxy.freeze()
        written = [await client.publish_async(stream_name, b"") for _ in range(3)]
        waiting = asyncio.create_task(client.publish(stream_name, b""))
        await asyncio.sleep(0)  # it has asked for room

        began = time.monotonic()
        await client.aclose()
        assert time.monotonic() - began < 8
        errors = [future.exception() for future in written]
        assert [type(error) for error in errors] == [PublishOutcomeUnknown] * 3
        with pytest.raises((ClientClosed, PublishNotSent)):
            await waiting


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda client, _: client.ping(timeout=5), id="ping"),
        pytest.param(lambda client, _: client.fetch_metadata(timeout=5), id="metadata"),
        pytest.param(lambda client, name: client.set_cursor("id", name, 0, 1), id="cursor"),
        pytest.param(lambda client, name: client.subscribe(name).__aenter__(), id="subscribe"),
        pytest.param(lambda client, name: client.delete_stream(name), id="delete"),
    ],
)
async def test_closing_in_another_task_ends_every_call(
    server: Server, stream_name: str, call: Callable[[Client, str], Awaitable[object]]
) -> None:
    async with FaultProxy(server.address) as proxy:
        client = Client(proxy.address, options=ClientOptions(address_map=lambda _: proxy.address))
        await client.connect()
        await client.create_stream(stream_name)
        proxy.freeze()
        calling = asyncio.ensure_future(call(client, stream_name))
        await asyncio.sleep(0.02)  # on its way, wherever that is
        await asyncio.create_task(client.aclose())
        async with asyncio.timeout(5):
            with pytest.raises(ClientClosed):
                await calling


async def test_closing_during_a_reading_ends_the_loop(server: Server, stream_name: str) -> None:
    async with Client(server.address) as client:
        await client.create_stream(stream_name)
        reading = asyncio.create_task(rest(client.subscribe(stream_name)))
        await eventually(lambda: len(client.statistics().subscriptions) == 1)
        await asyncio.create_task(client.aclose())
        assert await reading == []


async def test_a_client_that_is_never_closed_is_warned_of(server: Server) -> None:
    client = Client(server.address)
    await client.connect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        client.__del__()
    assert [str(warning.message) for warning in caught] == [f"{client!r} was not closed"]
    await client.aclose()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        del client
        gc.collect()
    assert caught == []


async def test_clients_side_by_side_do_not_disturb_each_other(
    server: Server, stream_name: str
) -> None:
    async with Client(server.address) as one, Client(server.address) as other:
        await one.create_stream(stream_name)
        await one.publish(stream_name, b"one")
        await one.aclose()
        await other.publish(stream_name, b"other")
        assert values(await read_out(other, stream_name)) == [b"one", b"other"]
