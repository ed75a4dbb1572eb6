"""The number of reports, and the time, that depose a leader."""

from __future__ import annotations

import gc
import weakref
from typing import Final

import pytest

from liftbridge_aio.broker.cluster.failover import (
    FailoverReports,
    partition_quorum,
)

TIMEOUT: Final = 100


class Led:
    """Something with a leader."""


@pytest.mark.parametrize(("in_sync", "needed"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_more_than_half_of_the_followers_in_sync_depose_a_leader(in_sync: int, needed: int) -> None:
    reports: FailoverReports[Led] = FailoverReports(TIMEOUT)
    partition = Led()
    answers = [reports.add(partition, str(n), partition_quorum(in_sync), 0) for n in range(needed)]
    assert answers == [False] * (needed - 1) + [True]


def test_a_witness_counts_once() -> None:
    reports: FailoverReports[Led] = FailoverReports(TIMEOUT)
    led = Led()
    assert [reports.add(led, "a", 1, 0) for _ in range(3)] == [False] * 3
    assert reports.add(led, "b", 1, 0)


def test_each_report_extends_the_deadline_of_the_others() -> None:
    reports: FailoverReports[Led] = FailoverReports(TIMEOUT)
    led = Led()
    assert not reports.add(led, "a", 2, 0)
    assert not reports.add(led, "b", 2, 99)
    assert reports.add(led, "c", 2, 198)


def test_reports_are_counted_per_leader_until_all_are_dropped() -> None:
    reports: FailoverReports[Led] = FailoverReports(TIMEOUT)
    one, other = Led(), Led()
    assert not reports.add(one, "a", 1, 0)
    assert not reports.add(other, "b", 1, 0)
    reports.clear()
    assert not reports.add(one, "b", 1, 0)


def test_reports_do_not_keep_their_target_alive() -> None:
    reports: FailoverReports[Led] = FailoverReports(TIMEOUT)
    led = Led()
    reports.add(led, "a", 0, 0)
    alive = weakref.ref(led)
    del led
    gc.collect()
    assert alive() is None
