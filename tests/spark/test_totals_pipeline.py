"""Totals leave once their window is over, and each event is in exactly one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from liftbridge_aio import Record
from liftbridge_aio.spark.session.query_progress import ProgressCounter, query_failed
from support.spark.log_client import LogClient
from support.spark.totals_pipeline import TotalsPlan, start_totals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def sale(shop: str, cents: int, time: str) -> Record:
    value = {"shop": shop, "cents": cents, "at": f"2026-03-02T{time}Z"}
    return Record(json.dumps(value).encode(), shop.encode())


def totals_in(log: LogClient, stream: str) -> list[tuple[str, str, int, int]]:
    found = [json.loads(message.value) for message in log.committed(stream)]
    return sorted((t["start"][11:16], t["shop"], t["sales"], t["cents"]) for t in found)


@pytest.fixture
def plan(log: LogClient, stream_name: str, checkpoint: str) -> TotalsPlan:
    log.create(f"{stream_name}-sales", partitions=2)
    log.create(f"{stream_name}-totals")
    return TotalsPlan(
        servers=log.address,
        events=f"{stream_name}-sales",
        totals=f"{stream_name}-totals",
        checkpoint=checkpoint,
    )


@pytest.fixture
def until_read(spark: SparkSession, plan: TotalsPlan) -> Callable[[], ProgressCounter]:
    """Runs the pipeline until it has read all there is, and stops it."""

    def run() -> ProgressCounter:
        counter = ProgressCounter()
        query = start_totals(spark, plan, "100 milliseconds")
        try:
            query.processAllAvailable()
            counter.update(query)
        finally:
            query.stop()
        return counter

    return run


def test_each_event_is_in_one_total_over_a_restart_and_late_ones_counted(
    log: LogClient,
    plan: TotalsPlan,
    until_read: Callable[[], ProgressCounter],
    forget_last_commit: Callable[[], int],
) -> None:
    sales = [sale("Accra", 100, "09:01:00"), sale("Accra", 20, "09:04:59.999")]
    log.publish(plan.events, [*sales, sale("Bergen", 5, "09:02:00"), sale("Accra", 7, "09:05:00")])
    assert until_read().total.rows_read == 4
    assert totals_in(log, plan.totals) == []  # a sale of that time may still come
    log.publish(plan.events, [sale("Bergen", 3, "09:03:30"), sale("Bergen", 1, "09:06:00")])
    assert until_read().total.rows_late == 0
    first = [("09:00", "Accra", 2, 120), ("09:00", "Bergen", 2, 8)]
    assert totals_in(log, plan.totals) == first
    forget_last_commit()
    log.publish(plan.events, [sale("", 0, "23:00:00"), sale("Accra", 50, "09:04:00")])
    assert until_read().total.rows_late == 1
    assert totals_in(log, plan.totals) == [
        *first,
        ("09:05", "Accra", 1, 7),
        ("09:05", "Bergen", 1, 1),
    ]


class Reported:
    """A query as far as its progress goes."""

    def __init__(self, *reports: tuple[int, int]) -> None:
        self.recentProgress = [
            {"batchId": batch, "numInputRows": rows, "stateOperators": [], "sources": []}
            for batch, rows in reports
        ]

    def exception(self) -> None:
        return None


def test_progress_counts_each_batch_once_however_often_it_is_reported() -> None:
    counter = ProgressCounter()
    reports: Any = [Reported((0, 5), (1, 0)), Reported((0, 5), (1, 0), (1, 3), (2, 0))]
    for query in reports:
        counter.update(query)
    assert (counter.total.batches, counter.total.rows_read) == (2, 8)


def test_a_failure_is_told_in_the_line_that_says_why() -> None:
    def told(text: str) -> str:
        return str(query_failed(ValueError(text)))

    def trace(raised: str) -> str:
        return (
            f"Traceback (most recent call last):\n  File x\n    f()\n{raised}\nnote\n\nDuring …\n\n"
        )

    lost = "room.DataLoss: [LIFTBRIDGE_DATA_LOSS] a/0: gone"
    assert told(f"[STREAM_FAILED] query: {trace('E: 1')}{trace(lost)}{trace('E: 2')}") == lost[15:]
    assert told(f"[PYTHON] Failed: {trace('E: 1')}{trace('E: 2')} SQLSTATE: 38000") == "E: 2"
    assert told("[OTHER] why\n  at x") == "[OTHER] why"
