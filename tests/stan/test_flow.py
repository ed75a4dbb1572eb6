"""Behaviours of the Go client's figures of a subscription, under the names of its tests."""

from __future__ import annotations

import asyncio

import pytest

from liftbridge_aio import stan
from liftbridge_aio.stan import StartAt
from liftbridge_aio.wire.stan import MsgProto
from stan.conftest import Script
from support.streaming_clients import MakeClient, publish_many, sequences, take, until

FIRST = StartAt.earliest()


async def test_subscription_pending(make: MakeClient, channel: str) -> None:
    async with make() as client, client.subscribe(channel) as messages:
        await publish_many(client, channel, 100)
        await until(lambda: messages.statistics().pending == 100)
        whole = messages.statistics().pending_bytes
        taken = await take(messages, 60)
        figures = messages.statistics()
        sizes = [
            len(bytes(MsgProto(each.sequence, channel, "", each.data, each.timestamp)))
            for each in taken
        ]
        assert (figures.pending, figures.pending_bytes) == (40, whole - sum(sizes))
        assert (figures.max_pending, figures.max_pending_bytes) == (100, whole)
    assert messages.statistics().pending == 0


async def test_slow_async_subscriber(make: MakeClient, channel: str) -> None:
    """What is too slow is waited for; nothing is lost, and no more than max_in_flight waits."""
    async with make() as client, client.subscribe(channel, max_in_flight=20) as messages:
        await publish_many(client, channel, 200)
        got: list[int] = []
        while len(got) < 200:
            got += sequences(await take(messages, 1))
            await asyncio.sleep(0.001)
        assert got == [*range(1, 201)]
        assert messages.statistics().max_pending <= 20


async def test_sub_delivered(make: MakeClient, channel: str) -> None:
    async with make() as client, client.subscribe(channel) as messages:
        await publish_many(client, channel, 10)
        await take(messages, 7)
        await until(lambda: messages.statistics().received == 10)
        assert messages.statistics().delivered == 7
        assert client.statistics().subscriptions == 1


async def test_sub_dropped(make: MakeClient, channel: str) -> None:
    """Nothing is ever dropped, above the limits of nats-py either."""
    count = 2000
    async with (
        make() as client,
        client.subscribe(channel, start=FIRST, manual_ack=True, max_in_flight=count) as messages,
    ):
        inbox = messages._inbox
        assert inbox is not None
        assert (inbox._pending_msgs_limit, inbox._pending_bytes_limit) == (-1, -1)
        await publish_many(client, channel, count)
        await until(lambda: messages.statistics().pending == count)
        assert sequences(await take(messages, count)) == [*range(1, count + 1)]


async def test_sub_is_valid(make: MakeClient, channel: str) -> None:
    async with make() as client:
        subscription = client.subscribe(channel)
        assert (subscription.is_open, subscription.state) == (False, stan.SubscriptionState.NEW)
        await subscription.open()
        assert (subscription.is_open, subscription.state) == (True, stan.SubscriptionState.OPEN)
        assert repr(subscription) == f"<Subscription {channel!r} open>"
        await subscription.aclose()
        assert (subscription.is_open, subscription.state) == (
            False,
            stan.SubscriptionState.CLOSED,
        )
        other = client.subscribe(channel, durable="dur", queue="group")
        await other.open()
        assert repr(other) == f"<Subscription {channel!r} queue='group' durable='dur' open>"
    assert not other.is_open


async def test_what_is_redelivered_to_a_slow_reader_waits_once(
    make: MakeClient, channel: str
) -> None:
    """Messages that wait for longer than ack_wait come again; the reader sees one of each."""
    async with make() as client:
        await publish_many(client, channel, 10)
        async with client.subscribe(channel, start=FIRST, ack_wait=1) as messages:
            await until(lambda: messages.statistics().received >= 20)
            assert messages.statistics().pending == 10
            got = await take(messages, 10)
            assert sequences(got) == [*range(1, 11)]
            assert all(message.redelivered for message in got)


async def test_an_ack_takes_back_what_was_redelivered_meanwhile(
    make: MakeClient, channel: str
) -> None:
    async with make() as client:
        await publish_many(client, channel, 2)
        async with client.subscribe(channel, start=FIRST, ack_wait=1, manual_ack=True) as messages:
            first, second = await take(messages, 2)
            await until(lambda: messages.statistics().pending == 2)
            await first.ack()
            assert messages.statistics().pending == 1
            [again] = await take(messages, 1)
            assert (again.sequence, again.redelivery_count) == (2, 1)
            await second.ack()
            await again.ack()
            assert messages.statistics().unacked == 0


async def test_what_is_no_message_is_counted(
    script: Script, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        script() as (scripted, client),
        client.subscribe(channel) as messages,
    ):
        [request] = scripted.of("sub")
        for garbage in (b"", b"\xff" * 30, b"\x12\x02\xc3\x28", b"\x12\x01a"):
            await scripted.send(request.inbox, garbage)
        whole = MsgProto(sequence=7, subject=channel, data=b"x", timestamp=5)
        await scripted.send(request.inbox, bytes(whole))
        assert sequences(await take(messages, 1)) == [7]
        assert messages.statistics().malformed == 4
        assert "is no message: Error parsing" in caplog.text
        assert "has no sequence" in caplog.text


async def test_acks_say_channel_and_sequence(script: Script, channel: str) -> None:
    async with (
        script() as (scripted, client),
        client.subscribe(channel, manual_ack=True) as messages,
    ):
        [request] = scripted.of("sub")
        for sequence in (1, 127, 128, 2**64 - 1):
            message = MsgProto(sequence=sequence, subject=channel, timestamp=sequence % 2**40)
            await scripted.send(request.inbox, bytes(message))
            [got] = await take(messages, 1)
            await got.ack()
            ack = (await scripted.has("ack", len(scripted.of("ack")) + 1))[-1]
            assert (ack.subject, ack.sequence) == (channel, sequence)
