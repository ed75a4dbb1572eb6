from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from liftbridge_aio.errors import ConcurrentRead, SubscriptionLost
from liftbridge_aio.feed import Feed
from liftbridge_aio.model import EndReason
from waiting import until

CAPACITY = 10_000
SIZE = 2_000


def message(number: int, size: int = SIZE) -> bytes:
    return number.to_bytes(4, "big") + bytes(size)


@pytest.fixture
def feed() -> Feed:
    return Feed(lambda: CAPACITY)


async def waiting_reader(feed: Feed, count: int = 1) -> asyncio.Task[None]:
    task = asyncio.create_task(feed.wait(count))
    await until(lambda: feed.awaited)
    return task


async def waiting_writer(feed: Feed) -> asyncio.Task[None]:
    task = asyncio.create_task(feed.room())
    await until(lambda: feed._writer is not None)
    return task


def fill(feed: Feed) -> int:
    """Put messages until it is full, and return how many."""
    count = 0
    while not feed.full:
        feed.put([message(count)])
        count += 1
    return count


def use_one(feed: Feed) -> bytes:
    [taken] = feed.take(1)
    feed.used_up([taken])
    return taken


class Flow(RuleBasedStateMachine):
    """Calls that put, break and are followed by others, and a user who takes now and then.

    Credit must go to the call that put a message, for all of its bytes and once, and to nobody
    where that call is over. Messages that wait are sorted out only between two calls.
    """

    def __init__(self) -> None:
        super().__init__()
        self.accounted = 0
        self.feed = Feed(lambda: CAPACITY, self.account)
        self.call = -1
        self.credit: dict[int, int] = {}
        self.expected: dict[int, int] = {}
        self.waiting: list[tuple[int, bytes]] = []
        self.taken: list[tuple[int, bytes]] = []
        self.judged = 0
        self.number = 0
        self.connected = False

    def account(self, difference: int) -> None:
        self.accounted += difference

    @precondition(lambda self: self.connected)
    @rule()
    def disconnect(self) -> None:
        self.feed.disconnect()
        self.connected = False

    @precondition(lambda self: not self.connected)
    @rule()
    def connect(self) -> None:
        self.connected = True
        self.call += 1
        call = self.call
        self.credit[call] = self.expected[call] = 0

        def drained(size: int) -> None:
            self.credit[call] += size

        self.feed.connect(drained)

    @precondition(lambda self: self.connected)
    @rule(sizes=st.lists(st.integers(0, 300), max_size=8))
    def put(self, sizes: list[int]) -> None:
        messages = [message(self.number + n, size) for n, size in enumerate(sizes)]
        self.number += len(sizes)
        self.waiting += [(self.call, each) for each in messages]
        self.feed.put(messages)

    @rule(most=st.integers(1, 9))
    def take(self, most: int) -> None:
        taken = self.feed.take(most)
        assert taken == [each for _, each in self.waiting[:most]]
        self.taken += self.waiting[:most]
        del self.waiting[:most]
        self.judged = max(self.judged - len(taken), 0)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def use_up(self, data: st.DataObject) -> None:
        self.use(data.draw(st.integers(1, len(self.taken))))

    def use(self, count: int) -> None:
        used, self.taken = self.taken[:count], self.taken[count:]
        self.forget(used)
        self.feed.used_up([each for _, each in used])

    def forget(self, gone: list[tuple[int, bytes]]) -> None:
        for call, each in gone:
            if call == self.call and self.connected:
                self.expected[call] += len(each) + 5

    @rule()
    def take_back(self) -> None:
        self.feed.take_back([each for _, each in self.taken])
        self.waiting = self.taken + self.waiting
        self.judged += len(self.taken)
        self.taken = []

    @precondition(lambda self: not self.connected)
    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(0, len(self.waiting) - self.judged))
        kept = sorted(data.draw(st.sets(st.integers(0, max(count - 1, 0)), max_size=count)))
        start, stop = self.judged, self.judged + count
        self.waiting[start:stop] = [self.waiting[start + n] for n in kept]
        self.judged += len(kept)
        self.feed.keep(count, kept)

    @precondition(lambda self: not self.connected)
    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        keep = data.draw(st.integers(0, len(self.waiting)))
        del self.waiting[keep:]
        self.judged = min(self.judged, keep)
        self.feed.cut(keep)

    @invariant()
    def it_is_what_it_should_be(self) -> None:
        feed = self.feed
        assert list(feed.waiting) == [each for _, each in self.waiting]
        assert feed.judged == self.judged
        held = [each for _, each in self.waiting + self.taken]
        assert feed.held_bytes == self.accounted
        assert feed.held_bytes >= sum(map(len, held)) + len(held)
        assert (feed.held_bytes == 0) == (not held)
        assert self.credit == self.expected

    def teardown(self) -> None:
        self.use(len(self.taken))
        while self.waiting:
            self.take(9)
            self.use(len(self.taken))
        self.it_is_what_it_should_be()


TestFlow = Flow.TestCase


@given(st.lists(st.integers(0, 5_000)))
def test_it_is_full_from_its_capacity_on(sizes: list[int]) -> None:
    feed = Feed(lambda: CAPACITY)
    for size in sizes:
        feed.put([bytes(size)])
        assert feed.full == (feed.held_bytes >= CAPACITY)
        assert feed.half_full == (2 * feed.held_bytes >= CAPACITY)


def test_messages_count_even_if_they_are_empty(feed: Feed) -> None:
    feed.put([b""] * CAPACITY)
    assert feed.full


async def test_a_message_wakes_the_reader(feed: Feed) -> None:
    reader = await waiting_reader(feed)
    feed.put([message(0)])
    feed.put([message(1)])
    await reader
    assert feed.take(5) == [message(0), message(1)]


async def test_a_reader_who_wants_more_is_woken_when_they_are_there(feed: Feed) -> None:
    reader = await waiting_reader(feed, 3)
    for number in range(3):
        await asyncio.sleep(0)
        assert not reader.done()
        feed.put([message(number, 1)])
    await reader


async def test_a_reader_who_wants_more_than_fits_is_woken_before_the_server_stops(
    feed: Feed,
) -> None:
    reader = await waiting_reader(feed, 1_000)
    while not feed.half_full:
        await asyncio.sleep(0)
        assert not reader.done()
        feed.put([message(0)])
    await reader
    assert not feed.full


async def test_there_is_room_until_half_is_taken(feed: Feed) -> None:
    feed.put([message(0)])
    assert not feed.half_full
    await feed.room()


async def test_the_writer_goes_on_once_half_is_free(feed: Feed) -> None:
    fill(feed)
    writer = await waiting_writer(feed)
    while feed.half_full:
        await asyncio.sleep(0)
        assert not writer.done()
        use_one(feed)
    await writer


async def test_a_message_larger_than_the_capacity_passes_alone(feed: Feed) -> None:
    feed.put([message(0, 10 * CAPACITY)])
    writer = await waiting_writer(feed)
    use_one(feed)
    await writer


async def test_a_writer_that_was_woken_waits_on_if_the_capacity_shrank() -> None:
    capacity = CAPACITY
    feed = Feed(lambda: capacity)
    fill(feed)
    writer = await waiting_writer(feed)
    while feed.half_full:
        use_one(feed)
    capacity = feed.held_bytes
    first = feed._writer
    await until(lambda: feed._writer is not first)
    assert not writer.done()
    while feed.waiting:
        use_one(feed)
    await writer


async def test_a_cancelled_writer_leaves_the_feed_as_it_was(feed: Feed) -> None:
    count = fill(feed)
    writer = await waiting_writer(feed)
    writer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writer
    assert len(feed.waiting) == count
    writer = await waiting_writer(feed)
    feed.cut(0)
    await writer


async def test_a_cancelled_reader_loses_nothing_and_another_may_follow(feed: Feed) -> None:
    reader = await waiting_reader(feed)
    reader.cancel()
    feed.put([message(0)])  # in the same moment
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert use_one(feed) == message(0)
    reader = await waiting_reader(feed)
    feed.put([message(1)])
    await reader


async def test_a_second_reader_is_refused_and_the_first_goes_on(feed: Feed) -> None:
    reader = await waiting_reader(feed)
    with pytest.raises(ConcurrentRead):
        await feed.wait()
    feed.put([message(0)])
    await reader
    assert use_one(feed) == message(0)


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


def test_what_came_before_the_end_is_still_there(feed: Feed) -> None:
    feed.put([message(0)])
    assert not feed.ended
    feed.fail(SubscriptionLost("broke"))
    assert use_one(feed) == message(0)
    assert feed.take_error() is not None


def test_what_cannot_be_taken_makes_an_orderly_end_an_error(feed: Feed) -> None:
    feed.end(EndReason.CLOSED)
    error = SubscriptionLost("unreadable")
    feed.spoil(error)
    assert feed.reason is None
    assert feed.take_error() is error


def test_a_forgotten_error_is_told_nobody(feed: Feed) -> None:
    feed.fail(SubscriptionLost("broke"))
    feed.forget_error()
    assert feed.take_error() is None
    assert feed.ended
