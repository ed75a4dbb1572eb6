"""Behaviours of the Go client when subscribing, under the names of its tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from liftbridge_aio import ConcurrentRead, InvalidRequest, WrongType, stan
from liftbridge_aio.stan import StartAt
from liftbridge_aio.wire.stan import StartPosition
from stan.conftest import Script
from support.streaming_clients import (
    MakeClient,
    client_of,
    nothing_comes,
    publish_many,
    sequences,
    take,
    until,
)


async def test_basic_subscription(make: MakeClient, channel: str) -> None:
    async with make() as client, client.subscribe(channel) as messages:
        assert [messages.is_open] == [True]
        await messages.open()
    assert [messages.is_open] == [False]
    with pytest.raises(stan.SubscriptionClosed):
        await messages.open()


async def test_basic_pub_sub(make: MakeClient, channel: str) -> None:
    before = time.time_ns()
    async with make() as client, client.subscribe(channel) as messages:
        await publish_many(client, channel, 500)
        got = await take(messages, 500)
        assert sequences(got) == [*range(1, 501)]
        assert [int(message.data) for message in got] == [*range(500)]
        assert all(before < message.timestamp < time.time_ns() for message in got)
        assert got[0].time.tzinfo is UTC
        assert {message.channel for message in got} == {channel}
        assert not any(message.redelivered for message in got)
        await nothing_comes(messages)


async def test_no_duplicates_on_subscriber_start(make: MakeClient, channel: str) -> None:
    """Messages are published before, while and after the subscription begins."""
    async with make() as client:
        publishing = asyncio.create_task(publish_many(client, channel, 1000))
        await until(lambda: client.statistics().publishes.acked > 10)
        async with client.subscribe(channel, start=StartAt.earliest()) as messages:
            assert sequences(await take(messages, 1000)) == [*range(1, 1001)]
            await publishing
            await nothing_comes(messages, 0.1)


async def test_start_position_last(make: MakeClient, channel: str) -> None:
    async with make() as client:
        await publish_many(client, channel, 10)
        async with client.subscribe(channel, start=StartAt.latest()) as messages:
            await publish_many(client, channel, 2)
            assert sequences(await take(messages, 3)) == [10, 11, 12]


async def test_last_received_on_an_empty_channel(make: MakeClient, channel: str) -> None:
    async with make() as client, client.subscribe(channel, start=StartAt.latest()) as messages:
        await publish_many(client, channel, 2)
        assert sequences(await take(messages, 2)) == [1, 2]


async def test_new_only_is_the_default(make: MakeClient, channel: str) -> None:
    async with make() as client:
        await publish_many(client, channel, 10)
        async with client.subscribe(channel) as messages:
            await publish_many(client, channel, 2)
            assert sequences(await take(messages, 2)) == [11, 12]


async def test_start_at_sequence(make: MakeClient, channel: str) -> None:
    async with make() as client:
        await publish_many(client, channel, 10)
        async with client.subscribe(channel, start=StartAt.sequence(6)) as messages:
            assert sequences(await take(messages, 5)) == [6, 7, 8, 9, 10]
        async with client.subscribe(channel, start=StartAt.sequence(100)) as messages:
            await publish_many(client, channel, 1)
            assert sequences(await take(messages, 1)) == [11]


async def test_start_at_time(make: MakeClient, channel: str) -> None:
    async with make() as client:
        await publish_many(client, channel, 5)
        async with client.subscribe(channel, start=StartAt.earliest()) as messages:
            early = (await take(messages, 5))[-1]
        # The wire carries ages, which are the less exact the longer a request takes.
        await asyncio.sleep(0.3)  # the time between the messages is what is tested
        moment = datetime.now(UTC)
        await asyncio.sleep(0.3)
        await publish_many(client, channel, 5)
        for start in (StartAt.time(moment), StartAt.time(early.timestamp + 150_000_000)):
            async with client.subscribe(channel, start=start) as messages:
                assert sequences(await take(messages, 5)) == [6, 7, 8, 9, 10]
        for start in (StartAt.ago(timedelta(seconds=0.3)), StartAt.ago(0.3)):
            async with client.subscribe(channel, start=start) as messages:
                assert sequences(await take(messages, 5)) == [6, 7, 8, 9, 10]
        async with client.subscribe(channel, start=StartAt.ago(3600)) as messages:
            assert sequences(await take(messages, 10)) == [*range(1, 11)]
        later = datetime.now(UTC) + timedelta(hours=1)
        async with client.subscribe(channel, start=StartAt.time(later)) as messages:
            await publish_many(client, channel, 1)
            assert sequences(await take(messages, 1)) == [11]


async def test_start_at_first(make: MakeClient, channel: str) -> None:
    async with make() as client:
        await publish_many(client, channel, 10)
        async with client.subscribe(channel, start=StartAt.earliest()) as messages:
            assert sequences(await take(messages, 10)) == [*range(1, 11)]


async def test_start_at(script: Script, client_id: str, channel: str) -> None:
    """Each start is on the wire what its name says, and so is every option."""
    now = time.time_ns()
    starts: dict[StartAt | None, dict[str, Any]] = {
        None: {"start_position": StartPosition.NEW_ONLY},
        StartAt.new_only(): {"start_position": StartPosition.NEW_ONLY},
        StartAt.latest(): {"start_position": StartPosition.LAST_RECEIVED},
        StartAt.earliest(): {"start_position": StartPosition.FIRST},
        StartAt.sequence(22): {
            "start_position": StartPosition.SEQUENCE_START,
            "start_sequence": 22,
        },
        StartAt.ago(30): {
            "start_position": StartPosition.TIME_DELTA_START,
            "start_time_delta": 30 * 10**9,
        },
    }
    async with script() as (scripted, client):
        for start, fields in starts.items():
            async with client.subscribe(channel, start=start):
                request = scripted.of("sub")[-1]
            assert {name: getattr(request, name) for name in fields} == fields
            assert (request.client_id, request.subject) == (client_id, channel)
            assert (request.max_in_flight, request.ack_wait_in_secs) == (1024, 30)
            assert (request.q_group, request.durable_name) == ("", "")
        async with client.subscribe(channel, start=StartAt.time(now - 10**9)):
            delta = scripted.of("sub")[-1].start_time_delta
            assert 10**9 < delta < 10**9 + time.time_ns() - now
        async with client.subscribe(
            channel,
            queue="group",
            durable="name",
            ack_wait=timedelta(minutes=1),
            max_in_flight=7,
            start=StartAt.sequence(1),
        ):
            request = scripted.of("sub")[-1]
            assert (request.max_in_flight, request.ack_wait_in_secs) == (7, 60)
            assert (request.q_group, request.durable_name) == ("group", "name")


def wrong_starts() -> list[Callable[[], object]]:
    return [
        lambda: StartAt.sequence(0),
        lambda: StartAt.sequence(2**64),
        lambda: StartAt.time(-1),
        lambda: StartAt.time(datetime(2020, 1, 1)),  # noqa: DTZ001 - that is what is refused
        lambda: StartAt.ago(-1),
        lambda: StartAt.ago(timedelta(-1)),
        lambda: StartAt.ago(float("nan")),
        lambda: StartAt.ago(float("inf")),
    ]


@pytest.mark.parametrize("number", range(8))
async def test_wrong_starts(number: int) -> None:
    with pytest.raises(InvalidRequest):
        wrong_starts()[number]()


@pytest.mark.parametrize(
    "wrong",
    [
        {"ack_wait": 0},
        {"ack_wait": 0.5},
        {"ack_wait": 1.5},
        {"ack_wait": float("inf")},
        {"max_in_flight": 0},
        {"max_in_flight": 2**31},
        {"durable": "a:b", "queue": "c"},
    ],
    ids=str,
)
async def test_wrong_options_are_refused_before_anything_is_sent(
    nats_url: str, client_id: str, channel: str, wrong: dict[str, Any]
) -> None:
    async with client_of(nats_url, client_id) as client:
        with pytest.raises(InvalidRequest):
            client.subscribe(channel, **wrong)
        with pytest.raises(WrongType):
            client.subscribe(channel, start=5)  # type: ignore[arg-type]
        with pytest.raises(WrongType):
            client.subscribe(channel, manual_ack=1)  # type: ignore[arg-type]


async def test_sub_timeout(script: Script, client_id: str, channel: str) -> None:
    """The server is asked to forget what it may have created."""
    async with script(silent={"sub"}, request_timeout=0.2) as (scripted, client):
        subscription = client.subscribe(channel, durable="d")
        with pytest.raises(stan.SubscribeTimeout, match=channel):
            await subscription.open()
        [close] = await scripted.has("sub_close")
        [request] = scripted.of("sub")
        assert (close.client_id, close.subject, close.inbox) == (client_id, channel, request.inbox)
        assert client.statistics().subscriptions == 0
        assert len(client._link._nats.connection._subs) == 4  # heartbeats, pings, acks, replies
        scripted.silent.clear()
        async with subscription:
            assert subscription.is_open


async def test_a_cancelled_subscribe_is_forgotten(script: Script, channel: str) -> None:
    async with script(silent={"sub"}) as (scripted, client):
        opening = asyncio.create_task(client.subscribe(channel).open())
        await scripted.has("sub")
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert await scripted.has("sub_close")
        assert client.statistics().subscriptions == 0


async def test_timeout_on_requests(script: Script, channel: str) -> None:
    async with script(request_timeout=0.2) as (scripted, client):
        closed, unsubscribed = client.subscribe(channel), client.subscribe(channel)
        await closed.open()
        await unsubscribed.open()
        scripted.silent |= {"sub", "sub_close", "unsub", "close"}
        with pytest.raises(stan.SubscribeTimeout):
            await client.subscribe(channel).open()
        with pytest.raises(stan.UnsubscribeTimeout):
            await closed.aclose()
        with pytest.raises(stan.UnsubscribeTimeout):
            await unsubscribed.unsubscribe()
        with pytest.raises(StopAsyncIteration):
            await anext(closed)
        # A further call sends the request again.
        scripted.silent -= {"sub_close", "unsub"}
        await closed.aclose()
        await unsubscribed.unsubscribe()
        assert len(scripted.of("unsub")) == 2
        scripted.silent |= {"close"}
        with pytest.raises(stan.CloseTimeout):
            await client.aclose()
        assert client._link.is_over
        await client.aclose()


async def test_two_readers_are_one_too_many(make: MakeClient, channel: str) -> None:
    async with make() as client, client.subscribe(channel) as messages:
        reading = asyncio.create_task(anext(messages))
        await asyncio.sleep(0)
        with pytest.raises(ConcurrentRead):
            await anext(messages)
        with pytest.raises(ConcurrentRead):
            await messages.run(print)
        await publish_many(client, channel, 1)
        assert (await reading).sequence == 1


async def test_an_unopened_subscription_cannot_be_read(make: MakeClient, channel: str) -> None:
    async with make() as client:
        subscription = client.subscribe(channel)
        with pytest.raises(stan.SubscriptionClosed, match="not open yet"):
            await anext(subscription)
        with pytest.raises(stan.SubscriptionClosed, match="never opened"):
            await subscription.unsubscribe()
        await subscription.aclose()
