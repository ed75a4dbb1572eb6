"""Subscriptions with a cursor: where they begin, one partition or several."""

from __future__ import annotations

import asyncio

import pytest

from liftbridge_aio import (
    Client,
    EndReason,
    MergedSubscription,
    Message,
    StartAt,
    StopAt,
    StreamReset,
)
from support.clients import EARLIEST, LATEST, offsets, rest, take
from support.durable_numbers import (
    COUNT,
    CURSOR,
    PARTITIONS,
    SELDOM,
    Failure,
    create_numbers,
    stored,
)
from support.marks import ON_EMBEDDED, ON_ONE_PATH
from support.raw import BOUND

pytestmark = ON_ONE_PATH


@pytest.fixture
async def numbers(client: Client, stream_name: str) -> str:
    return await create_numbers(client, stream_name)


async def test_it_begins_behind_the_cursor(client: Client, numbers: str) -> None:
    await client.set_cursor(CURSOR, numbers, 0, 6)
    async with client.subscribe(
        numbers, partition=0, start=EARLIEST, cursor=CURSOR
    ) as subscription:
        assert subscription.position == 7
        assert offsets(await take(subscription, 3)) == [7, 8, 9]


async def test_without_a_cursor_it_begins_at_the_start(client: Client, numbers: str) -> None:
    async with client.subscribe(
        numbers, partition=0, start=StartAt.offset(4), cursor=CURSOR
    ) as subscription:
        assert offsets(await take(subscription, 2)) == [4, 5]
    assert await stored(client, numbers) == 5


async def test_a_longer_log_of_a_recreated_stream_is_told(client: Client, numbers: str) -> None:
    async with client.subscribe(
        numbers, partition=0, start=EARLIEST, cursor=CURSOR
    ) as subscription:
        assert offsets(await take(subscription, 3)) == [0, 1, 2]
    await client.delete_stream(numbers)
    await create_numbers(client, numbers)
    with pytest.raises(StreamReset, match="former log") as caught:
        await client.subscribe(numbers, partition=0, start=EARLIEST, cursor=CURSOR).__aenter__()
    assert (caught.value.partition, caught.value.offset) == (0, 2)
    subscription = client.subscribe(numbers, partition=0, start=EARLIEST, cursor=CURSOR)
    await subscription.seek(EARLIEST)
    async with subscription:
        assert offsets(await take(subscription, 2)) == [0, 1]
    async with client.subscribe(
        numbers, partition=0, start=EARLIEST, cursor=CURSOR
    ) as subscription:
        assert offsets(await take(subscription, 1)) == [2]


async def test_who_began_with_new_messages_misses_none_that_come_between(
    client: Client, numbers: str
) -> None:
    async with client.subscribe(numbers, cursor=CURSOR):
        assert await stored(client, numbers) == COUNT - 1
    await client.publish(numbers, b"between")
    async with client.subscribe(numbers, cursor=CURSOR) as subscription:
        assert [message.value for message in await take(subscription, 1)] == [b"between"]


async def test_a_bounded_reading_that_was_finished_ends_at_once(
    client: Client, numbers: str
) -> None:
    for expected in (list(range(6)), []):
        async with client.subscribe(
            numbers, partition=0, start=EARLIEST, stop=StopAt.offset(5), cursor=CURSOR
        ) as subscription:
            assert offsets(await rest(subscription)) == expected
            assert subscription.end_reason is EndReason.STOP_REACHED
    assert await stored(client, numbers) == 5


async def test_a_cursor_behind_the_end_of_the_log_is_told(client: Client, numbers: str) -> None:
    await client.set_cursor(CURSOR, numbers, 1, COUNT)
    with pytest.raises(StreamReset, match="reader") as caught:
        async with client.subscribe(numbers, partition=1, start=EARLIEST, cursor=CURSOR):
            pass
    assert (caught.value.stream, caught.value.partition, caught.value.offset) == (
        numbers,
        1,
        COUNT,
    )
    # Who knows where to go on says so.
    subscription = client.subscribe(numbers, partition=1, cursor=CURSOR)
    await subscription.seek(8)
    async with subscription:
        assert offsets(await take(subscription, 2)) == [8, 9]
    assert await stored(client, numbers, 1) == 9


# Several partitions


async def test_each_partition_is_taken_up_where_it_was(client: Client, numbers: str) -> None:
    await client.set_cursor(CURSOR, numbers, 1, 6)
    await client.set_cursor(CURSOR, numbers, 2, COUNT - 1)
    async with client.subscribe(
        numbers, start=EARLIEST, stop=LATEST, cursor=CURSOR
    ) as subscription:
        places = [(one.partition, one.offset) for one in await all_of(subscription)]
    assert sorted(places) == [(0, n) for n in range(COUNT)] + [(1, 7), (1, 8), (1, 9)]
    assert [await stored(client, numbers, n) for n in range(3)] == [COUNT - 1] * 3


async def all_of(subscription: MergedSubscription) -> list[Message]:
    async with asyncio.timeout(BOUND):
        return [message async for message in subscription]


@ON_EMBEDDED
async def test_only_the_message_in_hand_is_not_finished(client: Client, numbers: str) -> None:
    async with client.subscribe(
        numbers, partition=[0, 2], start=EARLIEST, cursor=CURSOR, cursor_interval=SELDOM
    ) as subscription:
        read = {0: -1, 2: -1}
        for _ in range(2 * COUNT):
            message = await anext(subscription)
            await subscription.commit()
            for partition, offset in read.items():
                expected = offset if offset >= 0 else None
                assert await stored(client, numbers, partition) == expected
            read[message.partition] = message.offset
    assert [await stored(client, numbers, n) for n in (0, 2)] == [COUNT - 1] * 2


@ON_EMBEDDED
async def test_leaving_several_by_an_error_leaves_the_one_in_hand(
    client: Client, numbers: str
) -> None:
    async def fail() -> None:
        async with (
            asyncio.timeout(BOUND),
            client.subscribe(numbers, start=EARLIEST, cursor=CURSOR) as subscription,
        ):
            batches = subscription.batches(2 * COUNT, wait=0.1)
            first, second = await anext(batches), await anext(batches)
            finished.update({one.partition: one.offset for one in first})
            assert second
            raise Failure

    finished: dict[int, int] = {}
    with pytest.raises(Failure):
        await fail()
    for partition in range(PARTITIONS):
        assert await stored(client, numbers, partition) == finished.get(partition)


async def test_a_seek_of_several_moves_what_is_stored(client: Client, numbers: str) -> None:
    async with client.subscribe(
        numbers, partition=[0, 1], start=EARLIEST, cursor=CURSOR, cursor_interval=SELDOM
    ) as subscription:
        async with asyncio.timeout(BOUND):
            for _ in range(2 * COUNT):
                await anext(subscription)
        await subscription.commit()
        await subscription.seek({0: 4})
        await subscription.commit()
        assert await stored(client, numbers) == 3
