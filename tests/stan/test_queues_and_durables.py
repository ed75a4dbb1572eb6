"""Behaviours of the Go client with queue groups and durables, under the names of its tests."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from liftbridge_aio import InvalidRequest, stan
from liftbridge_aio.stan import StartAt
from support.streaming_clients import (
    MakeClient,
    nothing_comes,
    publish_many,
    sequences,
    take,
    until,
)

FIRST = StartAt.earliest()


async def test_basic_queue_subscription(make: MakeClient, channel: str) -> None:
    """A durable and a plain group of one name exist side by side, and both get each message."""
    async with (
        make() as client,
        client.subscribe(channel, queue="bar") as plain,
        client.subscribe(channel, queue="bar", durable="dur") as durable,
    ):
        await client.publish(channel, b"")
        for group in (plain, durable):
            assert sequences(await take(group, 1)) == [1]
            await nothing_comes(group, 0.1)
        with pytest.raises(InvalidRequest, match="has no ':'"):
            client.subscribe(channel, queue="bar", durable="dur:")


async def test_basic_pub_queue_sub(make: MakeClient, channel: str) -> None:
    async with (
        make() as client,
        client.subscribe(channel, queue="bar") as one,
        client.subscribe(channel, queue="bar") as other,
    ):
        got: Counter[int] = Counter()
        members: set[int] = set()

        async def read(member: stan.Subscription) -> None:
            def handle(message: stan.Message) -> None:
                got[message.sequence] += 1
                members.add(id(member))

            await member.run(handle)

        async with asyncio.TaskGroup() as group:
            for member in (one, other):
                group.create_task(read(member))
            await publish_many(client, channel, 500)
            await until(lambda: got.total() >= 500)
            await one.aclose()
            await other.aclose()
        assert got == Counter(range(1, 501))
        assert len(members) == 2


async def test_members_and_others_on_one_channel(make: MakeClient, channel: str) -> None:
    async with (
        make() as client,
        client.subscribe(channel) as alone,
        client.subscribe(channel, queue="bar") as one,
        client.subscribe(channel, queue="baz") as other,
    ):
        await publish_many(client, channel, 10)
        for subscription in (alone, one, other):
            assert sequences(await take(subscription, 10)) == [*range(1, 11)]


async def test_a_later_member_ignores_its_start(make: MakeClient, channel: str) -> None:
    async with make() as client:
        await publish_many(client, channel, 10)
        start = StartAt.sequence(4)
        async with client.subscribe(channel, queue="bar", start=start) as one:
            assert sequences(await take(one, 7)) == [*range(4, 11)]
            async with client.subscribe(channel, queue="bar", start=FIRST) as other:
                await nothing_comes(other, 0.1)
        # A group without members is none: the start counts again.
        async with client.subscribe(channel, queue="bar", start=StartAt.sequence(9)) as one:
            assert sequences(await take(one, 2)) == [9, 10]


async def test_a_leaving_members_messages_go_to_the_others(make: MakeClient, channel: str) -> None:
    async with make() as client:
        leaving = client.subscribe(channel, queue="bar", manual_ack=True, max_in_flight=3)
        await leaving.open()
        await publish_many(client, channel, 3)
        await take(leaving, 3)
        async with client.subscribe(channel, queue="bar", max_in_flight=1) as staying:
            await leaving.unsubscribe()
            messages = await take(staying, 3)
            assert sequences(messages) == [1, 2, 3]
            assert all(message.redelivered for message in messages)
            assert [message.redelivery_count for message in messages] == [1, 1, 1]


async def test_durable_queue_subscriber(make: MakeClient, channel: str) -> None:
    """The group keeps its place without members, until the last one unsubscribes."""
    async with make() as client:
        await publish_many(client, channel, 10)
        async with client.subscribe(channel, queue="bar", durable="dur", start=FIRST) as member:
            assert sequences(await take(member, 10)) == [*range(1, 11)]
        await publish_many(client, channel, 2)
    async with make() as another:  # durable groups belong to no client id
        async with another.subscribe(channel, queue="bar", durable="dur", start=FIRST) as member:
            assert sequences(await take(member, 2)) == [11, 12]
            async with another.subscribe(channel, queue="bar", durable="dur") as second:
                await second.unsubscribe()
        async with another.subscribe(channel, queue="bar", durable="dur", start=FIRST) as member:
            await nothing_comes(member, 0.1)
            await member.unsubscribe()
        async with another.subscribe(channel, queue="bar", durable="dur", start=FIRST) as member:
            assert sequences(await take(member, 12)) == [*range(1, 13)]


async def test_unacked_messages_come_first_to_the_next_member(
    make: MakeClient, channel: str
) -> None:
    async with make() as client:
        await publish_many(client, channel, 4)
        names: dict[str, Any] = {"queue": "bar", "durable": "dur"}
        async with client.subscribe(channel, **names, start=FIRST, manual_ack=True) as member:
            for message in await take(member, 4):
                if message.sequence == 2:
                    await message.ack()
        await publish_many(client, channel, 1)
        async with client.subscribe(channel, **names) as member:
            messages = await take(member, 4)
            assert sequences(messages) == [1, 3, 4, 5]
            assert [message.redelivered for message in messages] == [True, True, True, False]


async def test_durable_subscriber(make: MakeClient, channel: str, client_id: str) -> None:
    async with make(client_id) as client:
        await publish_many(client, channel, 10)

        async def close_at_the_fifth(message: stan.Message) -> None:
            handled.append(message.sequence)
            if message.sequence == 5:
                await durable.aclose()

        handled: list[int] = []
        async with client.subscribe(channel, durable="dur", start=FIRST) as durable:
            with pytest.raises(stan.StreamingError, match="duplicate durable registration"):
                await client.subscribe(channel, durable="dur").open()
            async with client.subscribe(f"{channel}.other", durable="dur"):
                pass
            await durable.run(close_at_the_fifth)
        assert handled == [1, 2, 3, 4, 5]
    async with make(client_id) as client:
        await publish_many(client, channel, 1)
        # The fifth was not acked, as its handler had closed the subscription before it returned.
        async with client.subscribe(channel, durable="dur", start=FIRST) as durable:
            assert sequences(await take(durable, 7)) == [5, 6, 7, 8, 9, 10, 11]
    # A durable belongs to its client id.
    async with make() as another, another.subscribe(channel, durable="dur") as durable:
        await nothing_comes(durable, 0.1)


async def test_a_durable_is_deleted_by_unsubscribing(make: MakeClient, channel: str) -> None:
    async with make() as client:
        await publish_many(client, channel, 3)
        async with client.subscribe(channel, durable="dur", start=FIRST) as durable:
            assert sequences(await take(durable, 3)) == [1, 2, 3]
            await durable.unsubscribe()
        async with client.subscribe(channel, durable="dur", start=FIRST) as durable:
            assert sequences(await take(durable, 3)) == [1, 2, 3]


async def test_subscriber_close(make: MakeClient, channel: str) -> None:
    """Closing keeps the place of durables; they go on in order."""
    async with make() as client:
        alone: dict[str, Any] = {"durable": "dur"}
        for names in (alone, {**alone, "queue": "group"}):
            subscription = client.subscribe(channel, **names, start=FIRST)
            for begin in (1, 11):
                await publish_many(client, channel, 10)
                async with subscription:
                    assert sequences(await take(subscription, 10)) == [*range(begin, begin + 10)]
                subscription = client.subscribe(channel, **names, start=FIRST)
            async with subscription:
                await nothing_comes(subscription, 0.1)
                await subscription.unsubscribe()
            channel += ".next"
        async with client.subscribe(channel, start=FIRST) as plain:
            await publish_many(client, channel, 1)
            await take(plain, 1)
        async with client.subscribe(channel, start=FIRST) as plain:
            assert sequences(await take(plain, 1)) == [1]
