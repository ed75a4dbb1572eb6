"""Activities that have to go on, the length of stalls, and figures of them."""

from __future__ import annotations

import pytest

from chaos.journal import Place, sent_at, value_of
from chaos.lanes import Calls, Lane, recovered_at
from chaos.trend import trend
from chaos.windows import percentile
from liftbridge_aio import AckPolicy

PLACE = Place("all", 0, AckPolicy.ALL)


def test_a_stall_is_the_longest_time_without_success_within_a_fault() -> None:
    lane = Lane("publish")
    for moment in (1.0, 2.0, 6.0, 7.0):
        lane.succeeded(moment, moment)
    assert lane.longest_gap(0.0, 8.0) == 4.0
    assert lane.longest_gap(3.0, 8.0) == 3.0
    assert lane.longest_gap(6.5, 8.0) == 1.0
    lane.excused.append((3.0, 4.0))
    assert lane.longest_gap(0.0, 8.0) == 1.0


def test_what_never_goes_on_stalls_to_the_end() -> None:
    lane = Lane("publish")
    assert lane.longest_gap(0.0, 60.0) == 60.0
    for moment in (1.0, 2.0, 3.0):
        lane.succeeded(moment, moment)
    assert lane.longest_gap(2.0, 60.0) == 57.0


def test_clients_work_again_when_each_lane_succeeded_after_the_ack() -> None:
    early, late = Lane("early"), Lane("late")
    early.succeeded(9.9, 10.5)
    early.succeeded(10.1, 10.6)
    late.succeeded(9.0, 12.0)
    assert recovered_at([early, late], 10.0) is None
    late.succeeded(11.0, 13.0)
    assert recovered_at([early, late], 10.0) == (13.0, "late")


def test_a_call_is_overdue_a_second_after_its_timeout() -> None:
    calls = Calls()
    calls.ended("ping", 0.0, 10.9, 10.0)
    assert not calls.overdue
    calls.ended("ping", 0.0, 11.1, 10.0)
    assert [each.took for each in calls.overdue] == [11.1]


def test_values_tell_when_they_were_sent() -> None:
    assert sent_at(value_of(PLACE, 3, 12.5)) == 12.5
    assert sent_at(b"raw-1-all-0-0") is None


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert percentile([], 0.5) == 0.0


def test_noise_is_flat_and_growth_is_not() -> None:
    noise = [(float(second), 50.0 + second % 3) for second in range(300)]
    assert trend(noise).flat
    growth = [(second, figure + second * 0.02) for second, figure in noise]
    assert not trend(growth).flat
    assert trend(growth).slope == pytest.approx(0.02, rel=0.05)
