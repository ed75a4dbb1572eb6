"""Behaviours of the Go client when connecting, under the names of its tests."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
import weakref
from collections.abc import Callable

import nats
import pytest

from liftbridge_aio import ConnectionFailed, InvalidRequest, WrongType, stan
from support.peers.scripted_stan import scripted_stan
from support.servers.ports import free_ports
from support.servers.streaming import CLUSTER, StreamingServer
from support.streaming_clients import MakeClient, client_of, state_of


async def test_no_nats(client_id: str) -> None:
    [port] = free_ports(1)
    with pytest.raises(ConnectionFailed, match=str(port)):
        async with client_of(f"nats://127.0.0.1:{port}", client_id):
            pass


async def test_unreachable(nats_url: str, client_id: str) -> None:
    began = asyncio.get_running_loop().time()
    client = client_of(nats_url, client_id, cluster="another", request_timeout=0.3)
    with pytest.raises(stan.NoStreamingServer, match="another"):
        await client.connect()
    # NATS says at once that nobody listens.
    assert asyncio.get_running_loop().time() - began < 5
    async with scripted_stan(nats_url, client_id, silent={"connect"}):
        client = client_of(nats_url, client_id, cluster=client_id, request_timeout=0.2)
        with pytest.raises(TimeoutError, match=r"has answered in 0\.2 s"):
            await client.connect()


async def test_conn_closed_on_connect_failure(nats_url: str, client_id: str) -> None:
    tasks = asyncio.all_tasks()
    client = client_of(nats_url, client_id, cluster="another", request_timeout=0.3)
    with pytest.raises(stan.NoStreamingServer):
        await client.connect()
    assert client._link.is_over
    assert state_of(client) is stan.ClientState.CLOSED
    assert asyncio.all_tasks() == tasks


async def test_basic_connect(make: MakeClient) -> None:
    async with make() as client:
        assert state_of(client) is stan.ClientState.OPEN
        await client.connect()
    assert state_of(client) is stan.ClientState.CLOSED


async def test_dup_client_id(make: MakeClient, client_id: str) -> None:
    async with make(client_id):
        with pytest.raises(stan.ClientIdTaken, match="clientID already registered") as caught:
            await make(client_id).connect()
        assert caught.value.text == "stan: clientID already registered"
    async with make(client_id):
        pass


@pytest.mark.parametrize("several", [False, True])
async def test_nats_url_option(server: StreamingServer, client_id: str, several: bool) -> None:
    [port] = free_ports(1)
    urls = [f"nats://127.0.0.1:{port}", server.url] if several else server.url
    async with stan.Client(urls, cluster=CLUSTER, client_id=client_id) as client:
        await client.publish(client_id, b"")


async def test_nats_options(server: StreamingServer, client_id: str) -> None:
    closed = asyncio.Event()

    async def on_close() -> None:
        closed.set()

    async with client_of(server.url, client_id, connect={"closed_cb": on_close}):
        assert not closed.is_set()
    assert closed.is_set()
    with pytest.raises(InvalidRequest, match="takes no 'colour'"):
        client_of(server.url, client_id, connect={"colour": "red"})


@pytest.mark.parametrize("name", [None, "another name"])
async def test_option_nats_name(server: StreamingServer, client_id: str, name: str | None) -> None:
    async with client_of(server.url, client_id, connect=name and {"name": name}) as client:
        assert client._link._nats.connection.options["name"] == (name or client_id)


async def test_nats_conn(server: StreamingServer, client_id: str) -> None:
    connection = await nats.connect(server.url)
    async with stan.Client(connection, cluster=CLUSTER, client_id=client_id) as client:
        await client.publish(client_id, b"")
    await connection.close()
    with pytest.raises(ConnectionFailed, match="closed"):
        await stan.Client(connection, cluster=CLUSTER, client_id=client_id).connect()
    with pytest.raises(InvalidRequest, match="goes with addresses"):
        stan.Client(connection, cluster=CLUSTER, client_id=client_id, connect={})


async def test_nats_conn_not_closed_on_close(server: StreamingServer, client_id: str) -> None:
    connection = await nats.connect(server.url)
    async with stan.Client(connection, cluster=CLUSTER, client_id=client_id):
        pass
    assert connection.is_connected
    assert not connection._subs
    await connection.close()


async def test_nats_subscription_leak_on_failed_connect(nats_url: str, client_id: str) -> None:
    connection = await nats.connect(nats_url)
    for cluster in ("another", CLUSTER):
        if cluster == CLUSTER:
            other = client_of(nats_url, client_id)
            await other.connect()
        options = stan.ClientOptions(request_timeout=1.0)
        client = stan.Client(connection, cluster=cluster, client_id=client_id, options=options)
        with pytest.raises((stan.NoStreamingServer, stan.ClientIdTaken)):
            await client.connect()
        assert not connection._subs
    await other.aclose()
    await connection.close()


async def test_no_memory_leak(server: StreamingServer, new_id: Callable[[], str]) -> None:
    used = weakref.WeakSet[object]()

    async def use() -> None:
        async with (
            client_of(server.url, client_id := new_id()) as client,
            client.subscribe(client_id, start=stan.StartAt.earliest()) as messages,
        ):
            used.update((client, messages))
            await client.publish(client_id, bytes(10_000))
            await anext(messages)

    for _ in range(3):  # whatever is made once
        await use()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(10):
        await use()
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 50_000
    assert not used


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "a*"])
async def test_bad_client_id(name: str) -> None:
    with pytest.raises(InvalidRequest, match="only letters and digits"):
        stan.Client("nats://127.0.0.1", cluster=CLUSTER, client_id=name)
    with pytest.raises(InvalidRequest, match="cluster is"):
        stan.Client("nats://127.0.0.1", cluster=name, client_id="a")


async def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(WrongType):
        stan.Client(4222, cluster=CLUSTER, client_id="a")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="at least one"):
        stan.Client([], cluster=CLUSTER, client_id="a")


async def test_cancelled_connect_leaves_nothing(nats_url: str, client_id: str) -> None:
    tasks = asyncio.all_tasks()
    async with scripted_stan(nats_url, client_id, silent={"connect"}) as scripted:
        client = client_of(nats_url, client_id, cluster=client_id, request_timeout=30)
        connecting = asyncio.create_task(client.connect())
        await scripted.has("connect")
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        assert client._link.is_over
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == tasks
