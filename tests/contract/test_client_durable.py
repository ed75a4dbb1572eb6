"""Subscriptions with a cursor: where they begin, and what is stored when."""

from __future__ import annotations

import asyncio
import gc
import random
import warnings
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from contract.clients import EARLIEST, LATEST, Watcher, rest, take
from contract.raw import BOUND, eventually
from liftbridge_aio import (
    ALL_PARTITIONS,
    Client,
    ClientClosed,
    ClientOptions,
    CursorsUnavailable,
    EndReason,
    InvalidRequest,
    MergedSubscription,
    Message,
    Record,
    RequestTimeout,
    StartAt,
    StopAt,
    StreamReset,
    UsageError,
)
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.cursor_keeper import CursorKeeper
from liftbridge_aio.durable_reading import DurableReading
from liftbridge_aio.subscription import Subscription
from liftbridge_aio.telemetry import CommitFailed
from servers.node import Server

COUNT = 10
PARTITIONS = 3
CURSOR = "reader"
SELDOM = 3600.0


@pytest.fixture
async def numbers(client: Client, stream_name: str) -> str:
    """A stream of some partitions, each of which holds the numbers."""
    await client.create_stream(stream_name, partitions=PARTITIONS)
    await client.publish_many(
        stream_name, [Record(b"%d" % n, partition=p) for n in range(COUNT) for p in range(3)]
    )
    return stream_name


def offsets(messages: list[Message]) -> list[int]:
    return [message.offset for message in messages]


async def stored(client: Client, stream: str, partition: int = 0) -> int | None:
    return await client.fetch_cursor(CURSOR, stream, partition)


class Failure(Exception):
    """What goes wrong in the body of somebody else's program."""


# Where it begins


async def test_it_begins_behind_the_cursor(client: Client, numbers: str) -> None:
    await client.set_cursor(CURSOR, numbers, 0, 6)
    async with client.subscribe(numbers, 0, EARLIEST, cursor=CURSOR) as subscription:
        assert subscription.position == 7
        assert offsets(await take(subscription, 3)) == [7, 8, 9]


async def test_without_a_cursor_it_begins_at_the_start(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers, 0, StartAt.offset(4), cursor=CURSOR) as subscription:
        assert offsets(await take(subscription, 2)) == [4, 5]
    assert await stored(client, numbers) == 5


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
            numbers, 0, EARLIEST, StopAt.offset(5), cursor=CURSOR
        ) as subscription:
            assert offsets(await rest(subscription)) == expected
            assert subscription.end_reason is EndReason.STOP_REACHED
    assert await stored(client, numbers) == 5


async def test_a_cursor_behind_the_end_of_the_log_is_told(client: Client, numbers: str) -> None:
    await client.set_cursor(CURSOR, numbers, 1, COUNT)
    with pytest.raises(StreamReset, match="reader") as caught:
        async with client.subscribe(numbers, 1, EARLIEST, cursor=CURSOR):
            pass
    assert (caught.value.stream, caught.value.partition, caught.value.offset) == (
        numbers,
        1,
        COUNT,
    )
    # Who knows where to go on says so.
    subscription = client.subscribe(numbers, 1, cursor=CURSOR)
    await subscription.seek(8)
    async with subscription:
        assert offsets(await take(subscription, 2)) == [8, 9]
    assert await stored(client, numbers, 1) == 9


# What is finished


async def test_a_message_is_finished_when_the_next_is_asked_for(
    client: Client, numbers: str
) -> None:
    async with client.subscribe(
        numbers, 0, EARLIEST, cursor=CURSOR, cursor_interval=SELDOM
    ) as subscription:
        await subscription.commit()
        assert await stored(client, numbers) is None
        for offset in range(4):
            assert (await anext(subscription)).offset == offset
            await subscription.commit()
            assert await stored(client, numbers) == (offset - 1 if offset else None)


async def test_a_message_is_finished_while_the_next_is_waited_for(
    client: Client, numbers: str
) -> None:
    async with client.subscribe(
        numbers, 0, EARLIEST, cursor=CURSOR, cursor_interval=SELDOM
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


@pytest.mark.parametrize("raw", [False, True])
async def test_a_list_is_finished_when_the_next_is_asked_for(
    client: Client, numbers: str, raw: bool
) -> None:
    async with (
        asyncio.timeout(BOUND),
        client.subscribe(
            numbers, 0, EARLIEST, cursor=CURSOR, cursor_interval=SELDOM
        ) as subscription,
    ):
        finished: int | None = None
        seen = 0
        async for batch in subscription.batches(4, wait=0.1, raw=raw):
            seen += len(batch)
            await subscription.commit()
            assert await stored(client, numbers) == finished
            finished = seen - 1
            if seen == COUNT:
                break


async def test_columns_are_finished_when_the_next_are_asked_for(
    client: Client, numbers: str
) -> None:
    async with client.subscribe(
        numbers, 0, EARLIEST, cursor=CURSOR, cursor_interval=SELDOM
    ) as subscription:
        for finished in (None, 4):
            assert await subscription.read_columns(5, 1.0) is not None
            await subscription.commit()
            assert await stored(client, numbers) == finished


async def test_asking_in_vain_finishes_nothing_that_comes_after(
    client: Client, numbers: str
) -> None:
    async with client.subscribe(
        numbers, 0, EARLIEST, cursor=CURSOR, cursor_interval=SELDOM
    ) as subscription:
        await take(subscription, 1)
        await all_here(subscription, COUNT - 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(subscription.batches(COUNT, wait=BOUND))
        await take(subscription, 3)  # of those that wait
        await subscription.commit()
        assert await stored(client, numbers) == 2


async def all_here(subscription: Subscription, count: int) -> None:
    async def enough() -> bool:
        return subscription.statistics().buffered >= count

    await eventually(enough)


async def test_who_was_told_where_to_begin_stores_nothing_before_the_first_message(
    client: Client, numbers: str
) -> None:
    async with client.subscribe(numbers, 0, StartAt.offset(COUNT + 5), cursor=CURSOR):
        pass
    assert await stored(client, numbers) is None


async def test_closing_while_the_cursor_is_asked_for_ends_it(client: Client, numbers: str) -> None:
    await client.set_cursor(CURSOR, numbers, 0, 5)
    for partition in (0, [0, 1]):
        subscription = client.subscribe(numbers, partition, EARLIEST, cursor=CURSOR)
        entering = asyncio.create_task(subscription.__aenter__())
        await asyncio.sleep(0)
        async with asyncio.timeout(BOUND):
            await subscription.aclose()
            with pytest.raises(ClientClosed):
                await entering
    assert client.statistics().subscriptions == 0


async def test_a_seek_while_the_cursor_is_asked_for_counts(client: Client, numbers: str) -> None:
    await client.set_cursor(CURSOR, numbers, 0, 5)
    subscription = client.subscribe(numbers, 0, EARLIEST, cursor=CURSOR)
    entering = asyncio.create_task(subscription.__aenter__())
    await asyncio.sleep(0)
    await subscription.seek(2)
    async with asyncio.timeout(BOUND), await entering:
        assert offsets(await take(subscription, 2)) == [2, 3]


async def test_leaving_finishes_what_was_in_hand(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers, 0, EARLIEST, cursor=CURSOR) as subscription:
        async for message in subscription:
            if message.offset == 4:
                break
    assert await stored(client, numbers) == 4


@pytest.mark.parametrize("error", [Failure, asyncio.CancelledError])
async def test_leaving_by_an_error_does_not_finish_it(
    client: Client, numbers: str, error: type[BaseException]
) -> None:
    async def fail() -> None:
        async with client.subscribe(numbers, 0, EARLIEST, cursor=CURSOR) as subscription:
            async for message in subscription:
                if message.offset == 4:
                    raise error

    with pytest.raises(error):
        await fail()
    assert await stored(client, numbers) == 3


async def test_closing_it_does_not_finish_what_is_in_hand(client: Client, numbers: str) -> None:
    async with client.subscribe(numbers, 0, EARLIEST, cursor=CURSOR) as subscription:
        await take(subscription, 5)
        await subscription.aclose()
        assert await stored(client, numbers) == 3
    assert await stored(client, numbers) == 4


async def test_the_end_finishes_everything(client: Client, numbers: str) -> None:
    async with client.subscribe(
        numbers, 0, EARLIEST, LATEST, cursor=CURSOR, cursor_interval=SELDOM
    ) as subscription:
        await rest(subscription)
        await subscription.commit()
        assert await stored(client, numbers) == COUNT - 1


async def test_it_is_stored_by_and_by(client: Client, numbers: str) -> None:
    async with client.subscribe(
        numbers, 0, EARLIEST, cursor=CURSOR, cursor_interval=0.01
    ) as subscription:
        await take(subscription, 5)

        async def is_stored() -> bool:
            return await stored(client, numbers) == 3

        await eventually(is_stored)


async def test_a_seek_moves_what_is_stored(client: Client, numbers: str) -> None:
    async with client.subscribe(
        numbers, 0, EARLIEST, cursor=CURSOR, cursor_interval=SELDOM
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
    async with client.subscribe(numbers, partitions, EARLIEST, cursor=CURSOR) as subscription:
        with pytest.raises(InvalidRequest, match="the log ends at"):
            await subscription.seek(1000)
    assert await stored(client, numbers) is None
    async with client.subscribe(numbers, partitions, EARLIEST, cursor=CURSOR) as subscription:
        end = (await client.fetch_partition_metadata(numbers, 0)).newest_offset + 1
        await subscription.seek(end)
    assert await stored(client, numbers) == end - 1


async def test_however_it_is_read_nothing_unfinished_is_stored(
    client: Client, numbers: str
) -> None:
    chance = random.Random(1)
    await client.publish_many(numbers, [b""] * 90)
    in_hand: list[int] = []
    last = -1
    async with client.subscribe(
        numbers, 0, EARLIEST, cursor=CURSOR, cursor_interval=0.001
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


# Several partitions


async def test_each_partition_is_taken_up_where_it_was(client: Client, numbers: str) -> None:
    await client.set_cursor(CURSOR, numbers, 1, 6)
    await client.set_cursor(CURSOR, numbers, 2, COUNT - 1)
    async with client.subscribe(
        numbers, ALL_PARTITIONS, EARLIEST, LATEST, cursor=CURSOR
    ) as subscription:
        places = [(one.partition, one.offset) for one in await all_of(subscription)]
    assert sorted(places) == [(0, n) for n in range(COUNT)] + [(1, 7), (1, 8), (1, 9)]
    assert [await stored(client, numbers, n) for n in range(3)] == [COUNT - 1] * 3


async def all_of(subscription: MergedSubscription) -> list[Message]:
    async with asyncio.timeout(BOUND):
        return [message async for message in subscription]


async def test_only_the_message_in_hand_is_not_finished(client: Client, numbers: str) -> None:
    async with client.subscribe(
        numbers, [0, 2], EARLIEST, cursor=CURSOR, cursor_interval=SELDOM
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


async def test_leaving_several_by_an_error_leaves_the_one_in_hand(
    client: Client, numbers: str
) -> None:
    async def fail() -> None:
        async with (
            asyncio.timeout(BOUND),
            client.subscribe(numbers, ALL_PARTITIONS, EARLIEST, cursor=CURSOR) as subscription,
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
        numbers, [0, 1], EARLIEST, cursor=CURSOR, cursor_interval=SELDOM
    ) as subscription:
        async with asyncio.timeout(BOUND):
            for _ in range(2 * COUNT):
                await anext(subscription)
        await subscription.commit()
        await subscription.seek({0: 4})
        await subscription.commit()
        assert await stored(client, numbers) == 3


# What goes wrong


@pytest.fixture
async def no_cursors() -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker(cursors_partitions=0) as broker:
        yield broker


async def test_a_cursor_that_cannot_be_stored_is_told_and_tried_again(stream_name: str) -> None:
    failures: list[CommitFailed] = []

    class Failures(Watcher):
        def commit_failed(self, event: CommitFailed) -> None:
            failures.append(event)

    options = ClientOptions(hook=Failures())
    async with (
        EmbeddedBroker(cursors_partitions=1) as broker,
        Client(broker.address, options=options) as client,
    ):
        await client.create_stream(stream_name)
        await client.publish_many(stream_name, [b"0", b"1", b"2"])
        async with client.subscribe(
            stream_name, 0, EARLIEST, cursor=CURSOR, cursor_interval=0.01
        ) as subscription:
            await take(subscription, 2)
            await client.set_stream_readonly("__cursors")
            await take(subscription, 1)

            async def was_told() -> bool:
                return len(failures) > 1

            await eventually(was_told)
            with pytest.raises(CursorsUnavailable):
                await subscription.commit()
            await client.set_stream_readonly("__cursors", readonly=False)

            async def is_stored() -> bool:
                return await stored(client, stream_name) == 1

            await eventually(is_stored)
        assert await stored(client, stream_name) == 2
    event = failures[0]
    assert (event.cursor_id, event.stream, event.partition) == (CURSOR, stream_name, 0)
    assert isinstance(event.error, CursorsUnavailable)


@pytest.mark.parametrize("by", ["leaving", "aclose"])
async def test_an_error_of_the_last_storing_is_raised(stream_name: str, by: str) -> None:
    async with (
        EmbeddedBroker(cursors_partitions=1) as broker,
        Client(broker.address) as client,
    ):
        await client.create_stream(stream_name)
        await client.publish_many(stream_name, [b"0", b"1", b"2"])
        subscription = client.subscribe(stream_name, 0, EARLIEST, cursor=CURSOR)
        await subscription.__aenter__()
        await take(subscription, 2)
        await client.set_stream_readonly("__cursors")
        with pytest.raises(CursorsUnavailable):
            async with asyncio.timeout(BOUND):
                await (
                    subscription.__aexit__(None, None, None)
                    if by == "leaving"
                    else subscription.aclose()
                )
        assert client.statistics().subscriptions == 0


async def test_the_last_storing_is_bounded_in_time(client: Client, numbers: str) -> None:
    class Stuck:
        async def set(self, *_: object) -> None:
            await asyncio.Event().wait()

        async def fetch(self, *_: object) -> int | None:
            return None

    failed: list[CommitFailed] = []
    keeper = CursorKeeper(CURSOR, Stuck(), timeout=SELDOM, failed=failed.append)
    keeper.keep(numbers, 0, lambda: 5, None)
    durable = DurableReading(keeper, client._living.connection, SELDOM)
    async with asyncio.timeout(BOUND):
        assert isinstance(await durable.close(0.01), RequestTimeout)


async def test_the_users_error_comes_before_that_of_storing(stream_name: str) -> None:
    async with (
        EmbeddedBroker(cursors_partitions=1) as broker,
        Client(broker.address) as client,
    ):
        await client.create_stream(stream_name)
        await client.publish_many(stream_name, [b"0", b"1", b"2"])

        async def fail() -> None:
            async with client.subscribe(stream_name, 0, EARLIEST, cursor=CURSOR) as subscription:
                await take(subscription, 2)
                await client.set_stream_readonly("__cursors")
                raise Failure

        with pytest.raises(Failure) as caught:
            await fail()
        assert caught.value.__context__ is None


async def test_a_server_without_cursors_is_told_on_entering(
    no_cursors: EmbeddedBroker, stream_name: str
) -> None:
    options = ClientOptions(not_found_timeout=0.1)
    async with Client(no_cursors.address, options=options) as client:
        await client.create_stream(stream_name, partitions=2)
        for partition in (0, [0, 1]):
            with pytest.raises(CursorsUnavailable):
                async with client.subscribe(stream_name, partition, EARLIEST, cursor=CURSOR):
                    pass
        assert client.statistics().subscriptions == 0


@pytest.mark.parametrize("partition", [0, [0, 1]])
async def test_without_entering_there_is_no_cursor(
    client: Client, numbers: str, partition: int | list[int]
) -> None:
    subscription = client.subscribe(numbers, partition, EARLIEST, cursor=CURSOR)
    with pytest.raises(UsageError, match="async with"):
        await anext(subscription)
    with pytest.raises(UsageError, match="cursor="):
        await client.subscribe(numbers, partition).commit()


NONSENSE: list[dict[str, Any]] = [
    {"cursor": ""},
    {"cursor": 5},
    {"cursor_interval": 0},
    {"cursor_interval": -1},
    {"reverse": True},
]


async def test_a_cursor_that_makes_no_sense_is_refused(client: Client) -> None:
    for arguments in NONSENSE:
        with pytest.raises(InvalidRequest):
            client.subscribe("stream", **({"cursor": CURSOR} | arguments))


async def test_one_that_is_dropped_stores_no_more(client: Client, numbers: str) -> None:
    subscription = client.subscribe(numbers, 0, EARLIEST, cursor=CURSOR, cursor_interval=0.01)
    await subscription.__aenter__()
    await take(subscription, 5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del subscription
        gc.collect()
    assert [one.category for one in caught] == [ResourceWarning]

    async def nothing_is_left() -> bool:
        names = {task.get_name() for task in asyncio.all_tasks()}
        return client.statistics().subscriptions == 0 and not any("cursor:" in n for n in names)

    await eventually(nothing_is_left)


async def test_a_client_that_is_closed_first_leaves_nothing_behind(
    server: Server, numbers: str
) -> None:
    other = Client(server.address)
    await other.connect()
    subscription = other.subscribe(numbers, 0, EARLIEST, cursor=CURSOR)
    await subscription.__aenter__()
    await take(subscription, 5)
    await other.aclose()
    with pytest.raises(ClientClosed):
        await subscription.__aexit__(None, None, None)
    assert not any("cursor:" in task.get_name() for task in asyncio.all_tasks())


async def test_cancelling_while_it_closes_stores_all_the_same(client: Client, numbers: str) -> None:
    async def read() -> None:
        async with client.subscribe(
            numbers, 0, EARLIEST, cursor=CURSOR, cursor_interval=SELDOM
        ) as subscription:
            await take(subscription, 5)
            leaving.set()

    leaving = asyncio.Event()
    reading = asyncio.create_task(read())
    await leaving.wait()
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading], timeout=BOUND)
    assert await stored(client, numbers) == 4
