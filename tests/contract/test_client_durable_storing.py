"""Subscriptions with a cursor: what is finished, and so stored."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from liftbridge_aio import (
    Client,
    ClientClosed,
    InvalidRequest,
    StartAt,
)
from support.clients import EARLIEST, LATEST, offsets, rest, take
from support.durable_numbers import COUNT, CURSOR, SELDOM, Failure, create_numbers, stored
from support.marks import ON_EMBEDDED, ON_ONE_PATH
from support.raw import BOUND, eventually
from support.servers.node import Server

pytestmark = ON_ONE_PATH


@pytest.fixture
async def numbers(client: Client, stream_name: str) -> str:
    return await create_numbers(client, stream_name)


@ON_EMBEDDED
async def test_a_message_is_finished_while_the_next_is_waited_for(
    client: Client, numbers: str
) -> None:
    async with client.subscribe(
        numbers, partition=0, start=EARLIEST, cursor=CURSOR, cursor_interval=SELDOM
    ) as subscription:
        await take(subscription, COUNT)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(subscription)
        await subscription.commit()
        assert await stored(client, numbers) == COUNT - 1
        await client.publish(numbers, b"next")
        await take(subscription, 1)
        await subscription.commit()
        assert await stored(client, numbers) == COUNT - 1


@ON_EMBEDDED
async def test_with_an_explicit_start_nothing_is_stored_before_the_first_message(
    client: Client, numbers: str
) -> None:
    async with client.subscribe(
        numbers, partition=0, start=StartAt.offset(COUNT + 5), cursor=CURSOR
    ):
        pass
    assert await stored(client, numbers) is None


@ON_EMBEDDED
async def test_closing_while_the_cursor_is_asked_for_ends_it(client: Client, numbers: str) -> None:
    await client.set_cursor(CURSOR, numbers, 0, 5)
    for partition in (0, [0, 1]):
        subscription = client.subscribe(numbers, partition=partition, start=EARLIEST, cursor=CURSOR)
        entering = asyncio.create_task(subscription.__aenter__())
        await asyncio.sleep(0)
        async with asyncio.timeout(BOUND):
            await subscription.aclose()
            with pytest.raises(ClientClosed):
                await entering
    assert len(client.statistics().subscriptions) == 0


@ON_EMBEDDED
async def test_a_seek_while_the_cursor_is_asked_for_counts(client: Client, numbers: str) -> None:
    await client.set_cursor(CURSOR, numbers, 0, 5)
    subscription = client.subscribe(numbers, partition=0, start=EARLIEST, cursor=CURSOR)
    entering = asyncio.create_task(subscription.__aenter__())
    await asyncio.sleep(0)
    await subscription.seek(2)
    async with asyncio.timeout(BOUND), await entering:
        assert offsets(await take(subscription, 2)) == [2, 3]


async def test_leaving_finishes_what_was_in_hand(client: Client, numbers: str) -> None:
    async with client.subscribe(
        numbers, partition=0, start=EARLIEST, cursor=CURSOR
    ) as subscription:
        async for message in subscription:
            if message.offset == 4:
                break
    assert await stored(client, numbers) == 4


@ON_EMBEDDED
@pytest.mark.parametrize("error", [Failure, asyncio.CancelledError])
async def test_leaving_by_an_error_does_not_finish_it(
    client: Client, numbers: str, error: type[BaseException]
) -> None:
    async def fail() -> None:
        async with client.subscribe(
            numbers, partition=0, start=EARLIEST, cursor=CURSOR
        ) as subscription:
            async for message in subscription:
                if message.offset == 4:
                    raise error

    with pytest.raises(error):
        await fail()
    assert await stored(client, numbers) == 3


@ON_EMBEDDED
async def test_closing_it_does_not_finish_what_is_in_hand(client: Client, numbers: str) -> None:
    async with client.subscribe(
        numbers, partition=0, start=EARLIEST, cursor=CURSOR
    ) as subscription:
        await take(subscription, 5)
        await subscription.aclose()
        assert await stored(client, numbers) == 3
    assert await stored(client, numbers) == 4


async def test_closing_the_client_stores_what_is_finished(
    server: Server, client: Client, numbers: str
) -> None:
    async with Client(server.address) as other:
        subscription = other.subscribe(
            numbers, partition=0, start=EARLIEST, cursor=CURSOR, cursor_interval=SELDOM
        )
        merged = other.subscribe(
            numbers, partition=[0, 1], start=EARLIEST, cursor="other", cursor_interval=SELDOM
        )
        await subscription.__aenter__()
        await merged.__aenter__()
        await take(subscription, 5)
        waits = asyncio.create_task(rest(merged))
        await eventually(lambda: merged.statistics().delivered == 2 * COUNT)
    assert await stored(client, numbers) == 3
    assert [await client.fetch_cursor("other", numbers, n) for n in (0, 1)] == [COUNT - 1] * 2
    await waits
    await merged.__aexit__(None, None, None)
    with pytest.raises(ClientClosed):
        await subscription.__aexit__(None, None, None)


async def test_the_end_finishes_everything(client: Client, numbers: str) -> None:
    async with client.subscribe(
        numbers, partition=0, start=EARLIEST, stop=LATEST, cursor=CURSOR, cursor_interval=SELDOM
    ) as subscription:
        await rest(subscription)
        await subscription.commit()
        assert await stored(client, numbers) == COUNT - 1


async def test_it_is_stored_by_and_by(client: Client, numbers: str) -> None:
    async with client.subscribe(
        numbers, partition=0, start=EARLIEST, cursor=CURSOR, cursor_interval=0.01
    ) as subscription:
        await take(subscription, 5)

        async def is_stored() -> bool:
            return await stored(client, numbers) == 3

        await eventually(is_stored)


async def test_a_seek_moves_what_is_stored(client: Client, numbers: str) -> None:
    async with client.subscribe(
        numbers, partition=0, start=EARLIEST, cursor=CURSOR, cursor_interval=SELDOM
    ) as subscription:
        await take(subscription, 8)
        await subscription.commit()
        await subscription.seek(3)
        await subscription.commit()
        assert await stored(client, numbers) == 2
        assert offsets(await take(subscription, 2)) == [3, 4]
        await subscription.commit()
        assert await stored(client, numbers) == 3


@pytest.mark.parametrize("partitions", [0, [0, 1]], ids=["one", "many"])
async def test_a_seek_behind_the_end_stores_nothing(
    client: Client, numbers: str, partitions: int | list[int]
) -> None:
    async with client.subscribe(
        numbers, partition=partitions, start=EARLIEST, cursor=CURSOR
    ) as subscription:
        with pytest.raises(InvalidRequest, match="the log ends at"):
            await subscription.seek(1000)
    assert await stored(client, numbers) is None
    async with client.subscribe(
        numbers, partition=partitions, start=EARLIEST, cursor=CURSOR
    ) as subscription:
        end = (await client.fetch_partition_metadata(numbers, 0)).newest_offset + 1
        await subscription.seek(end)
    assert await stored(client, numbers) == end - 1


@ON_EMBEDDED
async def test_however_it_is_read_nothing_unfinished_is_stored(
    client: Client, numbers: str
) -> None:
    chance = random.Random(1)
    await client.publish_many(numbers, [b""] * 90)
    in_hand: list[int] = []
    last = -1
    async with client.subscribe(
        numbers, partition=0, start=EARLIEST, cursor=CURSOR, cursor_interval=0.001
    ) as subscription:
        while last < 60:
            way = chance.choice(["one", "ones", "list", "raw", "columns", "in vain"])
            finished = last
            if way == "in vain":
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.001):
                        batch = await anext(subscription.batches(5_000, wait=BOUND))
                        in_hand = offsets(batch)
            elif way == "columns":
                columns = await subscription.read_columns(chance.randint(1, 9))
                in_hand = list(columns.offsets) if columns is not None else []
            elif way == "raw":
                async with asyncio.timeout(BOUND):
                    raw = await anext(subscription.batches(5, raw=True))
                in_hand = [one.offset for one in raw]
            elif way == "list":
                async with asyncio.timeout(BOUND):
                    in_hand = offsets(await anext(subscription.batches(5)))
            else:
                for message in await take(subscription, 1 if way == "one" else 5):
                    finished, in_hand = max(last, message.offset - 1), [message.offset]
            last = max(last, *in_hand)
            await asyncio.sleep(0.002)  # so that it may be stored
            position = await stored(client, numbers)
            assert position is None or position <= finished
            await subscription.commit()
            assert await stored(client, numbers) == (finished if finished >= 0 else None)
    assert await stored(client, numbers) == last
