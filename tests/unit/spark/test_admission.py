from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from liftbridge_aio.model import StreamPartition
from liftbridge_aio.spark.core.admission import TriggerDelay, admit, offsets_within, stricter
from liftbridge_aio.spark.core.offsets import Offsets
from support.examples import examples

places = st.builds(StreamPartition, st.sampled_from("abc"), st.integers(0, 9))
plain = st.dictionaries(places, st.integers(0, 50) | st.integers(0, 2**62), max_size=12)
limits = st.integers(1, 40) | st.integers(1, 2**63 - 1)


def taken(start: Offsets, end: Offsets) -> dict[StreamPartition, int]:
    return {place: end[place] - start.get(place, 0) for place in end}


def behind(start: Offsets, available: dict[StreamPartition, int]) -> dict[StreamPartition, int]:
    lags = {place: end - start.get(place, 0) for place, end in available.items()}
    return {place: lag for place, lag in lags.items() if lag > 0}


@given(plain, plain, st.none() | limits, st.none() | plain)
def test_no_partition_goes_back_or_beyond_what_there_is(
    begin: dict[StreamPartition, int],
    available: dict[StreamPartition, int],
    limit: int | None,
    target: dict[StreamPartition, int] | None,
) -> None:
    start = Offsets(begin)
    end = admit(start, available, max_offsets=limit, target=target)
    for place, offset in end.items():
        bounds = [available.get(place, 0), (available if target is None else target).get(place, 0)]
        first = start.get(place, 0)
        assert first <= offset <= max(first, min(bounds))
    assert end.keys() >= start.keys()


@given(plain, plain, limits)
def test_the_limit_is_used_up_and_no_more(
    begin: dict[StreamPartition, int], available: dict[StreamPartition, int], limit: int
) -> None:
    start = Offsets(begin)
    end = admit(start, available, max_offsets=limit)
    total = sum(behind(start, available).values())
    assert sum(taken(start, end).values()) == min(limit, total)


@given(plain, plain, st.none() | limits, st.integers(0, 200) | st.integers(0, 2**62))
def test_a_batch_waits_for_its_least_and_is_the_same_then(
    begin: dict[StreamPartition, int],
    available: dict[StreamPartition, int],
    limit: int | None,
    least: int,
) -> None:
    start = Offsets(begin)
    end = admit(start, available, min_offsets=least, max_offsets=limit)
    if sum(behind(start, available).values()) < least:
        assert end.to_json() == start.to_json()
    else:
        assert end == admit(start, available, max_offsets=limit)


@given(
    st.integers(1, 9),
    st.integers(0, 9),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=20),
)
def test_a_trigger_is_delayed_as_kafkas_connector_delays_it(
    least: int, max_delay: int, triggers: list[tuple[int, int]]
) -> None:
    """The model is what Kafka's connector does, whose clock stands far beyond 0 at its start."""
    delay, now, last = TriggerDelay(least, max_delay), 1000, 0
    for passed, lag in triggers:
        now += passed
        delayed = now - last < max_delay and lag < least
        assert (lag < delay.min_offsets(now)) == (delayed and lag < least)
        if not delayed:
            last = now
            delay.planned(now)


def test_without_a_least_nothing_is_delayed() -> None:
    delay = TriggerDelay(None, 900)
    delay.planned(0)
    assert delay.min_offsets(1) == 0


@given(plain, plain, limits)
def test_partitions_that_are_behind_all_get_something_and_more_by_lag(
    begin: dict[StreamPartition, int], available: dict[StreamPartition, int], limit: int
) -> None:
    start = Offsets(begin)
    lags = behind(start, available)
    end = admit(start, available, max_offsets=limit)
    shares = {place: share for place, share in taken(start, end).items() if share}
    if limit < len(lags):
        assert set(shares.values()) == {1}
        return
    assert shares.keys() == lags.keys()
    total = sum(lags.values())
    if total > limit:
        for place, lag in lags.items():
            # 1 for each, then in proportion: off by less than one offset.
            spare = (limit - len(lags)) * (lag - 1)
            assert abs((shares[place] - 1) * (total - len(lags)) - spare) < total - len(lags)


@given(plain, plain, limits)
def test_a_batch_depends_on_nothing_but_what_is_given(
    begin: dict[StreamPartition, int], available: dict[StreamPartition, int], limit: int
) -> None:
    turned = dict(reversed(list(available.items())))
    once = admit(Offsets(begin), available, max_offsets=limit)
    assert admit(Offsets(begin), turned, max_offsets=limit).to_json() == once.to_json()


def test_nothing_new_leaves_the_offsets_as_they_are() -> None:
    start = Offsets({("a", 0): 5}, {"a": 7})
    assert admit(start, {StreamPartition("a", 0): 5, StreamPartition("b", 0): 0}) == start


def test_a_limit_below_the_number_of_partitions_takes_turns() -> None:
    available = {StreamPartition("a", number): 10**6 for number in range(5)}
    position = Offsets(dict.fromkeys(available, 0))
    for _ in range(5):
        position = admit(position, available, max_offsets=2)
    assert dict(position) == dict.fromkeys(available, 2)


@pytest.mark.parametrize(
    ("max_bytes", "average", "offsets"),
    [(1000, 100, 10), (1000, 300.5, 3), (10, 100, 1), (10, 0, 10), (2**62, 1, 2**62)],
)
def test_a_limit_in_bytes_becomes_one_in_offsets(
    max_bytes: int, average: float, offsets: int
) -> None:
    assert offsets_within(max_bytes, average) == offsets


@pytest.mark.parametrize(
    ("one", "other", "both"), [(None, None, None), (3, None, 3), (None, 2, 2), (3, 2, 2)]
)
def test_the_stricter_limit_holds(one: int | None, other: int | None, both: int | None) -> None:
    assert stricter(one, other) == both


class GrowingLogs(RuleBasedStateMachine):
    """A query reads batch after batch while messages arrive, with and without limits."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: dict[StreamPartition, int] = {}
        self.position = Offsets()
        self.read: dict[StreamPartition, int] = {}

    @rule(place=places, more=st.integers(0, 500))
    def publish(self, place: StreamPartition, more: int) -> None:
        self.ends[place] = self.ends.get(place, 0) + more

    @rule(limit=st.none() | st.integers(1, 60))
    def read_batch(self, limit: int | None) -> None:
        end = admit(self.position, self.ends, max_offsets=limit)
        for one in self.position.ranges_to(end):
            assert one.start == self.read.get(one.place, 0)  # none twice, none left out
            self.read[one.place] = one.end
        assert end.to_json() == self.position.to_json() or end != self.position
        self.position = end

    @precondition(lambda machine: machine.ends)
    @rule(limit=st.integers(1, 60))
    def catch_up(self, limit: int) -> None:
        target = dict(self.ends)
        todo = sum(self.ends.values()) - sum(self.read.values())
        for _ in range(-(-todo // limit)):
            before = self.position
            end = admit(self.position, self.ends, max_offsets=limit, target=target)
            assert end != before
            self.read |= {one.place: one.end for one in before.ranges_to(end)}
            self.position = end
        assert self.read == {place: end for place, end in target.items() if end}

    @invariant()
    def never_ahead(self) -> None:
        assert all(offset <= self.ends[place] for place, offset in self.position.items())


TestGrowingLogs = GrowingLogs.TestCase
TestGrowingLogs.settings = settings(
    max_examples=examples(50), stateful_step_count=20, deadline=None
)
