"""Other ways to the same: a connection that was given, uvloop, SIGTERM, cancellation anywhere."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import nats
import pytest
import uvloop

from liftbridge_aio import ConnectionFailed, UsageError, stan
from liftbridge_aio._runtime.nats_library import NatsConnection
from liftbridge_aio._runtime.nats_link import close_for_good
from liftbridge_aio.stan import StartAt
from support.peers.scripted_stan import scripted_stan
from support.servers.streaming import CLUSTER, StreamingServer
from support.streaming_clients import (
    StartServer,
    client_of,
    nothing_comes,
    publish_many,
    sequences,
    state_of,
    take,
    until,
)

FIRST = StartAt.earliest()


async def test_a_given_connection_does_the_same(
    server: StreamingServer, client_id: str, channel: str
) -> None:
    connection = await nats.connect(server.url)
    async with stan.Client(connection, cluster=CLUSTER, client_id=client_id) as client:
        async with client.subscribe(channel, durable="dur", start=FIRST) as messages:
            await publish_many(client, channel, 300)
            assert sequences(await take(messages, 300)) == [*range(1, 301)]
        async with client.subscribe(channel, durable="dur") as messages:
            await nothing_comes(messages, 0.1)
    assert not connection._subs
    await connection.close()


async def test_a_given_connection_that_comes_back(
    start_server: StartServer, client_id: str, channel: str
) -> None:
    async def keep_quiet(_error: Exception) -> None:
        pass

    server = start_server("MEMORY")
    events: list[stan.Event] = []
    connection = await nats.connect(
        server.url, error_cb=keep_quiet, max_reconnect_attempts=-1, reconnect_time_wait=0.05
    )
    async with (
        stan.Client(
            connection, cluster=CLUSTER, client_id=client_id, on_event=events.append
        ) as client,
        client.subscribe(channel) as messages,
    ):
        await publish_many(client, channel, 5)
        await take(messages, 5)
        await asyncio.to_thread(server.kill)
        await until(lambda: not client._link.is_up)
        waiting = await client.publish_async(channel, b"waits")
        await asyncio.to_thread(server.start)
        await waiting
        assert sequences(await take(messages, 1)) == [1]
    assert [type(event) for event in events] == [stan.Lost, stan.Recovered]
    await close_for_good(connection)


async def test_a_server_without_pings_is_trusted_after_an_outage(
    start_server: StartServer, client_id: str
) -> None:
    server = start_server("FILE")
    async with client_of(
        server.url, client_id, connect={"reconnect_time_wait": 0.05}, close_timeout=0.1
    ) as client:
        assert client._runtime is not None
        assert client._runtime._session is not None
        client._runtime._session.subjects.ping_requests = ""
        await asyncio.to_thread(server.kill)
        await until(lambda: not client._link.is_up)
        await asyncio.to_thread(server.start)
        await until(lambda: client._link.is_confirmed)
        assert state_of(client) is stan.ClientState.OPEN


def test_on_uvloop(memory_server: StreamingServer, client_id: str, channel: str) -> None:
    async def use() -> list[int]:
        async with (
            client_of(memory_server.url, client_id) as client,
            client.subscribe(channel) as messages,
        ):
            await publish_many(client, channel, 100)
            return sequences(await take(messages, 100))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(use()) == [*range(1, 101)]


async def test_sigterm_ends_a_run(
    memory_server: StreamingServer, client_id: str, channel: str
) -> None:
    handled: list[int] = []
    released = asyncio.Event()

    async def handle(message: stan.Message) -> None:
        if not handled:
            asyncio.get_running_loop().call_later(0.05, released.set)
            os.kill(os.getpid(), signal.SIGTERM)
            await released.wait()
        handled.append(message.sequence)

    async with client_of(memory_server.url, client_id) as client:
        await publish_many(client, channel, 10)
        async with client.subscribe(channel, durable="dur", start=FIRST) as messages:
            await messages.run(handle)
            assert handled == [1]
        async with client.subscribe(channel, durable="dur") as messages:
            assert sequences(await take(messages, 1)) == [2]


async def test_cancelling_anywhere_leaves_nothing_behind(
    memory_server: StreamingServer, new_id: Callable[[], str], channel: str
) -> None:
    clients: list[stan.Client] = []

    async def use() -> None:
        client = client_of(memory_server.url, new_id(), close_timeout=0.5)
        clients.append(client)
        async with client, client.subscribe(channel, queue="group") as messages:
            await client.publish(channel, b"")
            await anext(messages)

    before = asyncio.all_tasks()
    for turns in (*range(20), *range(20, 120, 7)):
        task = asyncio.create_task(use())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            assert task.exception() is None
        client = clients[-1] if clients else None
        if client is not None and client._runtime is not None:
            assert client._link.is_over
            assert client.statistics().subscriptions == 0
            assert client.statistics().publishes.in_flight == 0
        await until(lambda: asyncio.all_tasks() == before)


async def test_two_tasks_that_connect_or_open(nats_url: str, client_id: str, channel: str) -> None:
    async with scripted_stan(nats_url, client_id, silent={"connect"}) as scripted:
        client = client_of(nats_url, client_id, cluster=client_id, request_timeout=1)
        connecting = asyncio.create_task(client.connect())
        await scripted.has("connect")
        with pytest.raises(UsageError, match="another task is connecting"):
            await client.connect()
        scripted.silent = {"sub"}
        with pytest.raises(stan.NoStreamingServer):
            await connecting
        async with client_of(nats_url, client_id, cluster=client_id, request_timeout=0.5) as client:
            subscription = client.subscribe(channel)
            opening = asyncio.create_task(subscription.open())
            await scripted.has("sub")
            for call in (subscription.open, subscription.aclose, subscription.unsubscribe):
                with pytest.raises(UsageError, match=r"opened|opening"):
                    await call()
            with pytest.raises(stan.SubscribeTimeout):
                await opening


async def test_a_connection_that_is_closed_while_a_session_is_lost(
    nats_url: str, client_id: str, channel: str
) -> None:
    connection = await nats.connect(nats_url)
    events: list[stan.Event] = []
    options = stan.ClientOptions(ping_interval=1, request_timeout=0.2)
    async with (
        scripted_stan(nats_url, client_id) as scripted,
        stan.Client(
            connection,
            cluster=client_id,
            client_id=client_id,
            options=options,
            on_event=events.append,
        ) as client,
        client.subscribe(channel) as messages,
    ):
        scripted.silent.add("connect")
        scripted.errors["pings"] = "gone"
        await until(lambda: state_of(client) is stan.ClientState.LOST)
        await connection.close()
        with pytest.raises(ConnectionFailed, match="closed"):
            await anext(messages)
        assert state_of(client) is stan.ClientState.FAILED
    assert [type(event) for event in events] == [stan.Lost, stan.GaveUp]


async def test_a_connection_that_is_not_connected_is_refused(client_id: str) -> None:
    client = stan.Client(NatsConnection(), cluster=CLUSTER, client_id=client_id)
    with pytest.raises(ConnectionFailed, match="is not connected"):
        await client.connect()
    assert repr(client) == f"<stan.Client {client_id!r} of 'test-cluster' closed>"
    assert client.statistics().publishes.sent == 0


async def test_an_unclosed_client_is_warned_of(nats_url: str, client_id: str) -> None:
    client = client_of(nats_url, client_id)
    await client.connect()
    with pytest.warns(ResourceWarning, match="was not closed"):
        client.__del__()
    await client.aclose()
