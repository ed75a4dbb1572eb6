"""How many reports within which time make a leader count as dead."""

from __future__ import annotations

import gc
import weakref
from typing import Final

import pytest

from liftbridge_aio.broker.failover import FailoverReports, group_quorum, partition_quorum

TIMEOUT: Final = 100


class Led:
    """Something with a leader."""


@pytest.mark.parametrize(("members", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_coordinator_falls_by_more_than_half_of_the_members(members: int, needed: int) -> None:
    reports: FailoverReports[Led] = FailoverReports(TIMEOUT)
    group = Led()
    answers = [reports.add(group, str(n), group_quorum(members), 0) for n in range(needed)]
    assert answers == [False] * (needed - 1) + [True]


@pytest.mark.parametrize(("in_sync", "needed"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_a_leader_falls_by_more_than_half_of_its_followers_in_sync(
    in_sync: int, needed: int
) -> None:
    reports: FailoverReports[Led] = FailoverReports(TIMEOUT)
    partition = Led()
    answers = [reports.add(partition, str(n), partition_quorum(in_sync), 0) for n in range(needed)]
    assert answers == [False] * (needed - 1) + [True]


def test_a_witness_counts_once() -> None:
    reports: FailoverReports[Led] = FailoverReports(TIMEOUT)
    led = Led()
    assert [reports.add(led, "a", 1, 0) for _ in range(3)] == [False] * 3
    assert reports.add(led, "b", 1, 0)


def test_each_report_gives_the_others_time() -> None:
    reports: FailoverReports[Led] = FailoverReports(TIMEOUT)
    led = Led()
    assert not reports.add(led, "a", 2, 0)
    assert not reports.add(led, "b", 2, 99)
    assert reports.add(led, "c", 2, 198)


def test_reports_that_come_too_late_count_from_one() -> None:
    reports: FailoverReports[Led] = FailoverReports(TIMEOUT)
    led = Led()
    assert not reports.add(led, "a", 1, 0)
    assert not reports.add(led, "b", 1, 100)
    assert reports.add(led, "a", 1, 199)


def test_after_a_failover_one_report_is_enough_for_ever() -> None:
    reports: FailoverReports[Led] = FailoverReports(TIMEOUT)
    led = Led()
    reports.add(led, "a", 1, 0)
    assert reports.add(led, "b", 1, 0)
    assert reports.add(led, "a", 1, 10_000)


def test_each_leader_is_counted_for_itself_until_all_is_forgotten() -> None:
    reports: FailoverReports[Led] = FailoverReports(TIMEOUT)
    one, other = Led(), Led()
    assert not reports.add(one, "a", 1, 0)
    assert not reports.add(other, "b", 1, 0)
    reports.forget()
    assert not reports.add(one, "b", 1, 0)


def test_what_is_gone_is_not_kept_alive_by_its_reports() -> None:
    reports: FailoverReports[Led] = FailoverReports(TIMEOUT)
    led = Led()
    reports.add(led, "a", 0, 0)
    alive = weakref.ref(led)
    del led
    gc.collect()
    assert alive() is None
