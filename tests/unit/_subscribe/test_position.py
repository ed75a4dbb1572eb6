from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from liftbridge_aio._subscribe.core.position import ENDING, Position, ReversePosition, Verdict
from support.examples import examples

HIGHEST = 30
offsets = st.integers(0, HIGHEST)
logs = st.sets(offsets)
maybe_offset = st.none() | offsets
# Offset n was written at 10 n, so these fall on messages, between them and outside.
times = st.integers(-5, 10 * HIGHEST + 5)


class Readings(RuleBasedStateMachine):
    """A reading over servers that break off, repeat, and start where they were not asked to."""

    position: Position | ReversePosition
    log: list[int]  # in the order of the reading
    wanted: list[int]
    delivered: list[int]
    first_request: int
    over: bool

    def begin(self, log: list[int], wanted: Iterable[int], first_request: int) -> None:
        self.log = log
        self.wanted = list(wanted)
        self.first_request = first_request
        self.delivered = []
        self.over = self.position.finished

    @rule(too_early=st.integers(0, 12), count=st.integers(0, 12))
    def subscribe_and_break(self, too_early: int, count: int) -> None:
        """Subscribe where the reading stands, and break off after a few messages."""
        self.subscribe(too_early, count)

    def subscribe(self, too_early: int, count: int) -> None:
        if self.over:
            return
        asked = self.position.next
        request = self.first_request if asked is None else asked
        for offset in self.served(request, too_early)[:count]:
            verdict = self.position.judge(offset, 10 * offset)
            assert verdict is not Verdict.RESET
            if verdict in {Verdict.DELIVER, Verdict.DELIVER_LAST}:
                self.delivered.append(offset)
            if verdict in {Verdict.DELIVER_LAST, Verdict.STOP}:
                self.over = True
                return

    def served(self, request: int, too_early: int) -> list[int]:
        raise NotImplementedError

    @invariant()
    def nothing_is_lost_repeated_or_out_of_order(self) -> None:
        assert self.delivered == self.wanted[: len(self.delivered)]
        assert self.position.last == (self.delivered[-1] if self.delivered else None)

    @invariant()
    def it_ends_only_when_everything_was_delivered(self) -> None:
        if self.over or self.position.finished:
            assert self.delivered == self.wanted

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.subscribe(3, len(self.log))
            assert self.delivered == self.wanted


class ForwardReadings(Readings):
    @initialize(log=logs, start=maybe_offset, stop=maybe_offset, stop_time=st.none() | times)
    def start(
        self,
        log: set[int],
        start: int | None,
        stop: int | None,
        stop_time: int | None,
    ) -> None:
        self.position = Position(start, stop_offset=stop, stop_timestamp=stop_time)
        assert self.position.next == start
        self.begin(
            sorted(log),
            (
                offset
                for offset in sorted(log)
                if (start is None or offset >= start)
                and (stop is None or offset <= stop)
                and (stop_time is None or 10 * offset <= stop_time)
            ),
            start or 0,
        )

    def served(self, request: int, too_early: int) -> list[int]:
        return [offset for offset in self.log if offset >= request - too_early]


class ReverseReadings(Readings):
    @initialize(log=logs, start=offsets, stop=maybe_offset, stop_time=st.none() | times)
    def start(self, log: set[int], start: int, stop: int | None, stop_time: int | None) -> None:
        self.position = ReversePosition(start, stop_offset=stop, stop_timestamp=stop_time)
        assert self.position.next == start
        self.begin(
            sorted(log, reverse=True),
            (
                offset
                for offset in sorted(log, reverse=True)
                if offset <= start
                and (stop is None or offset >= stop)
                and (stop_time is None or 10 * offset >= stop_time)
            ),
            start,
        )

    def served(self, request: int, too_early: int) -> list[int]:
        return [offset for offset in self.log if offset <= request + too_early]


TestForwardReadings = ForwardReadings.TestCase
TestForwardReadings.settings = settings(
    max_examples=examples(60), stateful_step_count=6, deadline=None
)
TestReverseReadings = ReverseReadings.TestCase
TestReverseReadings.settings = settings(
    max_examples=examples(60), stateful_step_count=6, deadline=None
)


@given(st.sets(st.integers(0, 3000), min_size=1, max_size=40), st.data())
def test_another_message_at_a_delivered_offset_means_the_log_was_reset(
    log: set[int], data: st.DataObject
) -> None:
    position = Position()
    for offset in sorted(log):
        assert position.judge(offset, 7 * offset) is Verdict.DELIVER
    recent = sorted(offset for offset in log if max(log) - offset < 1024)
    offset = data.draw(st.sampled_from(recent))
    assert position.judge(offset, 7 * offset) is Verdict.DROP
    assert position.judge(offset, 7 * offset + 1) is Verdict.RESET
    assert position.last == max(log)


def test_repeats_older_than_1024_offsets_are_dropped_whatever_they_are() -> None:
    position = Position()
    for offset in range(1025):
        position.judge(offset, offset)
    assert position.judge(0, 5) is Verdict.DROP
    assert position.judge(1, 5) is Verdict.RESET


def test_what_lies_below_the_start_is_no_sign_of_a_reset() -> None:
    position = Position(5)
    assert position.judge(4, 1) is Verdict.DROP
    assert position.judge(4, 2) is Verdict.DROP
    assert position.judge(5, 3) is Verdict.DELIVER


@pytest.mark.parametrize(("timestamp", "verdict"), [(9, "DELIVER"), (10, "DELIVER"), (11, "STOP")])
def test_a_stop_time_includes_its_own_nanosecond(timestamp: int, verdict: str) -> None:
    assert Position(stop_timestamp=10).judge(0, timestamp) is Verdict[verdict]


@pytest.mark.parametrize(("timestamp", "verdict"), [(11, "DELIVER"), (10, "DELIVER"), (9, "STOP")])
def test_a_stop_time_includes_its_own_nanosecond_in_reverse(timestamp: int, verdict: str) -> None:
    assert ReversePosition(5, stop_timestamp=10).judge(5, timestamp) is Verdict[verdict]


@pytest.mark.parametrize(
    ("position", "finished"),
    [
        (Position(), False),
        (Position(7), False),
        (Position(7, stop_offset=7), False),
        (Position(8, stop_offset=7), True),
        (Position(stop_offset=0), False),
        (Position(stop_offset=-1), True),
        (ReversePosition(7), False),
        (ReversePosition(7, stop_offset=7), False),
        (ReversePosition(6, stop_offset=7), True),
        (ReversePosition(0), False),
    ],
)
def test_a_reading_whose_stop_lies_before_its_start_is_finished_at_once(
    position: Position | ReversePosition, finished: bool
) -> None:
    assert position.finished is finished


@pytest.mark.parametrize(
    ("position", "empty"),
    [
        (Position(stop_offset=-1), True),
        (Position(stop_offset=0), False),
        (Position(), False),
        (ReversePosition(-1), True),
        (ReversePosition(0), False),
    ],
)
def test_a_reading_of_nothing_at_all_is_empty(
    position: Position | ReversePosition, empty: bool
) -> None:
    assert position.empty is empty


@pytest.mark.parametrize("stop", [None, 0])
def test_a_reverse_reading_ends_with_offset_zero(stop: int | None) -> None:
    position = ReversePosition(1, stop_offset=stop)
    steps = [(position.judge(offset, 0), position.finished) for offset in (1, 0)]
    assert steps == [(Verdict.DELIVER, False), (Verdict.DELIVER_LAST, True)]
    assert not position.empty
    assert position.next == 0


# Many at once


@dataclass(slots=True)
class Place:
    offset: int
    timestamp: int


def one_by_one(position: Position | ReversePosition, places: list[Place]) -> list[Verdict] | None:
    """Return the expected result of checking many."""
    verdicts = []
    for place in places:
        verdicts.append(position.judge(place.offset, place.timestamp))
        if verdicts[-1] in ENDING:
            break
    return None if set(verdicts) <= {Verdict.DELIVER} else verdicts


def runs(lowest: int, highest: int) -> st.SearchStrategy[list[Place]]:
    """Messages of a batch: mostly one after the other, with gaps, steps back and other times."""
    steps = st.tuples(st.sampled_from([1, 1, 1, 1, 2, 7, 0, -1, -3]), st.sampled_from([0, 0, 0, 1]))

    def placed(start: int, moves: list[tuple[int, int]]) -> list[Place]:
        places, offset = [], start
        for step, other in moves:
            offset = max(offset + step, 0)
            places.append(Place(offset, 10 * offset + other))
        return places

    return st.builds(placed, st.integers(lowest, highest), st.lists(steps, max_size=40))


def straight(start: int, count: int) -> list[Place]:
    return [Place(offset, 10 * offset) for offset in range(start, start + count)]


def columns(places: list[Place]) -> tuple[list[int], list[int]]:
    return [place.offset for place in places], [place.timestamp for place in places]


@given(
    st.lists(runs(0, 60), max_size=6),
    st.none() | st.integers(0, 60),
    st.none() | st.integers(0, 60),
    st.none() | st.integers(0, 600),
)
@example([straight(0, 1500), straight(400, 1200), straight(476, 5)], None, None, None)
@example([straight(1000, 100), straight(1050, 100)], None, None, None)
def test_many_at_once_are_judged_as_one_by_one(
    batches: list[list[Place]], start: int | None, stop: int | None, stop_timestamp: int | None
) -> None:
    position = Position(start, stop_offset=stop, stop_timestamp=stop_timestamp)
    reference = deepcopy(position)
    for batch in batches:
        verdicts = position.judge_all(*columns(batch))
        assert verdicts == one_by_one(reference, batch)
        assert (position.last, position.next) == (reference.last, reference.next)
        assert position.finished == reference.finished
        if verdicts is not None and verdicts[-1] in ENDING:
            return
    for offset in range(1600):
        for timestamp in (10 * offset, 10 * offset + 1):
            assert position.wants(offset, timestamp) == reference.wants(offset, timestamp)
            if position.last is not None and offset <= position.last:
                # Nothing is delivered below it, so asking changes nothing.
                assert position.judge(offset, timestamp) is reference.judge(offset, timestamp)


@given(
    st.lists(runs(0, 60), max_size=6),
    st.integers(0, 60),
    st.none() | st.integers(0, 60),
    st.none() | st.integers(0, 600),
)
def test_many_at_once_are_judged_as_one_by_one_in_reverse(
    batches: list[list[Place]], start: int, stop: int | None, stop_timestamp: int | None
) -> None:
    position = ReversePosition(start, stop_offset=stop, stop_timestamp=stop_timestamp)
    reference = deepcopy(position)
    for batch in batches:
        backwards = batch[::-1]
        verdicts = position.judge_all(*columns(backwards))
        assert verdicts == one_by_one(reference, backwards)
        assert (position.last, position.next) == (reference.last, reference.next)
        if verdicts is not None and verdicts[-1] in ENDING:
            return


@given(runs(0, 60), st.none() | st.integers(0, 60), st.none() | st.integers(0, 600), st.booleans())
def test_wanted_is_what_would_be_delivered(
    places: list[Place], stop: int | None, stop_timestamp: int | None, reverse: bool
) -> None:
    position: Position | ReversePosition
    if reverse:
        position = ReversePosition(60, stop_offset=stop, stop_timestamp=stop_timestamp)
    else:
        position = Position(stop_offset=stop, stop_timestamp=stop_timestamp)
    for place in places[::-1] if reverse else places:
        wanted = position.wants(place.offset, place.timestamp)
        verdict = position.judge(place.offset, place.timestamp)
        assert wanted == (verdict in {Verdict.DELIVER, Verdict.DELIVER_LAST})
        if verdict in ENDING:
            return
