"""Behaviours of the Go client when closing, and its races, under the names of its tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from liftbridge_aio import ClientClosed, LiftbridgeError, UnsupportedByServer, stan
from liftbridge_aio.stan import StartAt
from stan.conftest import Script
from support.peers.scripted_stan import scripted_stan
from support.processes import succeeds
from support.streaming_clients import (
    BOUND,
    MakeClient,
    client_of,
    publish_many,
    sequences,
    take,
    until,
)

FIRST = StartAt.earliest()


async def test_unsubscribe(make: MakeClient, channel: str) -> None:
    async with make() as client:
        subscription = client.subscribe(channel)
        await subscription.open()
        other = client.subscribe(channel)
        await other.open()
        await subscription.unsubscribe()
        with pytest.raises(stan.SubscriptionClosed):
            await subscription.unsubscribe()
        await subscription.aclose()
        await client.publish(channel, b"")
        with pytest.raises(StopAsyncIteration):
            await anext(subscription)
        assert sequences(await take(other, 1)) == [1]


async def test_a_forked_child_cannot_use_the_client(
    nats_url: str, client_id: str, channel: str
) -> None:
    assert await succeeds(IN_A_FORKED_CHILD, nats_url, client_id, channel) == b"refused\n" * 2


IN_A_FORKED_CHILD = """
import asyncio, os, sys
from liftbridge_aio import ClientClosed, stan
from liftbridge_aio.nats import NatsPublisher

async def use(client, publisher, channel):
    for publish in (client.publish, publisher.publish_plain):
        try:
            await publish(channel, b"child")
        except ClientClosed as error:
            assert "parent of this forked process" in str(error)
            print("refused", flush=True)
    await client.aclose()
    await publisher.aclose()

async def main(url, client_id, channel):
    async with (
        stan.Client(url, cluster="test-cluster", client_id=client_id) as client,
        NatsPublisher(url) as publisher,
    ):
        child = os.fork()
        if not child:
            asyncio.events._set_running_loop(None)
            asyncio.run(use(client, publisher, channel))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        await client.publish(channel, b"parent")

asyncio.run(main(*sys.argv[1:]))
"""


async def test_unsubscribe_while_conn_closing(nats_url: str, client_id: str, channel: str) -> None:
    async with scripted_stan(nats_url, client_id, silent={"close"}) as scripted:
        client = client_of(nats_url, client_id, cluster=client_id, request_timeout=0.5)
        await client.connect()
        subscription = client.subscribe(channel)
        await subscription.open()
        closing = asyncio.create_task(client.aclose())
        await scripted.has("close")
        with pytest.raises(stan.SubscriptionClosed):
            await subscription.unsubscribe()
        with pytest.raises(stan.CloseTimeout):
            await closing


async def test_close(make: MakeClient, channel: str) -> None:
    client = make()
    await client.connect()
    subscription = client.subscribe(channel, manual_ack=True)
    await subscription.open()
    unopened = client.subscribe(channel)
    await client.publish(channel, b"")
    [message] = await take(subscription, 1)
    reading = asyncio.create_task(anext(subscription))
    await asyncio.sleep(0)
    await client.aclose()
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: client.publish(channel, b""),
        lambda: client.publish_async(channel, b""),
        client.connect,
        unopened.open,
    ]
    for call in calls:
        with pytest.raises(ClientClosed):
            await call()
    with pytest.raises(ClientClosed):
        client.subscribe(channel)
    for close in (subscription.unsubscribe, message.ack):
        with pytest.raises(stan.SubscriptionClosed):
            await close()
    await subscription.aclose()
    with pytest.raises(StopAsyncIteration):
        await reading


async def test_conn_close_error(nats_url: str, client_id: str) -> None:
    error = "stan: unknown clientID"
    async with scripted_stan(nats_url, client_id, errors={"close": error}):
        client = client_of(nats_url, client_id, cluster=client_id)
        await client.connect()
        with pytest.raises(stan.StreamingError, match=error) as caught:
            await client.aclose()
        assert caught.value.text == error
        assert client._link.is_over


async def test_double_close(make: MakeClient) -> None:
    client = make()
    await client.connect()
    await asyncio.gather(client.aclose(), client.aclose())
    await client.aclose()
    never_connected = make()
    await never_connected.aclose()
    with pytest.raises(ClientClosed):
        await never_connected.connect()


async def test_sub_close_error(script: Script, channel: str) -> None:
    """A close that failed may be called again; a server may be too old for it."""
    async with script(errors={"sub_close": "stan: no"}) as (scripted, client):
        subscription = client.subscribe(channel, durable="dur")
        await subscription.open()
        with pytest.raises(stan.StreamingError, match="stan: no"):
            await subscription.aclose()
        scripted.errors.clear()
        await subscription.aclose()
        assert len(scripted.of("sub_close")) == 2
    async with script(without={"sub_close_requests"}) as (scripted, client):
        durable = client.subscribe(channel, durable="dur")
        await durable.open()
        with pytest.raises(UnsupportedByServer):
            await durable.aclose()
        async with client.subscribe(channel):
            pass
        assert len(scripted.of("unsub")) == 1


async def test_an_error_of_the_block_is_not_replaced_by_one_of_closing(
    nats_url: str, client_id: str, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        async with (
            client_of(nats_url, client_id, cluster=client_id) as client,
            client.subscribe(channel),
        ):
            raise ZeroDivisionError

    errors = {"sub_close": "stan: no", "close": "stan: neither"}
    async with scripted_stan(nats_url, client_id, errors=errors):
        with pytest.raises(ZeroDivisionError):
            await fail()
    assert caplog.text.count("while closing <") == 2


async def test_race_on_close(make: MakeClient, channel: str) -> None:
    """Subscriptions end while messages come, by either way, and while publishes go out."""
    async with make() as client:
        publishing = asyncio.create_task(publish_many(client, channel, 2000))
        for number in range(10):
            subscription = client.subscribe(channel, start=FIRST)
            await subscription.open()
            await take(subscription, number)
            await (subscription.aclose() if number % 2 else subscription.unsubscribe())
            with pytest.raises(StopAsyncIteration):
                await anext(subscription)
        await publishing


async def test_race_ack_on_close(make: MakeClient, channel: str) -> None:
    async def ack_all_and_close_halfway(subscription: stan.Subscription) -> None:
        async for message in subscription:
            if message.sequence == 50:
                closing.append(asyncio.create_task(subscription.aclose()))
                await asyncio.sleep(0)
            await message.ack()

    closing: list[asyncio.Task[None]] = []
    async with make() as client:
        await publish_many(client, channel, 100)
        for _ in range(5):
            subscription = client.subscribe(channel, start=FIRST, manual_ack=True)
            await subscription.open()
            with pytest.raises(stan.SubscriptionClosed):
                await ack_all_and_close_halfway(subscription)
            await closing.pop()


async def test_race_on_subscribe_and_conn_close(make: MakeClient, channel: str) -> None:
    for turns in range(6):
        client = make()
        await client.connect()
        opening = [asyncio.create_task(client.subscribe(channel).open()) for _ in range(10)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await client.aclose()
        async with asyncio.timeout(BOUND):
            outcomes = await asyncio.gather(*opening, return_exceptions=True)
        assert all(each is None or isinstance(each, LiftbridgeError) for each in outcomes)
        assert client._link.is_over


async def test_closing_twice_at_once_sends_one_request(script: Script, channel: str) -> None:
    async with script() as (scripted, client):
        subscription = client.subscribe(channel)
        await subscription.open()
        await asyncio.gather(subscription.aclose(), subscription.aclose())
        assert len(scripted.of("sub_close")) == 1


async def test_cancelling_a_close_releases_everything(
    nats_url: str, client_id: str, channel: str
) -> None:
    tasks = asyncio.all_tasks()
    async with scripted_stan(nats_url, client_id, silent={"pub"}) as scripted:
        client = client_of(nats_url, client_id, cluster=client_id, close_timeout=60)
        await client.connect()
        publish = await client.publish_async(channel, b"")
        await scripted.has("pub")
        closing = asyncio.create_task(client.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert client._link.is_over
        assert publish.done()
        assert await scripted.has("close")
    await until(lambda: asyncio.all_tasks() == tasks)


async def test_a_client_belongs_to_its_event_loop(make: MakeClient) -> None:
    async with make() as client:

        def close_elsewhere() -> None:
            asyncio.run(client.aclose())

        with pytest.raises(RuntimeError, match="in the event loop in which it was connected"):
            await asyncio.to_thread(close_elsewhere)


async def test_cancelling_the_end_of_a_subscription_closes_it_all_the_same(
    make: MakeClient, channel: str
) -> None:
    async with make() as client:
        for deletes in [False] * 5 + [True]:
            subscription = client.subscribe(channel, durable="billing")
            await subscription.open()
            ending = subscription.unsubscribe if deletes else subscription.aclose
            task = asyncio.create_task(ending())
            await asyncio.sleep(0)  # it has begun
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: client.statistics().subscriptions == 0)
            assert subscription.state is stan.SubscriptionState.CLOSED
