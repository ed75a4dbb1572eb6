"""A subscription that is sent elsewhere, paused, and asked how far it is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from liftbridge_aio import (
    Client,
    ClientClosed,
    ClientOptions,
    ConcurrentRead,
    EndReason,
    InvalidRequest,
    StartAt,
    StopAt,
    StreamDeleted,
    StreamNotFound,
    UsageError,
)
from liftbridge_aio._subscribe.subscription_base import SubscriptionState
from support.clients import EARLIEST, LATEST, Delivered, all_here, offsets, rest, take
from support.marks import ON_EMBEDDED, ON_ONE_PATH
from support.raw import BOUND, eventually
from support.servers.node import Server

COUNT = 20


@pytest.fixture
async def numbers(client: Client, stream_name: str) -> str:
    """A stream that holds the numbers."""
    await client.create_stream(stream_name)
    await client.publish_many(stream_name, [b"%d" % n for n in range(COUNT)])
    return stream_name


# Positions


@ON_ONE_PATH
async def test_the_position_is_what_is_read_next(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers, partition=0, start=StartAt.offset(5)) as subscription:
        assert subscription.position == 5
        await take(subscription, 2)
        assert subscription.position == 7
        async with asyncio.timeout(BOUND):
            async for batch in subscription.batches(4):
                assert subscription.position == 7 + len(batch)
                break


@ON_ONE_PATH
@pytest.mark.parametrize(
    ("start", "position"),
    [
        (StartAt.new_only(), COUNT),
        (StartAt.latest(), COUNT - 1),
        (StartAt.offset(COUNT + 5), COUNT + 5),
    ],
)
async def test_the_position_is_known_on_entering(
    client: Client, numbers: str, start: StartAt, position: int
) -> None:
    async with client.subscribe(numbers, partition=0, start=start) as subscription:
        assert subscription.position == position


@ON_ONE_PATH
async def test_the_earliest_position_is_known_with_the_first_message(
    client: Client, numbers: str
) -> None:
    subscription = client.subscribe(numbers, partition=0, start=EARLIEST)
    assert subscription.position is None
    async with subscription:
        await all_here(subscription, 1)
        assert subscription.position == 0


@ON_ONE_PATH
async def test_the_lag_counts_what_is_committed_and_not_handed_out(
    client: Client, numbers: str
) -> None:
    async with client.subscribe(numbers, partition=0, start=StartAt.offset(3)) as subscription:
        assert await subscription.lag() == COUNT - 3
        await take(subscription, 7)
        assert await subscription.lag() == COUNT - 10
        await take(subscription, COUNT - 10)
        assert await subscription.lag() == 0
        await client.publish(numbers, b"more")
        assert await subscription.lag() == 1
        await subscription.seek(COUNT + 100)
        assert await subscription.lag() == 0


@ON_ONE_PATH
async def test_the_lag_behind_an_empty_log_is_nothing(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name)
    async with client.subscribe(stream_name, partition=0, start=EARLIEST) as subscription:
        assert await subscription.lag() == 0


@ON_ONE_PATH
async def test_the_lag_of_a_stream_that_is_gone_is_an_error(
    client: Client, impatient: Client, numbers: str
) -> None:
    subscription = impatient.subscribe(numbers, partition=0, start=EARLIEST)
    await client.delete_stream(numbers)
    with pytest.raises(StreamNotFound):
        await subscription.lag()


# Elsewhere


async def test_a_seek_goes_on_from_there(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers, start=EARLIEST) as subscription:
        read = 0
        for to, first in (
            (3, 3),
            (COUNT - 1, COUNT - 1),
            (StartAt.earliest(), 0),
            (StartAt.latest(), COUNT - 1),
            (StartAt.offset(7), 7),
        ):
            await subscription.seek(to)
            assert offsets(await take(subscription, COUNT - first)) == list(range(first, COUNT))
            read += COUNT - first
            assert subscription.statistics().delivered == read
    assert len(client.statistics().subscriptions) == 0


@ON_ONE_PATH
async def test_a_seek_before_the_beginning_is_a_start(client: Client, numbers: str) -> None:
    subscription = client.subscribe(numbers, partition=0, stop=LATEST)
    await subscription.seek(COUNT - 3)
    assert subscription.state is SubscriptionState.NEW
    assert offsets(await rest(subscription)) == list(range(COUNT - 3, COUNT))


async def test_a_reader_that_waits_goes_on_at_the_new_place(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers) as subscription:
        waiting = asyncio.create_task(take(subscription, 3))
        await asyncio.sleep(0)
        await subscription.seek(4)
        assert offsets(await waiting) == [4, 5, 6]


@ON_EMBEDDED
@ON_ONE_PATH
async def test_a_list_that_is_being_gathered_goes_on_at_the_new_place(
    client: Client, numbers: str
) -> None:
    async with (
        asyncio.timeout(BOUND),
        client.subscribe(numbers, start=StartAt.offset(COUNT - 2)) as subscription,
    ):
        gathering = asyncio.create_task(anext(subscription.batches(5, wait=BOUND)))
        await all_here(subscription, 2)
        await subscription.seek(4)
        assert offsets(await gathering) == [4, 5, 6, 7, 8]


async def test_after_a_seek_nothing_comes_from_before(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers, start=EARLIEST) as subscription:
        await take(subscription, 1)
        await all_here(subscription, COUNT - 1)
        seeking = asyncio.create_task(subscription.seek(15))
        await asyncio.sleep(0)
        assert offsets(await take(subscription, 5)) == [15, 16, 17, 18, 19]
        await seeking


async def test_many_seeks_at_once_end_at_the_last(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers, start=EARLIEST) as subscription:
        async with asyncio.timeout(BOUND):
            await asyncio.gather(*(subscription.seek(n) for n in range(15)))
        assert offsets(await take(subscription, 2)) == [14, 15]
        await eventually(lambda: len(client.statistics().subscriptions) == 1)


@ON_EMBEDDED
@ON_ONE_PATH
async def test_a_cancelled_seek_has_been_done(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers, start=EARLIEST) as subscription:
        await take(subscription, 1)
        seeking = asyncio.create_task(subscription.seek(9))
        await asyncio.sleep(0)
        seeking.cancel()
        await asyncio.wait([seeking])
        assert offsets(await take(subscription, 2)) == [9, 10]


@ON_EMBEDDED
@ON_ONE_PATH
async def test_the_end_stays_where_it_was_found(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers, partition=0, start=EARLIEST, stop=LATEST) as subscription:
        await take(subscription, 1)
        await client.publish(numbers, b"later")
        await subscription.seek(COUNT - 2)
        assert offsets(await rest(subscription)) == [COUNT - 2, COUNT - 1]
        assert subscription.end_reason is EndReason.STOP_REACHED


async def test_a_seek_takes_up_what_had_been_read_to_its_end(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers, start=EARLIEST, stop=StopAt.offset(5)) as subscription:
        assert offsets(await take(subscription, 6)) == list(range(6))
        await subscription.seek(4)
        assert offsets(await rest(subscription)) == [4, 5]


NONSENSE: list[Any] = [-1, 2**63, 1.5, None, True, "5", StopAt.latest(), 6, StartAt.offset(6)]


@ON_EMBEDDED
@ON_ONE_PATH
async def test_a_target_that_makes_no_sense_changes_nothing(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers, start=EARLIEST, stop=StopAt.offset(5)) as subscription:
        await take(subscription, 2)
        for to in NONSENSE:
            with pytest.raises(InvalidRequest) as caught:
                await subscription.seek(to)
            assert caught.value.stream == numbers
        assert offsets(await rest(subscription)) == [2, 3, 4, 5]


@ON_EMBEDDED
@ON_ONE_PATH
async def test_what_has_ended_cannot_be_sent_elsewhere(client: Client, numbers: str) -> None:
    subscription = client.subscribe(numbers, start=EARLIEST, stop=LATEST)
    await rest(subscription)
    with pytest.raises(UsageError):
        await subscription.seek(0)


@ON_ONE_PATH
async def test_a_seek_in_a_stream_that_is_gone_is_an_error(impatient: Client, numbers: str) -> None:
    async with impatient.subscribe(numbers, start=EARLIEST) as subscription:
        await take(subscription, 1)
        subscription.pause()
        await impatient.delete_stream(numbers)
        with pytest.raises((StreamNotFound, StreamDeleted)):
            await subscription.seek(0)
        subscription.resume()
        assert await rest(subscription) == []


@ON_EMBEDDED
@ON_ONE_PATH
async def test_closing_in_the_middle_of_a_seek_ends_both(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers, start=EARLIEST) as subscription:
        await take(subscription, 1)
        seeking = asyncio.create_task(subscription.seek(5))
        await asyncio.sleep(0)
        await subscription.aclose()
        async with asyncio.timeout(BOUND):
            await asyncio.wait([seeking])
    assert len(client.statistics().subscriptions) == 0


@ON_EMBEDDED
@ON_ONE_PATH
async def test_a_seek_after_the_client_was_closed_wakes_the_one_who_reads(
    server: Server, numbers: str
) -> None:
    client = Client(server.address)
    await client.connect()
    subscription = client.subscribe(numbers, partition=0)
    subscription.pause()
    waiting = asyncio.create_task(rest(subscription))
    await eventually(lambda: len(client.statistics().subscriptions) == 1)
    await client.aclose()
    with pytest.raises(ClientClosed):
        await subscription.seek(0)
    assert await waiting == []


# Later


async def test_while_it_is_paused_nothing_is_handed_out(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers, start=EARLIEST, stop=LATEST) as subscription:
        await take(subscription, 3)
        subscription.pause()
        waiting = asyncio.create_task(rest(subscription))
        await all_here(subscription, COUNT - 3)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        subscription.resume()
        assert offsets(await waiting) == list(range(3, COUNT))


@ON_EMBEDDED
@ON_ONE_PATH
async def test_a_reader_that_waits_is_paused_too(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers) as subscription:
        waiting = asyncio.create_task(take(subscription, 1))
        await asyncio.sleep(0)
        subscription.pause()
        await client.publish(numbers, b"new")
        await all_here(subscription, 1)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        with pytest.raises(ConcurrentRead):
            await anext(subscription)
        subscription.resume()
        assert offsets(await waiting) == [COUNT]


@ON_EMBEDDED
@ON_ONE_PATH
async def test_a_list_is_not_handed_out_while_it_is_paused(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers, start=StartAt.offset(COUNT - 2)) as subscription:
        gathering = asyncio.create_task(anext(subscription.batches(5, wait=0.01)))
        await asyncio.sleep(0)
        subscription.pause()
        await all_here(subscription, 2)
        done, _ = await asyncio.wait([gathering], timeout=0.05)
        assert not done
        subscription.resume()
        async with asyncio.timeout(BOUND):
            assert offsets(await gathering) == [COUNT - 2, COUNT - 1]


@ON_EMBEDDED
@ON_ONE_PATH
async def test_a_pause_outlasts_a_seek_and_not_the_end(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers, start=EARLIEST) as subscription:
        subscription.pause()
        waiting = asyncio.create_task(rest(subscription))
        await subscription.seek(15)
        await all_here(subscription, 5)
        assert not waiting.done()
        await subscription.aclose()
        assert await waiting == []


@ON_EMBEDDED
@ON_ONE_PATH
async def test_a_hook_is_told_after_a_pause_too(server: Server, numbers: str) -> None:
    hook = Delivered()
    async with (
        Client(server.address, options=ClientOptions(hook=hook)) as client,
        client.subscribe(numbers, start=EARLIEST, stop=LATEST) as subscription,
    ):
        subscription.pause()
        subscription.resume()
        await subscription.seek(10)
        assert await rest(subscription) == hook.messages
    assert offsets(hook.messages) == list(range(10, COUNT))
