"""The window of unsettled messages: examples, and a walk on which no message is lost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings as profile
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from liftbridge_aio import Message
from liftbridge_aio.queue.core.ack_window import AckWindow, Order, Snapshot, WindowSettings
from liftbridge_aio.queue.core.attempt import MOVES, Attempt, AttemptState
from liftbridge_aio.queue.errors import AlreadySettled, LeaseExpired
from support.examples import examples

FAILURE = ValueError("no")


def message(offset: int, key: bytes = b"") -> Message:
    return Message("orders", 0, offset, key, b"", 0)


class Window:
    """Plays the owner of a window of one partition, at a clock of its own."""

    def __init__(
        self, capacity: int = 10, snapshot: Snapshot | None = None, suspects: int = 0, **other: Any
    ) -> None:
        self.now = 0.0
        self.core = AckWindow(WindowSettings(**other), Attempt, snapshot, suspects)
        self.core.capacity = capacity

    def take(self, offset: int, key: bytes = b"") -> Attempt | None:
        assert self.core.wants_more
        return self.core.take(message(offset, key), self.now)

    def handed(self, offset: int, key: bytes = b"") -> Attempt:
        attempt = self.take(offset, key)
        assert attempt is not None
        return attempt

    def again(self) -> tuple[int, int] | None:
        attempt = self.core.take_redelivery(self.now)
        return None if attempt is None else (attempt.offset, attempt.attempt)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.core.tick(self.now)

    def nack(self, attempt: Attempt, delay: float | None = None) -> None:
        self.core.nack(attempt, self.now, delay, FAILURE)


def test_acks_in_any_order_move_the_base_past_what_is_settled() -> None:
    window = Window()
    first, second, third = (window.handed(offset) for offset in (3, 5, 6))
    window.core.ack(second)
    assert window.core.snapshot() == Snapshot(7, {3: 0, 6: 0})
    window.core.ack(first)
    window.core.ack(third)
    assert window.core.snapshot() == Snapshot(7)


def test_extending_begins_the_time_for_an_answer_again() -> None:
    window = Window(ack_wait=30)
    attempts = [window.handed(offset) for offset in range(2)]
    window.wait(20)
    window.core.extend(attempts[0], window.now)
    assert window.core.next_at() == 30
    window.wait(20)
    assert [attempt.state.value for attempt in attempts] == ["in flight", "expired"]
    assert window.core.next_at() == 50


def test_a_rejected_message_has_no_other_attempt() -> None:
    window = Window()
    window.core.reject(window.handed(0), FAILURE)
    assert [attempt.offset for attempt in window.core.given_up] == [0]
    assert window.again() is None


@pytest.mark.parametrize("answer", ["ack", "nack", "reject"])
def test_a_delivery_is_answered_once(answer: str) -> None:
    window = Window()
    attempt = window.handed(0)
    answers: dict[str, Callable[[], None]] = {
        "ack": lambda: window.core.ack(attempt),
        "nack": lambda: window.nack(attempt),
        "reject": lambda: window.core.reject(attempt, None),
    }
    answers[answer]()
    for again in answers.values():
        with pytest.raises(AlreadySettled, match=f"was {answer}ed before"):
            again()


def test_a_window_is_not_longer_than_its_limit() -> None:
    window = Window(max_window=3, capacity=10)
    attempts = [window.handed(offset) for offset in range(3)]
    window.core.ack(attempts[1])
    window.core.ack(attempts[2])
    assert not window.core.wants_more
    window.core.ack(attempts[0])
    assert window.core.wants_more


def test_messages_without_a_key_do_not_wait() -> None:
    window = Window(order=Order.KEY)
    assert [window.handed(offset).offset for offset in range(3)] == [0, 1, 2]


def test_a_partition_in_order_hands_out_one_message_at_a_time() -> None:
    window = Window(order=Order.PARTITION)
    first = window.handed(0)
    assert not window.core.wants_more
    window.nack(first, delay=1)
    assert not window.core.wants_more
    window.wait(1)
    assert window.again() == (0, 2)
    window.core.ack(window.core.attempts()[0])
    assert window.core.wants_more


def test_a_snapshot_passes_over_what_was_settled_and_keeps_attempts() -> None:
    window = Window(snapshot=Snapshot(10, {4: 3, 7: 0}))
    assert window.core.snapshot() == Snapshot(10, {4: 3, 7: 0})
    assert window.handed(4).attempt == 4
    assert window.take(5) is None
    assert window.handed(7).attempt == 1
    assert window.core.snapshot() == Snapshot(10, {4: 3, 7: 0})
    assert window.handed(10).attempt == 1


def test_attempts_that_were_used_up_before_are_given_up_at_once() -> None:
    window = Window(snapshot=Snapshot(5, {4: 3}), max_attempts=3)
    assert window.take(4) is None
    assert [attempt.offset for attempt in window.core.given_up] == [4]


def test_a_suspect_that_nobody_got_has_had_no_attempt() -> None:
    window = Window(suspects=1, max_attempts=1)
    window.core.retract(window.handed(0), window.now, 0.5)
    assert (window.core.suspects, window.core.next_at()) == (1, 0.5)
    assert window.core.snapshot() == Snapshot(1, {0: 0})
    window.wait(0.5)
    assert window.again() == (0, 1)


def test_a_message_that_is_given_back_has_had_no_attempt() -> None:
    window = Window(max_attempts=1, order=Order.KEY)
    window.core.retract(window.handed(0, b"a"), window.now, 0)
    assert window.take(1, b"a") is None  # the order of keys holds
    assert window.core.suspects == 0
    window.wait(0)
    assert window.again() == (0, 1)


def test_suspects_are_handed_out_one_at_a_time() -> None:
    window = Window(suspects=2)
    first = window.handed(0)
    assert not window.core.wants_more
    assert window.core.snapshot() == Snapshot(1, {0: 1})
    assert window.core.snapshot(last=True) == Snapshot(1, {0: 0})
    window.core.ack(first)
    window.core.ack(window.handed(1))
    assert [window.handed(offset).offset for offset in (2, 3)] == [2, 3]


def test_slow_suspects_hold_up_the_others_for_ack_wait_only() -> None:
    window = Window(suspects=1_000, ack_wait=30)
    for offset in range(4):
        suspect = window.handed(offset)
        assert window.core.wants_more is (offset == 3)
        assert window.core.snapshot() == Snapshot(offset + 1, {offset: 1})
        window.core.ack(suspect)
        window.wait(10)
    assert [window.handed(offset).offset for offset in (4, 5)] == [4, 5]
    assert window.core.snapshot() == Snapshot(6, {4: 0, 5: 0})


def test_the_last_snapshot_does_not_count_what_was_in_flight() -> None:
    window = Window()
    window.handed(0)
    window.nack(window.handed(1), delay=5)
    window.core.stop()
    assert window.core.snapshot(last=True) == Snapshot(2, {0: 0, 1: 1})


def test_a_stopped_window_takes_answers_and_a_dropped_one_does_not() -> None:
    window = Window()
    first, second = window.handed(0), window.handed(1)
    window.core.stop()
    assert not window.core.wants_more
    window.core.ack(first)
    window.core.drop()
    with pytest.raises(LeaseExpired, match="released"):
        window.core.ack(second)


def test_the_cost_of_a_message_does_not_grow_with_the_window() -> None:
    def cost(held: int) -> float:
        """Seconds for 5,000 messages while so many others, each hundredth unsettled, are held."""
        window = Window(capacity=held + 10, max_window=10 * held + 10**6)
        for offset in range(held):
            attempt = window.handed(offset)
            if offset % 100:
                window.core.ack(attempt)
        began = time.process_time()
        for offset in range(held, held + 5_000):
            window.core.ack(window.handed(offset))
            window.core.tick(window.now)
        return time.process_time() - began

    assert min(cost(30_000) for _ in range(3)) < 2 * min(cost(100) for _ in range(3))


class Walk(RuleBasedStateMachine):
    """Any events in any order; the owner may end at any time, with a snapshot or without."""

    def __init__(self) -> None:
        super().__init__()
        self.order = Order.NONE
        self.capacity = 4
        self.log: list[tuple[int, bytes]] = []
        self.read = 0
        self.acked: set[int] = set()
        """Offsets that are settled for the user."""
        self.stored: Snapshot | None = None
        self.committed = -1
        self.begin(None)

    def begin(self, snapshot: Snapshot | None, suspects: int = 0) -> None:
        self.window = Window(
            snapshot=snapshot,
            suspects=suspects,
            capacity=self.capacity,
            max_attempts=3,
            max_window=12,
            order=self.order,
            retry=lambda attempt, _: float(attempt % 2),
            ack_wait=10,
        )
        self.attempts: list[tuple[Attempt, AttemptState]] = []
        base = 0 if snapshot is None else snapshot.base
        self.read = sum(offset < base for offset, _ in self.log)

    @initialize(order=st.sampled_from(Order))
    def choose(self, order: Order) -> None:
        self.order = order
        self.begin(None)

    @rule(gap=st.integers(0, 2), key=st.sampled_from([b"", b"a", b"b"]))
    def publish(self, gap: int, key: bytes) -> None:
        self.log.append(((self.log[-1][0] if self.log else -1) + 1 + gap, key))

    def key(self, offset: int) -> bytes | int:
        key = b"*" if self.order is Order.PARTITION else dict(self.log)[offset]
        return key if key and self.order is not Order.NONE else offset

    def handed_out(self, attempt: Attempt) -> None:
        assert attempt.offset not in self.acked
        assert attempt.attempt <= 3
        earlier = [each for each, _ in self.log if each < attempt.offset]
        key = self.key(attempt.offset)
        assert not [each for each in earlier if each not in self.acked and self.key(each) == key]
        self.attempts.append((attempt, attempt.state))

    @precondition(lambda self: self.read < len(self.log) and self.window.core.wants_more)
    @rule()
    def take(self) -> None:
        offset, key = self.log[self.read]
        self.read += 1
        attempt = self.window.take(offset, key)
        if attempt is not None:
            self.handed_out(attempt)

    @rule()
    def take_redelivery(self) -> None:
        attempt = self.window.core.take_redelivery(self.window.now)
        if attempt is not None:
            self.handed_out(attempt)

    @rule(data=st.data(), delay=st.sampled_from([None, 0.0, 3.0]))
    def answer(self, data: st.DataObject, delay: float | None) -> None:
        held = [each for each, _ in self.attempts if each.state is AttemptState.IN_FLIGHT]
        if not held:
            return
        attempt = data.draw(st.sampled_from(held))
        how = data.draw(st.sampled_from(["ack", "ack", "nack", "reject", "extend", "take back"]))
        core = self.window.core
        if how == "ack":
            core.ack(attempt)
            self.acked.add(attempt.offset)
        elif how == "nack":
            self.window.nack(attempt, delay)
        elif how == "reject":
            core.reject(attempt, FAILURE)
        elif how == "take back":
            core.retract(attempt, self.window.now, delay or 0.0)
        else:
            core.extend(attempt, self.window.now)

    @precondition(lambda self: self.window.core.given_up)
    @rule()
    def give_up(self) -> None:
        attempt = self.window.core.given_up.popleft()
        self.window.core.give_up(attempt)
        self.acked.add(attempt.offset)

    @rule(seconds=st.sampled_from([0.5, 4.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.window.wait(seconds)

    @rule(capacity=st.integers(0, 5))
    def limit(self, capacity: int) -> None:
        self.capacity = self.window.core.capacity = capacity

    @rule()
    def commit(self) -> None:
        self.stored = self.window.core.snapshot() or self.stored

    @rule(in_order=st.booleans())
    def end(self, *, in_order: bool) -> None:
        core = self.window.core
        core.stop()
        if in_order:
            self.stored = core.snapshot(last=True) or self.stored
        core.drop()
        if not in_order and self.stored is None:
            self.acked.clear()
        elif not in_order and self.stored is not None:
            kept = self.stored
            self.acked = {
                each
                for each in self.acked
                if each < kept.next_offset and each not in kept.unsettled
            }
        self.begin(self.stored, 0 if in_order else 2)

    @invariant()
    def holds(self) -> None:
        core = self.window.core
        assert core.span <= 12 + 2  # a gap may follow the last one
        snapshot = core.snapshot()
        if snapshot is not None:
            known = [each for each, _ in self.log if each < snapshot.next_offset]
            lost = {each for each in known if each not in self.acked} - snapshot.unsettled.keys()
            assert not lost
            assert not self.acked & snapshot.unsettled.keys()
        for index, (attempt, before) in enumerate(self.attempts):
            if attempt.state is not before:
                assert attempt.state in MOVES[before]
                self.attempts[index] = attempt, attempt.state

    def teardown(self) -> None:
        """After calm everything is settled."""
        core = self.window.core
        core.capacity = 4
        for _ in range(20 * (len(self.log) + 1)):
            self.wait(11.0)
            while core.given_up:
                self.give_up()
            attempt = core.take_redelivery(self.window.now)
            if attempt is None and self.read < len(self.log) and core.wants_more:
                offset, key = self.log[self.read]
                self.read += 1
                attempt = self.window.take(offset, key)
            if attempt is not None:
                self.handed_out(attempt)
                core.ack(attempt)
                self.acked.add(attempt.offset)
        assert self.acked >= {offset for offset, _ in self.log}


STEPS = int(os.environ.get("QUEUE_STEPS", "10000"))
TestWalk = Walk.TestCase
TestWalk.settings = profile(
    max_examples=examples(STEPS // 50), stateful_step_count=50, deadline=None
)
