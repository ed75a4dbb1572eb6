"""Bytes take their time through a line, stay in order, and none is lost or early."""

from __future__ import annotations

from random import Random
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from liftbridge_aio.testing.proxy.delay_line import UNDELAYED_BYTES, Conditions, DelayLine
from support.examples import examples

MERGED: Final = 0.001
SECONDS: Final = st.floats(0, 3, allow_nan=False)


class LineAgainstModel(RuleBasedStateMachine):
    """A line beside a list of single bytes and the times that they came in."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.conditions = Conditions()
        self.line = DelayLine(self.conditions, Random(1), delayed_bytes=100)
        self.pushed = bytearray()
        self.arrived: list[float] = []
        self.popped = bytearray()
        self.limited_since: tuple[float, int] | None = None

    @rule(data=st.binary(min_size=1, max_size=50))
    def push(self, data: bytes) -> None:
        self.line.push(data, self.now)
        self.pushed += data
        self.arrived += [self.now] * len(data)

    @rule(seconds=SECONDS)
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(delay=SECONDS, jitter=SECONDS)
    def change_delay(self, delay: float, jitter: float) -> None:
        self.conditions.delay, self.conditions.jitter = delay, jitter

    @rule(rate=st.one_of(st.none(), st.floats(0.5, 1000)))
    def change_limit(self, rate: float | None) -> None:
        self.line.pop(self.now)  # what came before is not in question
        self.popped = self.pushed[: len(self.pushed) - self.line.size]
        self.conditions.bytes_per_second = rate
        self.limited_since = None if rate is None else (self.now, len(self.popped))

    @rule()
    def pop(self) -> None:
        data = self.line.pop(self.now)
        first = len(self.popped)
        self.popped += data
        if data:
            earliest = max(self.arrived[first : first + len(data)]) - MERGED
            assert self.now >= earliest + self.conditions.delay - 1e-9
        self.within_the_limit()

    def within_the_limit(self) -> None:
        rate = self.conditions.bytes_per_second
        if rate is not None and self.limited_since is not None:
            since, before = self.limited_since
            burst = max(1.0, rate * 0.05)
            most = (self.now - since) * rate + burst
            assert len(self.popped) - before <= most + 1e-6

    @precondition(lambda self: self.line.size)
    @rule()
    def wait_until_ready(self) -> None:
        ready = self.line.ready_at(self.now)
        assert ready is not None
        slowest = 1.0 / (self.conditions.bytes_per_second or 1e9)
        longest = self.conditions.delay + self.conditions.jitter + 2 * max(0.01, slowest)
        assert ready <= self.now + longest + 1e-6
        self.now = max(self.now, ready)
        data = self.line.pop(self.now)
        assert data
        self.popped += data
        self.within_the_limit()

    @invariant()
    def nothing_is_lost_or_out_of_order(self) -> None:
        assert self.pushed.startswith(self.popped)
        assert self.line.size == len(self.pushed) - len(self.popped)
        assert (self.line.ready_at(self.now) is None) == (not self.line.size)


LineAgainstModel.TestCase.settings = settings(deadline=None, max_examples=examples(100))
TestLine = LineAgainstModel.TestCase


def line(conditions: Conditions, delayed_bytes: int = 10**9) -> DelayLine:
    return DelayLine(conditions, Random(1), delayed_bytes)


def test_jitter_spreads_but_never_reorders() -> None:
    delayed = line(Conditions(delay=1.0, jitter=1.0))
    for number in range(100):
        delayed.push(bytes([number]), number / 100)
    out, now, times = b"", 0.0, []
    while delayed.size:
        now = delayed.ready_at(now) or now
        times.append(now)
        out += delayed.pop(now)
    assert out == bytes(range(100))
    assert 1.0 <= times[0] <= 2.0
    assert 2.0 <= times[-1] <= 3.0


def test_a_throttled_line_has_bytes_when_it_is_ready() -> None:
    """Without them its timer would fire again and again, in virtual time for ever."""
    for seventh in range(50):
        throttled, now = line(Conditions(bytes_per_second=200_000)), seventh / 7
        throttled.push(bytes(40_000), now)
        while throttled.size:
            now = throttled.ready_at(now) or now
            assert throttled.pop(now)


def test_many_small_pieces_are_few_in_memory() -> None:
    delayed = line(Conditions(delay=60.0))
    for number in range(100_000):
        delayed.push(b"x", number * 1e-6)
    assert len(delayed._pieces) <= 101


def test_it_is_full_by_its_bytes() -> None:
    conditions = Conditions()
    held = line(conditions, delayed_bytes=200_000)

    def full_after(size: int) -> bool:
        held.push(bytes(size), 0.0)
        return held.full

    assert not full_after(UNDELAYED_BYTES - 1)
    assert full_after(1)
    conditions.delay = 1.0
    assert not full_after(1)
    assert full_after(200_000 - UNDELAYED_BYTES - 1)
    assert held.clear() == 200_000
    assert (held.size, held.pop(9.0), held.ready_at(9.0)) == (0, b"", None)
