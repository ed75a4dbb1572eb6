"""An executor that is lost in the middle of a query, where executors are processes of their own.

`nox -s spark_matrix` runs these on clusters; on one machine an executor is ended with kill -9.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark.conftest import KIND
from support.spark.halting_query import (
    ROWS,
    check_all_rows,
    finish_halted,
    halting,
    row_number,
    start_query,
    values,
)
from support.spark.log_client import LogClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(
    KIND not in {"cluster", "standalone"}, reason="the executor is the driver here"
)


def check_lost(folder: Path) -> None:
    """Check that a Java process was ended."""
    process, program = (folder / "ended").read_text().split()
    assert program == "java"
    with pytest.raises(ProcessLookupError):
        os.kill(int(process), 0)


def test_a_batch_query_that_loses_an_executor_has_each_row_once(
    small_batches: SparkSession, log: LogClient, stream_name: str, tmp_path: Path
) -> None:
    log.create(stream_name, partitions=2)
    for partition in (0, 1):
        log.publish(stream_name, map(str.encode, values()), partition=partition)
    (tmp_path / "go").touch()
    read = small_batches.read.format("liftbridge").option("servers", log.address)
    frame = read.option("stream", stream_name).load().select("partition", "offset")
    halted = frame.mapInArrow(halting(tmp_path, "lose"), "partition int, offset bigint")
    found = sorted((row.partition, row.offset) for row in halted.collect())
    check_lost(tmp_path)
    assert found == [(partition, offset) for partition in (0, 1) for offset in range(ROWS)]


def test_a_query_that_loses_an_executor_loses_no_row_and_counts_repeats(
    small_batches: SparkSession, log: LogClient, stream_name: str, tmp_path: Path
) -> None:
    source = log.create(f"{stream_name}-in")
    log.publish(source, map(str.encode, values()))
    target = log.create(f"{stream_name}-out")
    query = start_query(small_batches, tmp_path, log.address, target, halt="lose", source=source)
    finish_halted(query, tmp_path, lambda: log.read(target))
    check_lost(tmp_path)
    report = check_all_rows(log, target)
    assert report.repeats > 0
    assert [batch.attempts for batch in report.batches] == [2]


def test_a_batch_whose_executor_is_lost_is_committed_once(
    small_batches: SparkSession, log: LogClient, stream_name: str, tmp_path: Path
) -> None:
    source = log.create(f"{stream_name}-in")
    log.publish(source, map(str.encode, values()))
    target = log.create(f"{stream_name}-out")
    query = start_query(
        small_batches,
        tmp_path,
        log.address,
        target,
        halt="lose",
        source=source,
        delivery="exactly_once",
    )
    finish_halted(query, tmp_path, lambda: log.read(target))
    check_lost(tmp_path)
    committed = sorted(row_number(message.value) for message in log.committed(target))
    assert committed == list(range(ROWS))
    assert len(log.read(target)) > ROWS + 1  # those of the lost attempt, and one ack
