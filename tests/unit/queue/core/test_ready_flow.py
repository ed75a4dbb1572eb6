"""The RDY and backoff machine: the traces of go-nsq's tests, and a walk that never goes beyond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from liftbridge_aio.queue.core.ready_flow import FlowSettings, Level, Outcome, ReadyFlow

FINISHED, REQUEUED, PLAIN = Outcome.FINISHED, Outcome.REQUEUED, Outcome.REQUEUED_WITHOUT_BACKOFF


def first(links: Sequence[str]) -> str:
    return links[0]


class Consumer:
    """Plays a consumer with one connection at a clock of its own, and keeps its commands."""

    def __init__(self, **settings: Any) -> None:
        self.now = 0.0
        self.flow = ReadyFlow[str](FlowSettings(**settings), first, self.now)
        self.commands: list[str] = []
        self.note(self.flow.connected("a", 2500, self.now))

    def note(self, levels: list[Level[str]]) -> None:
        self.commands += [f"RDY {level.rdy}" for level in levels]

    def handle(self, *outcomes: Outcome) -> None:
        for outcome in outcomes:
            self.note(self.flow.delivered("a", self.now))
            self.note(self.flow.answered("a", outcome, self.now))
            self.commands.append("FIN" if outcome is FINISHED else "REQ")

    def wait(self) -> None:
        """Let the backoff pass."""
        while self.flow.is_backing_off:
            self.now = self.flow.next_at()
            self.note(self.flow.tick(self.now))


def test_backoff_has_the_trace_of_go_nsq() -> None:
    consumer = Consumer(max_in_flight=5, probe_first=False)
    consumer.handle(FINISHED, FINISHED, FINISHED, REQUEUED)
    consumer.wait()
    consumer.handle(REQUEUED)
    consumer.wait()
    consumer.handle(FINISHED)
    consumer.wait()
    consumer.handle(FINISHED)
    assert consumer.commands == [
        *("RDY 5", "FIN", "FIN", "FIN", "RDY 0", "REQ", "RDY 1", "RDY 0", "REQ"),
        *("RDY 1", "RDY 0", "FIN", "RDY 1", "RDY 5", "FIN"),
    ]


def test_a_requeue_without_backoff_changes_no_level() -> None:
    consumer = Consumer(max_in_flight=5, probe_first=False)
    consumer.handle(PLAIN, PLAIN, FINISHED)
    assert consumer.commands == ["RDY 5", "REQ", "REQ", "FIN"]


def test_a_new_connection_is_probed_with_one_message() -> None:
    consumer = Consumer(max_in_flight=100)
    consumer.handle(FINISHED)
    assert consumer.commands == ["RDY 1", "RDY 100", "FIN"]


def test_a_new_connection_takes_its_share_from_the_others() -> None:
    flow = ReadyFlow[str](FlowSettings(10, probe_first=False), first, 0)
    assert flow.connected("a", 2500, 0) == [("a", 10)]
    assert flow.connected("b", 2500, 0) == [("a", 5), ("b", 5)]
    assert flow.closed("a", 0) == [("b", 10)]


def test_pausing_and_resuming_sets_all_levels() -> None:
    flow = ReadyFlow[str](FlowSettings(4, probe_first=False), first, 0)
    flow.connected("a", 2500, 0)
    flow.connected("b", 3, 0)
    assert flow.limit(0, 0) == [("a", 0), ("b", 0)]
    assert flow.limit(8, 0) == [("a", 4), ("b", 3)]


def test_backoff_is_capped_by_its_longest() -> None:
    consumer = Consumer(max_in_flight=1, max_backoff=8.0)
    for _ in range(6):
        consumer.handle(REQUEUED)
        consumer.wait()
    assert consumer.flow.backoff_level == 3


def test_a_connection_that_comes_during_a_backoff_gets_nothing_until_it_ends() -> None:
    consumer = Consumer(max_in_flight=2, probe_first=False)
    consumer.handle(REQUEUED)
    assert consumer.flow.closed("a", 0) == []
    assert consumer.flow.connected("b", 2500, 0) == []
    consumer.wait()
    assert consumer.commands == ["RDY 2", "RDY 0", "REQ", "RDY 1"]


def test_idle_connections_lose_their_level_where_not_all_can_have_one() -> None:
    flow = ReadyFlow[str](FlowSettings(1, probe_first=False), first, 0)
    assert flow.connected("a", 2500, 0) == [("a", 1)]
    assert flow.connected("b", 2500, 0) == []
    assert flow.tick(5) == []
    assert flow.tick(11) == [("a", 0), ("a", 1)] or flow.total_rdy == 1


@pytest.mark.parametrize(("in_flight", "starved"), [(0, False), (7, False), (8, True), (10, True)])
def test_starvation_begins_at_85_percent(in_flight: int, starved: bool) -> None:
    flow = ReadyFlow[str](FlowSettings(10, probe_first=False), first, 0)
    flow.connected("a", 2500, 0)
    for _ in range(in_flight):
        flow.delivered("a", 0)
    assert flow.is_starved is starved


class Walk(RuleBasedStateMachine):
    """Whatever happens, levels stay within the limit and no connection is left without for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = 5
        self.now = 0.0
        self.flow = ReadyFlow[int](FlowSettings(self.limit), first_number, 0)
        self.levels: dict[int, int] = {}
        self.in_flight: dict[int, int] = {}
        self.count = 0

    def take(self, levels: list[Level[int]]) -> None:
        for link, rdy in levels:
            assert self.levels[link] != rdy
            self.levels[link] = rdy

    @rule()
    def connect(self) -> None:
        self.count += 1
        self.levels[self.count] = self.in_flight[self.count] = 0
        self.take(self.flow.connected(self.count, 2500, self.now))

    @precondition(lambda self: self.levels)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from(sorted(self.levels)))
        del self.levels[link], self.in_flight[link]
        self.take(self.flow.closed(link, self.now))

    @precondition(lambda self: any(self.levels[n] > self.in_flight[n] for n in self.levels))
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        ready = [link for link, rdy in self.levels.items() if rdy > self.in_flight[link]]
        link = data.draw(st.sampled_from(sorted(ready)))
        self.in_flight[link] += 1
        self.take(self.flow.delivered(link, self.now))

    @precondition(lambda self: any(self.in_flight.values()))
    @rule(data=st.data(), outcome=st.sampled_from([*Outcome, None]))
    def answer(self, data: st.DataObject, outcome: Outcome | None) -> None:
        link = data.draw(st.sampled_from(sorted(n for n, c in self.in_flight.items() if c)))
        self.in_flight[link] -= 1
        self.take(self.flow.answered(link, outcome, self.now))

    @rule(limit=st.integers(0, 6))
    def set_limit(self, limit: int) -> None:
        self.limit = limit
        self.take(self.flow.limit(limit, self.now))

    @rule()
    def wait(self) -> None:
        self.now = self.flow.next_at()
        self.take(self.flow.tick(self.now))

    @invariant()
    def levels_are_within_the_limit(self) -> None:
        assert sum(self.levels.values()) <= self.limit
        assert self.flow.total_rdy == sum(self.levels.values())

    @invariant()
    def backoff_lets_one_through_at_most(self) -> None:
        if self.flow.is_backing_off:
            assert not any(self.levels.values())
        elif self.flow.backoff_level:
            assert sum(self.levels.values()) <= 1


def first_number(links: Sequence[int]) -> int:
    return links[0]


TestWalk = Walk.TestCase
