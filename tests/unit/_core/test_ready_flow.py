"""The RDY and backoff machine: go-nsq's traces, and a walk of any events that demands progress."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from liftbridge_aio._core.ready_flow import (
    TRANSITIONS,
    Event,
    FlowSettings,
    Level,
    Outcome,
    Phase,
    ReadyFlow,
)

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
    assert flow.closed("a", 2) == [("b", 1)]


def test_the_only_connection_is_probed_after_it_was_lost() -> None:
    flow = flow_of("a", max_in_flight=4)
    flow.delivered("a", 0)
    flow.answered("a", REQUEUED, 0)
    assert flow.tick(2) == [("a", 1)]
    assert flow.closed("a", 3) == []
    assert flow.phase is Phase.SEEKING
    assert flow.tick(30) == []
    assert flow.connected("b", 2500, 40) == [("b", 1)]
    flow.delivered("b", 40)
    assert flow.answered("b", FINISHED, 40) == [("b", 4)]


def test_pausing_while_probing_leads_back_to_a_probe() -> None:
    flow = flow_of("a", max_in_flight=4)
    flow.delivered("a", 0)
    flow.answered("a", REQUEUED, 0)
    assert flow.tick(2) == [("a", 1)]
    assert flow.limit(0, 3) == [("a", 0)]
    assert flow.limit(4, 4) == [("a", 1)]


def test_a_probed_connection_that_closes_is_replaced_at_once() -> None:
    flow = flow_of("ab", max_in_flight=1)
    flow.delivered("a", 0)
    flow.answered("a", REQUEUED, 0)
    assert flow.tick(2) == [("a", 1)]
    assert flow.closing("a", 2) == [("b", 1)]
    assert flow.closed("a", 3) == []


def test_a_connection_that_takes_no_messages_is_not_probed() -> None:
    flow = flow_of("a", max_in_flight=4)
    flow.delivered("a", 0)
    flow.answered("a", REQUEUED, 0)
    flow.closed("a", 0)
    flow.connected("b", 0, 1)
    assert flow.tick(2) == []
    assert flow.connected("c", 2500, 3) == [("c", 1)]


def test_each_connection_is_probed_in_turn() -> None:
    flow = flow_of("abc", max_in_flight=9)
    flow.delivered("a", 0)
    flow.answered("a", REQUEUED, 0)
    probes = []
    for now in range(2, 200, 6):
        probes += [level.link for level in flow.tick(now) if level.rdy]
    assert probes[:6] == list("abcabc")


def test_backoff_without_a_connection_probes_the_next_one() -> None:
    flow = flow_of("a", max_in_flight=4)
    flow.delivered("a", 0)
    flow.answered("a", REQUEUED, 0)
    flow.closed("a", 0)
    assert flow.tick(2) == []
    assert flow.connected("b", 2500, 2.5) == [("b", 1)]


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
    assert flow.limit(6, 2) == [("a", 1)]
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
    assert flow.tick(35) == [("a", 0)]
    assert flow.answered("a", FINISHED, 36) == [("b", 1)]


def test_messages_in_flight_count_after_their_level_was_lowered() -> None:
    flow = flow_of("a", max_in_flight=4)
    for _ in range(4):
        flow.delivered("a", 0)
    assert flow.connected("b", 2500, 1) == [("a", 2)]
    assert flow.tick(6) == []
    assert flow.answered("a", FINISHED, 7) == [("b", 1)]
    assert flow.answered("a", None, 7) == [("b", 2)]
    assert flow.answered("a", FINISHED, 7) == []


def test_a_lower_limit_stops_all_while_messages_are_in_flight() -> None:
    flow = flow_of("ab", max_in_flight=4)
    for _ in range(2):
        flow.delivered("a", 0)
    flow.limit(1, 1)
    assert rdy(flow, "b") == [0]
    flow.answered("a", FINISHED, 2)
    assert rdy(flow, "b") == [0]
    flow.answered("a", FINISHED, 3)
    assert flow.total_rdy == 1


def test_a_connection_without_messages_passes_its_level_on() -> None:
    flow = flow_of("abc", max_in_flight=1, choose=last)
    assert flow.pass_on("a", 1) == [("a", 0), ("c", 1)]
    assert flow.pass_on("", 1) == []


def test_a_probe_in_flight_is_the_only_one() -> None:
    flow = flow_of("ab", max_in_flight=1)
    flow.delivered("a", 0)
    flow.answered("a", REQUEUED, 0)
    assert flow.tick(2) == [("a", 1)]
    flow.delivered("a", 2)
    assert flow.tick(60) == []


def test_idle_connections_lose_their_probe_in_backoff() -> None:
    flow = flow_of("ab", max_in_flight=4)
    flow.delivered("a", 0)
    flow.answered("a", REQUEUED, 0)
    assert flow.tick(2) == [("a", 1)]
    assert flow.tick(13) == [("a", 0), ("b", 1)]


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


@pytest.mark.parametrize("phase", [each for each in Phase if each is not Phase.FLOWING])
def test_each_phase_of_a_backoff_leads_to_the_next(phase: Phase) -> None:
    assert set(TRANSITIONS) == set(Phase)
    following = TRANSITIONS[phase]
    assert Event.ELAPSED in following or {Event.BACKED_OFF, Event.RECOVERED} <= set(following)
    if phase is Phase.PROBING:
        assert following[Event.LOST] is following[Event.IDLE] is Phase.SEEKING


_IDLE = 10.0
_REDISTRIBUTE = 5.0


class Walk(RuleBasedStateMachine):
    """Takes any event in any state; the rules of the guide hold, and messages always come again."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = 5
        self.now = 0.0
        self.pick = 0
        self.flow = ReadyFlow[int](
            FlowSettings(self.limit, redistribute=_REDISTRIBUTE, idle=_IDLE), self.choose, 0
        )
        self.levels: dict[int, int] = {}
        self.in_flight: dict[int, int] = {}
        self.max_rdy: dict[int, int] = {}
        self.closing_links: set[int] = set()
        self.count = 0

    def choose(self, links: Sequence[int]) -> int:
        return links[self.pick % len(links)]

    def take(self, levels: list[Level[int]]) -> None:
        for link, rdy in levels:
            assert self.levels[link] != rdy
            assert link not in self.closing_links
            self.levels[link] = rdy

    def result(self, answer: Callable[[], list[Level[int]]]) -> None:
        """Take a result, of which one counts for each timeout."""
        phase, level = self.flow.phase, self.flow.backoff_level
        self.take(answer())
        if phase is Phase.WAITING:
            assert (self.flow.phase, self.flow.backoff_level) == (phase, level)
        elif level:
            assert abs(self.flow.backoff_level - level) <= 1
            assert self.flow.phase in {Phase.WAITING, Phase.FLOWING}

    @rule(pick=st.integers(0, 5))
    def change_chance(self, pick: int) -> None:
        self.pick = pick

    @rule(max_rdy=st.sampled_from([2500, 2500, 2, 0]))
    def connect(self, max_rdy: int) -> None:
        self.count += 1
        self.levels[self.count] = self.in_flight[self.count] = 0
        self.max_rdy[self.count] = max_rdy
        self.take(self.flow.connected(self.count, max_rdy, self.now))

    @precondition(lambda self: self.levels)
    @rule(data=st.data())
    def start_to_close(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from(sorted(self.levels)))
        self.closing_links.add(link)
        self.levels[link] = 0
        self.take(self.flow.closing(link, self.now))

    @precondition(lambda self: self.levels)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from(sorted(self.levels)))
        del self.levels[link], self.in_flight[link], self.max_rdy[link]
        self.closing_links.discard(link)
        self.take(self.flow.closed(link, self.now))

    @precondition(lambda self: any(self.levels[n] > self.in_flight[n] for n in self.levels))
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        ready = [link for link, rdy in self.levels.items() if rdy > self.in_flight[link]]
        self.deliver_from(data.draw(st.sampled_from(sorted(ready))))

    def deliver_from(self, link: int) -> None:
        self.in_flight[link] += 1
        if self.flow.phase is Phase.FLOWING:
            assert sum(self.in_flight.values()) <= self.limit
        self.take(self.flow.delivered(link, self.now))

    @precondition(lambda self: any(self.in_flight.values()))
    @rule(data=st.data(), outcome=st.sampled_from([*Outcome, None]))
    def answer(self, data: st.DataObject, outcome: Outcome | None) -> None:
        link = data.draw(st.sampled_from(sorted(n for n, c in self.in_flight.items() if c)))
        self.in_flight[link] -= 1
        if outcome is None:
            self.take(self.flow.answered(link, None, self.now))
        else:
            self.result(lambda: self.flow.answered(link, outcome, self.now))

    @rule(outcome=st.sampled_from(Outcome))
    def answer_of_a_lost_connection(self, outcome: Outcome) -> None:
        self.result(lambda: self.flow.answered(-1, outcome, self.now))

    @rule(limit=st.integers(0, 6))
    def set_limit(self, limit: int) -> None:
        self.limit = limit
        self.take(self.flow.limit(limit, self.now))

    @rule()
    def wait(self) -> None:
        self.now = max(self.now, self.flow.next_at())
        self.take(self.flow.tick(self.now))

    @rule(seconds=st.sampled_from([0.0, 0.5, 3.0, 40.0]))
    def wait_for(self, seconds: float) -> None:
        self.now += seconds
        self.take(self.flow.tick(self.now))

    @precondition(lambda self: self.limit and self.able)
    @rule(data=st.data())
    def demand_progress(self, data: st.DataObject) -> None:
        """One connection alone has messages, which all succeed: the backoff ends in its time."""
        for link, count in self.in_flight.items():  # whatever was in flight has vanished
            for _ in range(count):
                self.take(self.flow.answered(link, None, self.now))
            self.in_flight[link] = 0
        busy = data.draw(st.sampled_from(self.able))
        turn = len(self.able) * (_IDLE + 2 * _REDISTRIBUTE)
        latest = self.now + sum(turn + 2.0**level for level in range(self.flow.backoff_level + 2))
        while self.flow.backoff_level:
            if self.levels[busy]:
                self.deliver_from(busy)
                self.in_flight[busy] -= 1
                self.result(lambda: self.flow.answered(busy, FINISHED, self.now))
            else:
                self.wait()
            assert self.now <= latest
        while not any(self.levels[link] for link in self.able):  # its share is due at a tick
            self.wait()
            assert self.now <= latest

    @property
    def able(self) -> list[int]:
        """The connections that can deliver."""
        return [n for n in self.levels if n not in self.closing_links and self.max_rdy[n]]

    @invariant()
    def levels_are_within_the_limit(self) -> None:
        assert sum(self.levels.values()) <= self.limit
        assert self.flow.total_rdy == sum(self.levels.values())
        assert all(rdy <= self.max_rdy[link] for link, rdy in self.levels.items())

    @invariant()
    def backoff_lets_one_through_at_most(self) -> None:
        total, phase = sum(self.levels.values()), self.flow.phase
        assert (phase is Phase.FLOWING) is (self.flow.backoff_level == 0)
        if phase is not Phase.FLOWING:
            assert total == (1 if phase is Phase.PROBING else 0)

    @invariant()
    def seeking_means_that_there_is_nothing_to_probe(self) -> None:
        if self.flow.phase is Phase.SEEKING:
            assert not (self.able and self.limit)


TestWalk = Walk.TestCase
