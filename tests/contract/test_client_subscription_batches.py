"""A subscription read in lists, decoded and raw."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import pytest

from liftbridge_aio import (
    Client,
    ClientOptions,
    ConcurrentRead,
    EndReason,
    InvalidRequest,
    RawMessage,
    StopAt,
    StreamDeleted,
)
from support.clients import EARLIEST, LATEST, Delivered, all_here, take, values
from support.raw import BOUND, eventually
from support.servers.node import Server

COUNT = 500
NUMBERS = [b"%d" % n for n in range(COUNT)]
T = TypeVar("T")


@pytest.fixture
async def numbers(client: Client, stream_name: str) -> str:
    """A stream that holds the numbers."""
    await client.create_stream(stream_name)
    await client.publish_many(stream_name, NUMBERS)
    return stream_name


async def all_of(batches: AsyncIterator[list[T]]) -> list[list[T]]:
    async with asyncio.timeout(BOUND):
        return [batch async for batch in batches]


async def next_of(batches: AsyncIterator[list[T]]) -> list[T]:
    async with asyncio.timeout(BOUND):
        return await anext(batches)


@pytest.mark.parametrize("most", [1, 7, 128, 300, 1000])
async def test_batches_hold_every_message_once_and_in_order(
    client: Client, numbers: str, most: int
) -> None:
    subscription = client.subscribe(numbers, partition=0, start=EARLIEST, stop=LATEST)
    batches = await all_of(subscription.batches(max_size=most))
    assert all(0 < len(batch) <= most for batch in batches)
    assert [message.value for batch in batches for message in batch] == NUMBERS
    assert subscription.end_reason is EndReason.STOP_REACHED
    assert subscription.statistics().delivered == COUNT


@pytest.mark.parametrize("most", [7, 300])
async def test_columns_hold_every_message_once_and_take_turns_with_batches(
    client: Client, numbers: str, most: int
) -> None:
    read: list[bytes] = []
    async with (
        asyncio.timeout(BOUND),
        client.subscribe(numbers, partition=0, start=EARLIEST, stop=LATEST) as subscription,
    ):
        while columns := await subscription.read_columns(most, 0.01):
            assert 0 < len(columns) <= most
            assert len(columns.offsets) == len(columns.values)
            read += columns.values
            async for batch in subscription.batches(most):
                read += [message.value for message in batch]
                break
        assert read == NUMBERS
        assert subscription.end_reason is EndReason.STOP_REACHED
        assert subscription.statistics().delivered == COUNT
        assert await subscription.read_columns(most) is None


async def test_columns_end_with_the_error_that_ends_the_reading(
    client: Client, numbers: str
) -> None:
    async with (
        asyncio.timeout(BOUND),
        client.subscribe(numbers, partition=0, start=EARLIEST) as subscription,
    ):
        await all_here(subscription, COUNT)
        await client.delete_stream(numbers)
        columns = await subscription.read_columns(COUNT)
        assert columns is not None
        assert columns.values == NUMBERS
        with pytest.raises(StreamDeleted):
            await subscription.read_columns(COUNT)


async def test_raw_messages_are_placed_and_decode_to_the_same(client: Client, numbers: str) -> None:
    subscription = client.subscribe(numbers, start=EARLIEST, stop=LATEST)
    batches = await all_of(subscription.batches(max_size=100, raw=True))
    raw = [message for batch in batches for message in batch]
    assert all(type(message) is RawMessage for message in raw)
    decoded = [message.decode() for message in raw]
    assert values(decoded) == NUMBERS
    for place, message in zip(raw, decoded, strict=True):
        assert (place.stream, place.partition, place.offset, place.timestamp) == (
            message.stream,
            message.partition,
            message.offset,
            message.timestamp,
        )
    read = client.subscribe(numbers, start=EARLIEST, stop=LATEST)
    assert decoded == await take(read, COUNT)


async def test_the_ways_of_reading_may_take_turns(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers, start=EARLIEST) as subscription:
        await all_here(subscription, COUNT)
        decoded = subscription.batches(max_size=3)
        raw = subscription.batches(max_size=5, raw=True)
        read: list[bytes] = []
        while len(read) < COUNT - 10:
            read += values(await take(subscription, 2))
            read += [message.decode().value for message in await next_of(raw)]
            read += values(await next_of(decoded))
        assert subscription.statistics().delivered == len(read)
        assert subscription.statistics().buffered == COUNT - len(read)
        read += values(await take(subscription, COUNT - len(read)))
    assert read == NUMBERS


async def test_a_batch_is_what_is_there_if_nobody_wants_to_wait(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    async with client.subscribe(stream_name) as subscription:
        batches = subscription.batches()
        for number in range(3):
            await client.publish(stream_name, b"%d" % number)
            assert values(await next_of(batches)) == [b"%d" % number]


async def test_a_batch_waits_for_more_and_no_longer_than_it_should(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    loop = asyncio.get_running_loop()
    async with client.subscribe(stream_name) as subscription:
        # As soon as so many are there …
        waiting = asyncio.ensure_future(next_of(subscription.batches(max_size=3, wait=BOUND)))
        for number in range(3):
            await client.publish(stream_name, b"%d" % number)
        assert values(await waiting) == [b"0", b"1", b"2"]
        # … or so long after the first one.
        began = loop.time()
        await client.publish(stream_name, b"3")
        assert values(await next_of(subscription.batches(max_size=3, wait=0.2))) == [b"3"]
        assert loop.time() - began >= 0.19


async def test_waiting_for_more_ends_with_the_subscription(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    await client.publish_many(stream_name, NUMBERS[:3])
    subscription = client.subscribe(stream_name, start=EARLIEST, stop=StopAt.offset(4))
    waiting = asyncio.ensure_future(all_of(subscription.batches(max_size=100, wait=BOUND)))
    await all_here(subscription, 3)
    await client.publish_many(stream_name, NUMBERS[3:5])
    [batch] = await waiting
    assert values(batch) == NUMBERS[:5]


async def test_waiting_for_more_does_not_wait_for_what_there_is_no_room_for(
    server: Server, stream_name: str
) -> None:
    options = ClientOptions(max_buffered_bytes=500_000)
    async with Client(server.address, options=options) as client:
        await client.create_stream(stream_name)
        await client.publish_many(stream_name, [bytes(10_000)] * 100)
        subscription = client.subscribe(stream_name, start=EARLIEST, stop=LATEST)
        batches = await all_of(subscription.batches(max_size=100, wait=BOUND))
        assert sum(map(len, batches)) == 100
        assert len(batches) > 1


@pytest.mark.parametrize("raw", [False, True])
async def test_cancelling_loses_no_message(client: Client, stream_name: str, raw: bool) -> None:
    await client.create_stream(stream_name)
    received: list[int] = []
    async with client.subscribe(stream_name) as subscription:
        batches: Any = (
            subscription.batches(3, 0.001, raw=True) if raw else subscription.batches(3, 0.001)
        )
        for n in range(30):
            step = asyncio.ensure_future(anext(batches))
            await asyncio.sleep(0)
            await client.publish(stream_name, b"%d" % n)
            for _ in range(n % 5):
                await asyncio.sleep(0)
            step.cancel()
            done = (await asyncio.gather(step, return_exceptions=True))[0]
            if isinstance(done, list):
                received += [message.offset for message in done]
        while len(received) < 30:
            async with asyncio.timeout(BOUND):
                received += [message.offset for message in await anext(batches)]
    assert received == list(range(30))


async def test_two_tasks_cannot_read_at_once(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name)
    async with client.subscribe(stream_name) as subscription:
        first = asyncio.create_task(next_of(subscription.batches()))
        await asyncio.sleep(0)  # the first one's turn
        with pytest.raises(ConcurrentRead):
            await next_of(subscription.batches(raw=True))
        with pytest.raises(ConcurrentRead):
            await take(subscription, 1)
        await client.publish(stream_name, b"new")
        assert values(await first) == [b"new"]


async def test_an_error_comes_after_what_was_there_and_once(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers, start=EARLIEST) as subscription:
        await all_here(subscription, COUNT)
        await client.delete_stream(numbers)
        batches = subscription.batches(max_size=COUNT)
        read = values(await next_of(batches))
        while len(read) < COUNT:
            read += values(await next_of(batches))
        assert read == NUMBERS
        with pytest.raises(StreamDeleted):
            await next_of(batches)
        with pytest.raises(StopAsyncIteration):
            await next_of(batches)


async def test_a_loop_over_batches_left_by_break_ends_the_subscription(
    client: Client, numbers: str
) -> None:
    async for batch in client.subscribe(numbers, start=EARLIEST).batches(max_size=2):
        assert values(batch) == NUMBERS[: len(batch)]
        break
    await eventually(lambda: len(client.statistics().subscriptions) == 0)


async def test_a_hook_hears_of_each_message_of_a_batch(server: Server, stream_name: str) -> None:
    hook = Delivered()
    async with Client(server.address, options=ClientOptions(hook=hook)) as client:
        await client.create_stream(stream_name)
        await client.publish_many(stream_name, NUMBERS)
        reading = client.subscribe(stream_name, start=EARLIEST, stop=LATEST)
        await all_of(reading.batches(max_size=30))
    assert values(hook.messages) == NUMBERS


@pytest.mark.parametrize(("most", "wait"), [(0, 0.0), (-1, 0.0), (1, -1.0), (1, float("nan"))])
async def test_what_makes_no_sense_is_refused(
    client: Client, stream_name: str, most: int, wait: float
) -> None:
    with pytest.raises(InvalidRequest):
        client.subscribe(stream_name, partition=0).batches(most, wait)
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"waits")
    async with (
        asyncio.timeout(BOUND),
        client.subscribe(stream_name, partition=0, start=EARLIEST) as reader,
    ):
        with pytest.raises(InvalidRequest):
            await reader.read_columns(most, wait)
        assert (await anext(reader)).value == b"waits"
