from __future__ import annotations

from collections.abc import Sized

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from liftbridge_aio import LiftbridgeError, MalformedData, Message, StreamReset
from liftbridge_aio._subscribe.core.position import Position, Verdict
from liftbridge_aio._subscribe.decoder import Decoder
from liftbridge_aio._subscribe.receive_buffer import ReceiveBuffer
from liftbridge_aio.model import EndReason
from liftbridge_aio.wire import proto
from liftbridge_aio.wire.codec import decode_message
from support.examples import examples

BROKEN = b"\x0a\xff"
HIGHEST = 60
CAPACITY = 2**22


def encoded(offset: int, *, other: bool = False, size: int = 3) -> bytes:
    """The message at an offset, or another one that takes its place in a log made anew."""
    return bytes(
        proto.Message(
            stream="s",
            offset=offset,
            timestamp=10 * offset + other,
            value=bytes(size),
            headers={"n": b"%d" % offset},
        )
    )


class Poison(Exception):
    """Raised for every seventh message."""


def no_poison(message: Message) -> int | None:
    if message.offset % 7 == 3 and message.offset % 5:
        raise Poison(message.offset)
    return message.offset if message.offset % 5 else None


class Ending:
    """The end, as the decoder reported it."""

    def __init__(self, buffer: ReceiveBuffer) -> None:
        self.buffer = buffer
        self.deliveries = 0
        self.stop = False
        self.error: LiftbridgeError | None = None
        self.after: int | None = None

    def delivered(self) -> None:
        self.deliveries += 1

    def stopped(self) -> None:
        self.stop = True
        self.buffer.end(EndReason.STOP_REACHED)

    def failed(self, error: LiftbridgeError, after: int | None) -> None:
        self.error, self.after = error, after
        self.buffer.fail(error)


class Rig:
    """A decoder with its buffer, and what it accounts and releases."""

    def __init__(self, position: Position | None = None, capacity: int = CAPACITY) -> None:
        self.accounted = 0
        self.credit = 0
        self.buffer = ReceiveBuffer(lambda: capacity, self.account)
        self.ending = Ending(self.buffer)
        self.decoder = Decoder(self.buffer, self.ending, self.account)
        self.decoder.position = position or Position()
        self.connect()

    def connect(self) -> None:
        self.credit = 0
        self.buffer.connect(self.drained)

    def account(self, difference: int) -> None:
        self.accounted += difference

    def drained(self, size: int) -> None:
        self.credit += size

    def read_all(self) -> list[int]:
        read = []
        while self.decoder.refill():
            read.append(self.decoder.ready.popleft().offset)
        return read


class Reading(RuleBasedStateMachine):
    """A log read in all ways by turns, over calls that break, repeat and start too early."""

    rig: Rig
    log: list[bytes]
    asked: int
    sent: int
    read: list[int]
    expected: list[int]
    reference: Position

    @initialize(
        offsets=st.sets(st.integers(0, HIGHEST)),
        stop=st.none() | st.integers(0, HIGHEST),
        start=st.integers(0, HIGHEST // 3),
        broken=st.sets(st.integers(0, HIGHEST), max_size=1),
    )
    def begin(self, offsets: set[int], stop: int | None, start: int, broken: set[int]) -> None:
        self.offsets = sorted(offsets)
        self.rig = Rig(Position(start, stop_offset=stop))
        self.reference = Position(start, stop_offset=stop)
        self.broken = broken
        self.end: type[LiftbridgeError] | bool | None = None
        self.read, self.expected = [], []
        self.in_hand = 0
        self.served: list[int] = []
        self.resubscribe(0)

    def over(self) -> bool:
        return self.rig.buffer.ended

    @rule(too_early=st.integers(0, 9))
    def break_and_resubscribe(self, too_early: int) -> None:
        if self.over():
            return
        self.rig.buffer.disconnect()
        while self.rig.decoder.judge_some():
            pass
        if self.over():
            return
        # Whatever waits unread, the reading goes on behind it.
        assert self.rig.decoder.position.next == self.reference.next
        self.rig.connect()
        self.resubscribe(too_early)

    def resubscribe(self, too_early: int) -> None:
        asked = self.reference.next
        assert asked is not None
        self.served = [offset for offset in self.offsets if offset >= asked - too_early]

    @precondition(lambda self: self.served)
    @rule(count=st.integers(1, 30), other=st.booleans())
    def receive(self, count: int, other: bool) -> None:
        if self.over():
            return
        now, self.served = self.served[:count], self.served[count:]
        messages = []
        for offset in now:
            # A log made anew has another message where one was delivered.
            reset = other and offset <= (self.reference.last or -1)
            if offset in self.broken:
                messages.append(BROKEN)
                self.end = self.end or MalformedData
            else:
                messages.append(encoded(offset, other=reset))
            self.judge(offset, 10 * offset + reset)
        self.rig.buffer.put(messages)

    def judge(self, offset: int, timestamp: int) -> None:
        if self.end is not None:
            return
        verdict = self.reference.judge(offset, timestamp)
        if verdict in {Verdict.DELIVER, Verdict.DELIVER_LAST}:
            self.expected.append(offset)
        if verdict in {Verdict.STOP, Verdict.DELIVER_LAST}:
            self.end = True
        elif verdict is Verdict.RESET:
            self.end = StreamReset

    @rule(count=st.integers(1, 20))
    def iterate(self, count: int) -> None:
        decoder = self.rig.decoder
        for _ in range(count):
            if decoder.refill():
                self.in_hand = 0
                self.check(decoder.ready.popleft())

    @rule(most=st.integers(1, 20))
    def take_batch(self, most: int) -> None:
        messages = self.rig.decoder.take(most)
        self.take_in_hand(messages)
        assert len(messages) <= most
        for message in messages:
            self.check(message)

    @rule(most=st.integers(1, 20))
    def take_converted(self, most: int) -> None:
        taken: list[Message] = []
        try:
            items = self.rig.decoder.take_as(most, no_poison, taken.append)
        except Poison as error:
            items = list(error.args)
            assert len(taken) == 1
        assert items == [message.offset for message in taken if message.offset % 5]
        assert len(taken) <= most
        self.take_in_hand(taken)
        for message in taken:
            self.check(message)

    @rule(most=st.integers(1, 20))
    def take_raw_batch(self, most: int) -> None:
        messages = self.rig.decoder.take_raw(most, "s", 0)
        self.take_in_hand(messages)
        assert len(messages) <= most
        for message in messages:
            assert (message.stream, message.partition) == ("s", 0)
            assert message.data == encoded(message.offset)
            assert message.timestamp == message.decode().timestamp
            self.check(message.decode())

    @rule(most=st.integers(1, 60))
    def take_columns(self, most: int) -> None:
        columns = self.rig.decoder.take_columns(most)
        if columns is None:
            return
        self.take_in_hand(columns)
        assert 0 < len(columns) <= most
        assert columns.data == [encoded(offset) for offset in columns.offsets]
        for data, value in zip(columns.data, columns.values, strict=True):
            message = decode_message(data)
            assert value == message.value
            self.check(message)

    def take_in_hand(self, messages: Sized) -> None:
        if len(messages):
            self.in_hand = 0

    def check(self, message: Message) -> None:
        assert message == decode_message(encoded(message.offset))
        self.read.append(message.offset)
        self.in_hand += 1

    @invariant()
    def nothing_is_lost_or_repeated(self) -> None:
        if not hasattr(self, "rig"):
            return
        assert self.read == self.expected[: len(self.read)]
        assert self.rig.decoder.delivered == len(self.read)
        assert self.rig.decoder.last_delivered == (self.read[-1] if self.read else None)
        finished = self.read[: len(self.read) - self.in_hand]
        assert self.rig.decoder.finished == (finished[-1] if finished else None)
        if len(self.read) < len(self.expected):
            assert self.rig.decoder.buffered >= len(self.expected) - len(self.read)

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        while self.rig.decoder.refill():
            self.check(self.rig.decoder.ready.popleft())
        assert self.read == self.expected
        ending = self.rig.ending
        assert ending.stop == (self.end is True)
        error = None if isinstance(self.end, bool) else self.end
        assert (type(ending.error) if ending.error else None) is error
        if error is MalformedData:
            assert ending.after == self.reference.last
        assert self.rig.buffer.held_bytes == 0
        assert self.rig.accounted == 0


TestReading = Reading.TestCase
TestReading.settings = settings(max_examples=examples(150), stateful_step_count=25, deadline=None)


def test_messages_are_decoded_a_bounded_number_ahead() -> None:
    rig = Rig()
    rig.buffer.put([encoded(offset) for offset in range(1_000)])
    assert rig.decoder.refill()
    assert 1 < len(rig.decoder.ready) <= 128
    assert rig.decoder.buffered == 1_000


def test_a_small_share_is_not_filled_with_decoded_messages() -> None:
    rig = Rig(capacity=32 * 1024)
    rig.buffer.put([encoded(offset, size=1) for offset in range(500)])
    assert rig.decoder.refill()
    assert len(rig.decoder.ready) < 20
    assert rig.accounted < 32 * 1024 * 5 // 4 + 500 * 64


def test_credit_comes_back_when_a_batch_is_used_up_and_not_before() -> None:
    rig = Rig()
    data = [encoded(offset) for offset in range(200)]
    rig.buffer.put(data)
    rig.decoder.refill()
    ahead = len(rig.decoder.ready)
    for _ in range(ahead):
        assert rig.credit == 0
        rig.decoder.ready.popleft()
    rig.decoder.refill()
    assert rig.credit == sum(len(each) + 5 for each in data[:ahead])
    rig.read_all()
    assert rig.credit == sum(len(each) + 5 for each in data)


@pytest.mark.parametrize("form", ["decoded", "raw", "columns"])
def test_a_batch_that_is_handed_out_is_used_up(form: str) -> None:
    rig = Rig()
    data = [encoded(offset) for offset in range(300)]
    rig.buffer.put(data)
    taken: Sized | None
    if form == "columns":
        taken = rig.decoder.take_columns(250)
    else:
        taken = rig.decoder.take_raw(250, "s", 0) if form == "raw" else rig.decoder.take(250)
    assert taken is not None
    assert len(taken) == 250
    assert rig.credit == sum(len(each) + 5 for each in data[:250])


def test_repeats_that_are_dropped_give_their_credit_back() -> None:
    rig = Rig()
    rig.buffer.put([encoded(0), encoded(1)])
    assert rig.read_all() == [0, 1]
    rig.credit = 0
    repeats = [encoded(0), encoded(1), encoded(2)]
    rig.buffer.put(repeats)
    assert rig.read_all() == [2]
    assert rig.decoder.dropped == 2
    assert rig.credit == sum(len(each) + 5 for each in repeats)


def test_the_last_offset_counts_what_nobody_has_read() -> None:
    rig = Rig(Position(stop_offset=7))
    last = [rig.decoder.last_offset]
    # The second time comes a repeat, the last time what lies beyond the stop.
    for offsets in [0, 5], [2], [9]:
        rig.buffer.put([encoded(offset) for offset in offsets])
        last.append(rig.decoder.last_offset)
        rig.decoder.refill()
        last.append(rig.decoder.last_offset)
    assert last == [None, 5, 5, 5, 5, 5, 5]


def test_what_is_discarded_is_gone_and_given_back() -> None:
    rig = Rig()
    data = [encoded(offset) for offset in range(300)]
    rig.buffer.put(data)
    rig.decoder.refill()
    for _ in range(3):
        rig.decoder.ready.popleft()
    rig.decoder.discard()
    assert rig.read_all() == []
    assert (rig.decoder.finished, rig.decoder.last_delivered) == (1, 2)
    assert rig.decoder.delivered == 3
    assert rig.credit == sum(len(each) + 5 for each in data)
    assert rig.accounted == rig.buffer.held_bytes == rig.decoder.buffered_bytes == 0
