from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from liftbridge_aio._subscribe.receive_buffer import ReceiveBuffer
from support.waiting import until

CAPACITY = 10_000
SIZE = 2_000


def message(number: int, size: int = SIZE) -> bytes:
    return number.to_bytes(4, "big") + bytes(size)


@pytest.fixture
def buffer() -> ReceiveBuffer:
    return ReceiveBuffer(lambda: CAPACITY)


async def waiting_reader(buffer: ReceiveBuffer, count: int = 1) -> asyncio.Task[None]:
    task = asyncio.create_task(buffer.wait(count))
    await until(lambda: buffer.awaited)
    return task


async def waiting_writer(buffer: ReceiveBuffer) -> asyncio.Task[None]:
    task = asyncio.create_task(buffer.wait_for_space())
    await until(lambda: buffer._writer is not None)
    return task


def fill(buffer: ReceiveBuffer) -> int:
    """Put messages until it is full, and return how many."""
    count = 0
    while not buffer.full:
        buffer.put([message(count)])
        count += 1
    return count


def use_one(buffer: ReceiveBuffer) -> bytes:
    [taken] = buffer.take(1)
    buffer.release([taken])
    return taken


class Flow(RuleBasedStateMachine):
    """Calls that put, break and are followed by others, and a user who takes now and then.

    Credit must go to the call that put a message, for all of its bytes and once, and to nobody
    where that call is over. Messages that wait are sorted out only between two calls.
    """

    def __init__(self) -> None:
        super().__init__()
        self.accounted = 0
        self.buffer = ReceiveBuffer(lambda: CAPACITY, self.account)
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
        self.buffer.disconnect()
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

        self.buffer.connect(drained)

    @precondition(lambda self: self.connected)
    @rule(sizes=st.lists(st.integers(0, 300), max_size=8))
    def put(self, sizes: list[int]) -> None:
        messages = [message(self.number + n, size) for n, size in enumerate(sizes)]
        self.number += len(sizes)
        self.waiting += [(self.call, each) for each in messages]
        self.buffer.put(messages)

    @rule(most=st.integers(1, 9))
    def take(self, most: int) -> None:
        taken = self.buffer.take(most)
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
        self.buffer.release([each for _, each in used])

    def forget(self, gone: list[tuple[int, bytes]]) -> None:
        for call, each in gone:
            if call == self.call and self.connected:
                self.expected[call] += len(each) + 5

    @rule()
    def put_back(self) -> None:
        self.buffer.put_back([each for _, each in self.taken])
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
        self.buffer.keep(count, kept)

    @precondition(lambda self: not self.connected)
    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        keep = data.draw(st.integers(0, len(self.waiting)))
        del self.waiting[keep:]
        self.judged = min(self.judged, keep)
        self.buffer.cut(keep)

    @invariant()
    def it_is_what_it_should_be(self) -> None:
        buffer = self.buffer
        assert list(buffer.waiting) == [each for _, each in self.waiting]
        assert buffer.judged == self.judged
        held = [each for _, each in self.waiting + self.taken]
        assert buffer.held_bytes == self.accounted
        assert buffer.held_bytes >= sum(map(len, held)) + len(held)
        assert (buffer.held_bytes == 0) == (not held)
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
    buffer = ReceiveBuffer(lambda: CAPACITY)
    for size in sizes:
        buffer.put([bytes(size)])
        assert buffer.full == (buffer.held_bytes >= CAPACITY)
        assert buffer.half_full == (2 * buffer.held_bytes >= CAPACITY)


def test_messages_count_even_if_they_are_empty(buffer: ReceiveBuffer) -> None:
    buffer.put([b""] * CAPACITY)
    assert buffer.full


async def test_a_reader_who_wants_more_is_woken_when_they_are_there(buffer: ReceiveBuffer) -> None:
    reader = await waiting_reader(buffer, 3)
    for number in range(3):
        await asyncio.sleep(0)
        assert not reader.done()
        buffer.put([message(number, 1)])
    await reader


async def test_a_reader_that_wants_more_than_fits_wakes_before_the_server_stops(
    buffer: ReceiveBuffer,
) -> None:
    reader = await waiting_reader(buffer, 1_000)
    while not buffer.half_full:
        await asyncio.sleep(0)
        assert not reader.done()
        buffer.put([message(0)])
    await reader
    assert not buffer.full


async def test_the_writer_goes_on_once_half_is_free(buffer: ReceiveBuffer) -> None:
    fill(buffer)
    writer = await waiting_writer(buffer)
    while buffer.half_full:
        await asyncio.sleep(0)
        assert not writer.done()
        use_one(buffer)
    await writer


async def test_a_message_larger_than_the_capacity_passes_alone(buffer: ReceiveBuffer) -> None:
    buffer.put([message(0, 10 * CAPACITY)])
    writer = await waiting_writer(buffer)
    use_one(buffer)
    await writer


async def test_a_writer_that_was_woken_waits_on_if_the_capacity_shrank() -> None:
    capacity = CAPACITY
    buffer = ReceiveBuffer(lambda: capacity)
    fill(buffer)
    writer = await waiting_writer(buffer)
    while buffer.half_full:
        use_one(buffer)
    capacity = buffer.held_bytes
    first = buffer._writer
    await until(lambda: buffer._writer is not first)
    assert not writer.done()
    while buffer.waiting:
        use_one(buffer)
    await writer


async def test_a_cancelled_writer_leaves_the_feed_as_it_was(buffer: ReceiveBuffer) -> None:
    count = fill(buffer)
    writer = await waiting_writer(buffer)
    writer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writer
    assert len(buffer.waiting) == count
    writer = await waiting_writer(buffer)
    buffer.cut(0)
    await writer
