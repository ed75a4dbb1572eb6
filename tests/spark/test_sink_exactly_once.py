"""`delivery=exactly_once` on a real Spark that has bad days: each row is committed once.

The same happens to a sink that delivers at least once, or is in the log for those who do not read
committed: there rows are repeated.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.spark.core.decision import Decision
from spark.conftest import EVERY_SERVER
from spark.test_sink_stream import run, source
from support.spark.broker_thread import BrokerThread
from support.spark.halting_query import (
    ROWS,
    Halt,
    finish,
    finish_halted,
    killed_driver,
    row_number,
    start_query,
)
from support.spark.kill_points import KILL_POINTS, stall_at
from support.spark.log_client import LogClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXACTLY_ONCE = "exactly_once"
EVERY_KILL = "LIFTBRIDGE_BY_HAND" in os.environ
"""Kills the driver at each point, and not only where most goes wrong: `test_exactly_once` kills
the process that commits at each of them anyway."""


def check_rows(log: LogClient, stream: str, *, repeated: bool = True) -> None:
    """Check that each row is committed once; in the log some are repeated."""
    committed = Counter(row_number(message.value) for message in log.committed(stream))
    assert committed == Counter(range(ROWS))
    stored = len(log.read_all(stream)) - len(log.partitions(stream))  # one ack each
    assert (stored > ROWS) == repeated


@EVERY_SERVER
def test_a_batch_that_runs_again_is_committed_once(
    spark: SparkSession,
    spark_broker: str,
    log: LogClient,
    stream_name: str,
    checkpoint: str,
    forget_last_commit: Callable[[], int],
) -> None:
    orders, copies = log.create(stream_name), log.create(f"{stream_name}-copies", 2)
    naive = log.create(f"{stream_name}-naive", 2)
    log.publish(orders, [b"%d" % number for number in range(30)])
    frame = source(spark, spark_broker, orders, maxOffsetsPerTrigger="15")
    # In another order each time, so that nothing but the commit tells a row from its repeat.
    shuffled = frame.repartition(2).selectExpr("value")
    run(shuffled, spark_broker, copies, checkpoint, delivery=EXACTLY_ONCE)
    run(shuffled, spark_broker, naive, f"{checkpoint}-naive")
    forget_last_commit()
    Path(f"{checkpoint}-naive", "commits", "1").unlink()
    Path(f"{checkpoint}-naive", "commits", ".1.crc").unlink(missing_ok=True)
    log.publish(orders, [b"%d" % number for number in range(30, 40)])
    run(shuffled, spark_broker, copies, checkpoint, delivery=EXACTLY_ONCE)
    run(shuffled, spark_broker, naive, f"{checkpoint}-naive")
    once = Counter(int(message.value) for message in log.committed(copies))
    assert once == Counter(range(40))
    twice = Counter(int(message.value) for message in log.committed(naive))
    assert twice == once + Counter(range(15, 30))
    reader = spark.read.format("liftbridge").option("servers", spark_broker)
    assert {int(row.value) for row in reader.load(copies).collect()} == set(range(40))
    everything = reader.option("isolationLevel", "read_uncommitted").load(copies)
    assert everything.count() > 55  # acks too


def test_a_digest_is_that_of_its_rows_in_any_partitioning(
    small_batches: SparkSession, spark_broker: str, log: LogClient, stream_name: str
) -> None:
    orders, decisions = log.create(stream_name, 2), f"{stream_name}-decisions"
    rows = small_batches.range(40).selectExpr(
        "cast(id % 3 as string) as key",
        "cast(id as string) as value",
        "if(id % 2 = 0, map('h', cast(cast(id as string) as binary)), null) as headers",
    )
    frames = {
        "a": rows,
        "b": rows.orderBy("value").repartition(3),
        "c": rows.where("value < 39").union(rows.where("value = 38")),
    }
    for name, frame in frames.items():
        (
            frame.write.format("liftbridge")
            .mode("append")
            .option("servers", spark_broker)
            .option("delivery", EXACTLY_ONCE)
            .option("decisionStream", decisions)
            .option("writeId", f"{stream_name}-{name}")
            .save(orders)
        )
    found = []
    for message in log.read(decisions):
        with suppress(MalformedData):  # a claim
            found.append(Decision.decode(message.value))
    assert [each.row_count for each in found] == [40, 40, 40]
    assert found[0].digest == found[1].digest != found[2].digest


@pytest.mark.parametrize("halt", ["raise", "kill"])
def test_a_task_that_fails_after_publishing_commits_nothing_of_it(
    small_batches: SparkSession,
    spark_broker: str,
    log: LogClient,
    stream_name: str,
    tmp_path: Path,
    halt: Halt,
) -> None:
    log.create(stream_name, 2)
    query = start_query(
        small_batches, tmp_path, spark_broker, stream_name, halt=halt, delivery=EXACTLY_ONCE
    )
    finish_halted(query, tmp_path, lambda: log.read(stream_name))
    check_rows(log, stream_name)


@pytest.mark.parametrize("point", KILL_POINTS if EVERY_KILL else ["between two partitions"])
def test_a_driver_killed_while_it_commits_a_batch(
    small_batches: SparkSession,
    own_broker: BrokerThread,
    stream_name: str,
    tmp_path: Path,
    point: str,
) -> None:
    servers = own_broker.address
    with LogClient(servers) as log:
        log.create(stream_name, 2)
        with (
            own_broker.stalled(**stall_at(point, stream_name, ROWS // 2)) as is_stalled,
            killed_driver("committing_driver.py", tmp_path, servers, stream_name, is_stalled),
        ):
            pass
        query = start_query(
            small_batches, tmp_path, servers, stream_name, halt="never", delivery=EXACTLY_ONCE
        )
        finish(query)
        check_rows(log, stream_name)
