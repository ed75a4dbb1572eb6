"""The RDY and backoff machine: the traces of go-nsq's tests, and a walk that never goes beyond."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from liftbridge_aio.queue.core.ready_flow import FlowSettings, Level, Outcome, ReadyFlow

FINISHED, REQUEUED, PLAIN = Outcome.FINISHED, Outcome.REQUEUED, Outcome.REQUEUED_WITHOUT_BACKOFF


Choose = Callable[[Sequence[str]], str]


def first(links: Sequence[str]) -> str:
    return links[0]


def last(links: Sequence[str]) -> str:
    return links[-1]


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


def test_a_connection_that_comes_during_a_backoff_gets_the_probe() -> None:
    consumer = Consumer(max_in_flight=2, probe_first=False)
    consumer.handle(REQUEUED)
    assert consumer.flow.closed("a", 0) == []
    assert consumer.flow.connected("b", 2500, 0) == []
    consumer.wait()
    assert consumer.commands == ["RDY 2", "RDY 0", "REQ", "RDY 1"]


def test_the_limit_holds_where_there_are_more_connections() -> None:
    flow = flow_of("abc", max_in_flight=2)
    assert rdy(flow, "abc") == [1, 1, 0]
    flow.closed("a", 0)
    assert rdy(flow, "bc") == [1, 1]


def test_backoff_is_left_after_as_many_successes_as_failures() -> None:
    consumer = Consumer(max_in_flight=5, probe_first=False)
    for outcome in (*[REQUEUED] * 3, *[FINISHED] * 2):
        consumer.handle(outcome)
        assert consumer.flow.is_backing_off
        consumer.wait()
        assert consumer.flow.total_rdy == 1
    consumer.handle(FINISHED)
    assert (consumer.flow.backoff_level, consumer.flow.total_rdy) == (0, 5)


def test_outcomes_during_a_backoff_do_not_count() -> None:
    flow = flow_of("a", max_in_flight=5)
    for _ in range(3):
        flow.delivered("a", 0)
    flow.answered("a", REQUEUED, 0)
    flow.answered("a", REQUEUED, 0)
    flow.answered("a", FINISHED, 0)
    assert flow.backoff_level == 1
    assert flow.next_at() == 2.0


def test_backoff_stops_all_connections_and_probes_one() -> None:
    flow = flow_of("abc", max_in_flight=9)
    flow.delivered("b", 0)
    assert flow.answered("b", REQUEUED, 0) == [("a", 0), ("b", 0), ("c", 0)]
    assert flow.tick(2) == [("a", 1)]
    flow.delivered("a", 2)
    assert flow.answered("a", FINISHED, 2) == [("a", 3), ("b", 3), ("c", 3)]


def test_a_probed_connection_that_is_lost_is_replaced() -> None:
    flow = flow_of("ab", max_in_flight=4)
    flow.delivered("b", 0)
    flow.answered("b", REQUEUED, 0)
    assert flow.tick(2) == [("a", 1)]
    assert flow.closed("a", 2) == []
    assert flow.tick(7) == [("b", 1)]


def test_backoff_without_a_connection_probes_the_next_one() -> None:
    flow = flow_of("a", max_in_flight=4)
    flow.delivered("a", 0)
    flow.answered("a", REQUEUED, 0)
    flow.closed("a", 0)
    assert flow.tick(2) == []
    assert flow.connected("b", 2500, 2.5) == []
    assert flow.tick(3) == [("b", 1)]


@pytest.mark.parametrize(
    ("before", "limit", "after"),
    [
        (4, 0, [0, 0]),
        (4, 1, [1, 0]),
        (4, 2, [1, 1]),
        (4, 8, [4, 4]),
        (1, 8, [4, 4]),
        (4, 5, [2, 2]),
    ],
)
def test_a_new_limit_is_shared_out(before: int, limit: int, after: list[int]) -> None:
    flow = flow_of("ab", max_in_flight=before)
    flow.limit(limit, 0)
    assert sorted(rdy(flow, "ab"), reverse=True) == after


def test_a_limit_set_during_backoff_applies_after_it() -> None:
    flow = flow_of("a", max_in_flight=4)
    flow.delivered("a", 0)
    flow.answered("a", REQUEUED, 0)
    assert flow.limit(0, 0) == []
    assert flow.tick(2) == []
    assert flow.limit(6, 2) == []
    assert flow.tick(3) == [("a", 1)]
    flow.delivered("a", 3)
    assert flow.answered("a", FINISHED, 3) == [("a", 6)]


def test_a_connection_without_room_is_tried_again() -> None:
    flow = flow_of("a", max_in_flight=2)
    flow.limit(2, 0)
    assert flow.connected("b", 2500, 0) == [("a", 1), ("b", 1)]
    assert flow.connected("c", 2500, 0) == []
    assert flow.closed("b", 1) == [("c", 1)]


def test_idle_connections_lose_their_level_where_not_all_have_one() -> None:
    flow = flow_of("ab", max_in_flight=1, choose=last)
    assert rdy(flow, "ab") == [1, 0]
    assert flow.tick(5) == []
    assert flow.tick(11) == [("a", 0), ("b", 1)]


def test_a_level_in_use_is_left_until_it_was_held_for_long() -> None:
    flow = flow_of("ab", max_in_flight=1, choose=last)
    for now in range(5, 30, 5):
        flow.delivered("a", now)
        flow.answered("a", FINISHED, now)
        assert flow.tick(now) == []
    flow.delivered("a", 31)
    assert flow.tick(35) == [("a", 0), ("b", 1)]


def test_idle_connections_lose_their_probe_in_backoff() -> None:
    flow = flow_of("ab", max_in_flight=4)
    flow.delivered("a", 0)
    flow.answered("a", REQUEUED, 0)
    assert flow.tick(2) == [("a", 1)]
    assert flow.tick(13) == [("a", 0), ("a", 1)]  # by chance the same again


def flow_of(links: str, choose: Choose = first, **settings: Any) -> ReadyFlow[str]:
    """Return a flow with a connection for each letter."""
    flow = ReadyFlow[str](FlowSettings(**settings, probe_first=False), choose, 0)
    for link in links:
        flow.connected(link, 2500, 0)
    return flow


def rdy(flow: ReadyFlow[str], links: str) -> list[int]:
    return [flow.rdy(link) for link in links]


@pytest.mark.parametrize(("in_flight", "starved"), [(0, False), (8, False), (9, True), (10, True)])
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
