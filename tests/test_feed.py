from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.errors import ConcurrentRead, SubscriptionLost
from liftbridge_aio.feed import Feed
from liftbridge_aio.model import EndReason, Message
from waiting import until

CAPACITY = 10_000
SIZE = 2_000


def message(offset: int) -> Message:
    return Message("orders", 0, offset, b"", b"", offset)


@pytest.fixture
def feed() -> Feed:
    return Feed(lambda: CAPACITY)


async def waiting_reader(feed: Feed) -> asyncio.Task[None]:
    task = asyncio.create_task(feed.wait())
    await until(lambda: feed._reader is not None)
    return task


async def waiting_writer(feed: Feed) -> asyncio.Task[None]:
    task = asyncio.create_task(feed.room())
    await until(lambda: feed._writer is not None)
    return task


def fill(feed: Feed) -> int:
    """Put messages until it is full, and return how many."""
    count = 0
    while not feed.full:
        feed.put(message(count), SIZE)
        count += 1
    return count


@given(st.lists(st.integers(0, 5_000) | st.none()))
def test_messages_come_in_order_and_their_bytes_are_accounted_for(steps: list[int | None]) -> None:
    feed = Feed(lambda: CAPACITY)
    put = taken = 0
    for size in steps:
        if size is not None:
            feed.put(message(put), size)
            put += 1
        elif feed.messages:
            assert feed.pop().offset == taken
            taken += 1
        assert feed.full == (feed.buffered_bytes >= CAPACITY)
        assert (feed.buffered_bytes > 0) == (put > taken)
    while feed.messages:
        assert feed.pop().offset == taken
        taken += 1
    assert taken == put
    assert feed.buffered_bytes == 0


def test_messages_count_even_if_they_are_empty() -> None:
    feed = Feed(lambda: CAPACITY)
    for offset in range(CAPACITY):
        feed.put(message(offset), 0)
    assert feed.full


async def test_a_message_wakes_the_reader(feed: Feed) -> None:
    reader = await waiting_reader(feed)
    feed.put(message(0), SIZE)
    feed.put(message(1), SIZE)
    await reader
    assert [feed.pop().offset, feed.pop().offset] == [0, 1]


async def test_there_is_room_until_the_capacity_is_reached(feed: Feed) -> None:
    feed.put(message(0), SIZE)
    assert not feed.full
    await feed.room()


async def test_a_feed_filled_to_the_byte_is_full() -> None:
    probe = Feed(lambda: CAPACITY)
    probe.put(message(0), SIZE)
    feed = Feed(lambda: probe.buffered_bytes)
    feed.put(message(0), SIZE)
    assert feed.full


async def test_the_writer_goes_on_once_half_is_free(feed: Feed) -> None:
    fill(feed)
    writer = await waiting_writer(feed)
    while 2 * feed.buffered_bytes > CAPACITY:
        await asyncio.sleep(0)
        assert not writer.done()
        feed.pop()
    await writer
    assert not feed.full


async def test_the_writer_goes_on_at_exactly_half() -> None:
    probe = Feed(lambda: CAPACITY)
    probe.put(message(0), SIZE)
    capacity = 2 * probe.buffered_bytes
    feed = Feed(lambda: capacity)
    assert fill(feed) == 2
    writer = await waiting_writer(feed)
    feed.pop()
    await writer


async def test_a_message_larger_than_the_capacity_passes_alone(feed: Feed) -> None:
    feed.put(message(0), 10 * CAPACITY)
    writer = await waiting_writer(feed)
    assert feed.pop().offset == 0
    await writer


async def test_a_writer_that_was_woken_waits_on_if_the_capacity_shrank() -> None:
    capacity = CAPACITY
    feed = Feed(lambda: capacity)
    fill(feed)
    writer = await waiting_writer(feed)
    while 2 * feed.buffered_bytes > CAPACITY:
        feed.pop()
    capacity = feed.buffered_bytes
    first = feed._writer
    await until(lambda: feed._writer is not first)
    assert not writer.done()
    while feed.messages:
        feed.pop()
    await writer


async def test_discarding_lets_the_writer_go_on(feed: Feed) -> None:
    fill(feed)
    writer = await waiting_writer(feed)
    feed.discard()
    await writer
    assert not feed.messages
    assert feed.buffered_bytes == 0


async def test_a_cancelled_writer_leaves_the_feed_as_it_was(feed: Feed) -> None:
    count = fill(feed)
    writer = await waiting_writer(feed)
    writer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writer
    assert len(feed.messages) == count
    writer = await waiting_writer(feed)
    while feed.messages:
        feed.pop()
    await writer


async def test_a_cancelled_reader_loses_nothing_and_another_may_follow(feed: Feed) -> None:
    reader = await waiting_reader(feed)
    reader.cancel()
    feed.put(message(0), SIZE)  # in the same moment
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert feed.pop().offset == 0
    reader = await waiting_reader(feed)
    feed.put(message(1), SIZE)
    await reader


async def test_a_second_reader_is_refused_and_the_first_goes_on(feed: Feed) -> None:
    reader = await waiting_reader(feed)
    with pytest.raises(ConcurrentRead):
        await feed.wait()
    feed.put(message(0), SIZE)
    await reader
    assert feed.pop().offset == 0


async def test_the_end_wakes_the_reader_after_which_the_first_end_counts(feed: Feed) -> None:
    reader = await waiting_reader(feed)
    feed.end(EndReason.STOP_REACHED)
    await reader
    feed.end(EndReason.CLOSED)
    feed.fail(SubscriptionLost("too late"))
    assert feed.ended
    assert feed.reason is EndReason.STOP_REACHED
    assert feed.take_error() is None


async def test_an_error_wakes_the_reader_and_is_handed_out_once(feed: Feed) -> None:
    reader = await waiting_reader(feed)
    error = SubscriptionLost("broke")
    feed.fail(error)
    await reader
    feed.fail(SubscriptionLost("again"))
    feed.end(EndReason.CLOSED)
    assert feed.ended
    assert feed.reason is None
    assert feed.take_error() is error
    assert feed.take_error() is None


def test_what_was_read_before_the_end_is_still_there() -> None:
    feed = Feed(lambda: CAPACITY)
    feed.put(message(0), SIZE)
    assert not feed.ended
    feed.fail(SubscriptionLost("broke"))
    assert feed.pop().offset == 0
    assert feed.take_error() is not None


def test_discarding_forgets_the_error_too() -> None:
    feed = Feed(lambda: CAPACITY)
    feed.fail(SubscriptionLost("broke"))
    feed.discard()
    assert feed.take_error() is None
    assert feed.ended
