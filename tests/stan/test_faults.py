"""Networks that break: nothing acked is lost, every call ends in time, closing ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from liftbridge_aio import (
    AckTimeout,
    LiftbridgeError,
    MalformedData,
    PublishOutcomeUnknown,
    PublishTimeout,
    stan,
)
from liftbridge_aio.retry import Backoff
from liftbridge_aio.stan import StartAt
from liftbridge_aio.testing import Direction, FaultProxy, plan_faults
from support.peers.scripted_stan import scripted_stan
from support.servers.streaming import StreamingServer
from support.streaming_clients import (
    StartServer,
    client_of,
    publish_many,
    sequences,
    state_of,
    take,
    until,
)

FIRST: Final = StartAt.earliest()
QUICK: Final[dict[str, Any]] = {
    "ping_interval": 1,
    "close_timeout": 0.5,
    "request_timeout": 0.5,
    "connect_timeout": 5,
    "backoff": Backoff(0.01, 0.1),
    "connect": {
        "reconnect_time_wait": 0.02,
        "connect_timeout": 0.5,
        "ping_interval": 1,
        "max_outstanding_pings": 1,
    },
}


@asynccontextmanager
async def proxied(
    server: StreamingServer, client_id: str, **options: Any
) -> AsyncIterator[tuple[stan.Client, FaultProxy]]:
    async with FaultProxy(f"{server.host}:{server.port}") as proxy:
        client = client_of(f"nats://{proxy.address}", client_id, **{**QUICK, **options})
        async with client:
            yield client, proxy


@pytest.mark.parametrize("fault", ["cut", "reset"])
async def test_a_broken_connection(
    memory_server: StreamingServer, client_id: str, channel: str, fault: str
) -> None:
    """The session goes on; what was sent into the broken connection is unknown, nothing else."""
    async with (
        proxied(memory_server, client_id) as (client, proxy),
        client.subscribe(channel, ack_wait=1) as messages,
    ):
        before = client._runtime and client._runtime._session
        for number in range(3):
            await publish_many(client, channel, 5)
            await (proxy.cut() if fault == "cut" else proxy.reset())
            with pytest.raises(AckTimeout, match="connection to NATS was lost meanwhile"):
                await client.publish(channel, b"", ack_timeout=0.2)
            await until(lambda: client._link.reconnects > number)  # noqa: B023 - of now
        await publish_many(client, channel, 5)
        seen: set[int] = set()
        while len(seen) < 20:
            seen.update(sequences(await take(messages, 1)))
        assert client._runtime is not None
        assert client._runtime._session is before


async def test_an_outage(memory_server: StreamingServer, client_id: str, channel: str) -> None:
    """Publishes wait unsent; the session is checked before they go out."""
    async with (
        proxied(memory_server, client_id, publish_timeout=0.3) as (client, proxy),
        client.subscribe(channel) as messages,
    ):
        await proxy.refuse()
        await proxy.cut()
        await until(lambda: not client._link.is_up)
        with pytest.raises(PublishTimeout, match="the connection to NATS is lost"):
            await client.publish(channel, b"never")
        with pytest.raises(stan.SubscribeTimeout, match="the connection to NATS is lost"):
            await client.subscribe(channel).open()
        assert client.statistics().publishes.sent == 0
        waiting = await client.publish_async(channel, b"waits")
        await proxy.accept()
        await waiting
        [message] = await take(messages, 1)
        assert message.data == b"waits"


@pytest.mark.parametrize("fault", ["freeze", "swallow"])
async def test_a_half_open_connection(
    memory_server: StreamingServer, client_id: str, channel: str, fault: str
) -> None:
    """The pings of NATS find it; another connection takes its place."""
    async with (
        proxied(memory_server, client_id, ack_timeout=0.5) as (client, proxy),
        client.subscribe(channel, durable="dur") as messages,
    ):
        await client.publish(channel, b"before")
        await take(messages, 1)
        (proxy.freeze if fault == "freeze" else proxy.swallow)()
        with pytest.raises(AckTimeout):
            await client.publish(channel, b"unknown")
        with pytest.raises(stan.SubscribeTimeout):
            await client.subscribe(channel).open()
        await until(lambda: not client._link.is_up)
        await proxy.heal()
        await client.publish(channel, b"after")
        got = [message.data for message in await take(messages, 1)]
        while got[-1] != b"after":
            got += [message.data for message in await take(messages, 1)]
        assert set(got) <= {b"before", b"unknown", b"after"}


async def test_closing_over_a_half_open_connection_ends(
    memory_server: StreamingServer, client_id: str, channel: str
) -> None:
    async with FaultProxy(f"{memory_server.host}:{memory_server.port}") as proxy:
        client = client_of(f"nats://{proxy.address}", client_id, **QUICK)
        await client.connect()
        subscription = client.subscribe(channel)
        await subscription.open()
        proxy.freeze()
        publish = await client.publish_async(channel, b"")
        async with asyncio.timeout(8):
            with pytest.raises(stan.UnsubscribeTimeout):
                await subscription.aclose()
            with pytest.raises(stan.CloseTimeout):
                await client.aclose()
        with pytest.raises(PublishOutcomeUnknown):
            await publish


async def test_a_frozen_server(start_server: StartServer, client_id: str, channel: str) -> None:
    """Every call ends within its timeout, more than the sockets hold notwithstanding."""
    server = start_server("MEMORY")
    assert server.process is not None
    options = {**QUICK, "ack_timeout": 0.5, "publish_timeout": 0.5, "max_in_flight": 50}
    async with client_of(server.url, client_id, **options) as client:
        server.process.freeze()
        async with asyncio.timeout(10):
            outcomes = await asyncio.gather(
                *(client.publish(channel, bytes(500_000)) for _ in range(60)),
                return_exceptions=True,
            )
            kinds = {type(outcome) for outcome in outcomes}
            assert AckTimeout in kinds
            assert kinds <= {AckTimeout, PublishTimeout}
            with pytest.raises(stan.SubscribeTimeout):
                await client.subscribe(channel).open()
        server.process.thaw()
        await until(lambda: client._link.is_confirmed)
        await client.publish(channel, b"")


@pytest.mark.parametrize("store", ["MEMORY", "FILE"])
@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_acked_is_lost(
    servers: dict[str, StreamingServer], client_id: str, channel: str, store: str, seed: int
) -> None:
    """Random faults on the way of a publisher and a reader; both are of one client."""
    acked: set[int] = set()
    read: set[int] = set()
    over = asyncio.Event()

    async def publish(client: stan.Client) -> None:
        number = 0
        while not over.is_set():
            number += 1
            try:
                await client.publish(channel, b"%d" % number)
            except LiftbridgeError:
                continue
            acked.add(number)

    def handle(message: stan.Message) -> None:
        read.add(int(message.data))

    options = {"ack_timeout": 0.3, "publish_timeout": 2}
    async with (
        proxied(servers[store], client_id, **options) as (client, proxy),
        client.subscribe(channel, durable="dur", start=FIRST, ack_wait=1) as messages,
        asyncio.TaskGroup() as group,
    ):
        reading = group.create_task(messages.run(handle, concurrency=4))
        group.create_task(publish(client))
        await proxy.play(plan_faults(seed, 8, max_lasts=0.3, max_pause=0.2))
        over.set()
        await until(lambda: len(acked) > 10 and acked <= read)
        reading.cancel()


@pytest.mark.parametrize("store", ["MEMORY", "FILE"])
async def test_a_server_that_is_killed_again_and_again(
    start_server: StartServer, client_id: str, channel: str, store: str
) -> None:
    """With files nothing acked is lost; without, nothing that was acked by the last server."""
    server = start_server(store)
    acked: dict[int, set[int]] = {}
    read: set[int] = set()
    round_number = 0
    over = asyncio.Event()

    async def publish(client: stan.Client) -> None:
        number = 0
        while not over.is_set():
            number += 1
            this_round = round_number
            try:
                await client.publish(channel, b"%d" % number)
            except LiftbridgeError:
                continue
            if this_round == round_number:
                acked.setdefault(round_number, set()).add(number)

    def handle(message: stan.Message) -> None:
        read.add(int(message.data))

    options = {**QUICK, "ack_timeout": 0.5, "publish_timeout": 5}
    async with (
        client_of(server.url, client_id, **options) as client,
        client.subscribe(channel, durable="dur", start=FIRST, ack_wait=1) as messages,
        asyncio.TaskGroup() as group,
    ):
        reading = group.create_task(messages.run(handle))
        publishing = group.create_task(publish(client))
        for round_number in range(4):
            if round_number:
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            await until(lambda: len(acked.get(round_number, ())) > 50)  # noqa: B023 - of now
        over.set()
        await publishing
        kept = set().union(*acked.values()) if store == "FILE" else acked[round_number]
        await until(lambda: kept <= read)
        reading.cancel()


async def test_garbage_in_answers(nats_url: str, client_id: str, channel: str) -> None:
    """Every call ends with an error that says so, and the client goes on."""
    async with scripted_stan(nats_url, client_id) as scripted:
        client = client_of(nats_url, client_id, cluster=client_id, ping_interval=1)
        rotten = scripted.rotten
        rotten.add("connect")
        with pytest.raises(MalformedData):
            await client.connect()
        client = client_of(nats_url, client_id, cluster=client_id, ping_interval=1)
        rotten.clear()
        await client.connect()
        rotten |= {"sub", "sub_close", "unsub", "close", "pings"}
        with pytest.raises(MalformedData):
            await client.subscribe(channel).open()
        await scripted.has("sub_close")
        rotten.remove("sub")
        subscription = client.subscribe(channel)
        await subscription.open()
        with pytest.raises(MalformedData):
            await subscription.unsubscribe()
        with pytest.raises(MalformedData):
            await subscription.aclose()
        await scripted.has("pings")
        assert state_of(client) is stan.ClientState.OPEN
        await client.publish(channel, b"")
        with pytest.raises(MalformedData):
            await client.aclose()
        assert client._link.is_over


async def test_an_answer_without_subjects(nats_url: str, client_id: str) -> None:
    async with scripted_stan(nats_url, client_id, without={"sub_requests"}):
        with pytest.raises(MalformedData, match="names no subjects"):
            await client_of(nats_url, client_id, cluster=client_id).connect()


async def test_garbage_on_the_connection(
    memory_server: StreamingServer, client_id: str, channel: str
) -> None:
    """Flipped bits break the connection at most; what is published then has an outcome."""
    async with proxied(memory_server, client_id, ack_timeout=0.5) as (client, proxy):
        proxy.flip(Direction.TO_CLIENTS, times=30, rate=0.05)
        async with asyncio.timeout(15):
            for _ in range(10):
                try:
                    await client.publish(channel, b"")
                except LiftbridgeError:
                    continue
            await proxy.heal()
            await proxy.cut()
            while True:
                try:
                    await client.publish(channel, b"whole")
                except LiftbridgeError:
                    continue
                break
