"""Bad days of the sink: no row is lost, and what is there twice is counted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.spark.broker_thread import BrokerThread
from support.spark.halting_query import (
    ROWS,
    Halt,
    check_all_rows,
    finish,
    finish_halted,
    killed_driver,
    start_query,
    wait_for,
)
from support.spark.log_client import LogClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("halt", ["raise", "kill"])
def test_a_task_that_fails_after_publishing_is_retried_and_repeats_counted(
    small_batches: SparkSession,
    spark_broker: str,
    log: LogClient,
    stream_name: str,
    tmp_path: Path,
    halt: Halt,
) -> None:
    log.create(stream_name)
    query = start_query(small_batches, tmp_path, spark_broker, stream_name, halt=halt)
    finish_halted(query, tmp_path, lambda: log.read(stream_name))
    report = check_all_rows(log, stream_name)
    assert report.repeats > 0
    assert [batch.attempts for batch in report.batches] == [2]


@pytest.mark.timeout(240)  # it starts Spark twice
def test_a_driver_killed_during_a_batch_of_its_second_session_loses_no_row(
    small_batches: SparkSession,
    spark_broker: str,
    log: LogClient,
    stream_name: str,
    tmp_path: Path,
) -> None:
    log.create(stream_name)
    with killed_driver(
        "killed_driver.py", tmp_path, spark_broker, stream_name, lambda: log.read(stream_name)
    ) as said:
        [first, second] = map(int, said.splitlines())  # and no traceback
        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)
        os.kill(second, 0)
    published = len(log.read(stream_name))
    assert 0 < published < ROWS
    finish(start_query(small_batches, tmp_path, spark_broker, stream_name, halt="never"))
    report = check_all_rows(log, stream_name)
    # The first run's tasks may have published a little more before they noticed.
    assert report.repeats >= published
    assert [batch.attempts for batch in report.batches] == [2]


def test_a_server_that_is_away_for_a_while_in_the_middle_is_waited_for(
    small_batches: SparkSession, own_broker: BrokerThread, stream_name: str, tmp_path: Path
) -> None:
    with LogClient(own_broker.address) as log:
        log.create(stream_name)
        query = start_query(small_batches, tmp_path, own_broker.address, stream_name, halt="wait")
        try:
            wait_for(lambda: bool(log.read(stream_name)))
            own_broker.stop()
            (tmp_path / "go").touch()
            own_broker.start()
            query.awaitTermination()
        finally:
            query.stop()
        report = check_all_rows(log, stream_name)
        assert [batch.attempts for batch in report.batches] == [1]


def test_a_long_outage_fails_the_query_whose_restart_loses_no_row(
    small_batches: SparkSession, own_broker: BrokerThread, stream_name: str, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415

    servers = own_broker.address
    with LogClient(servers) as log:
        log.create(stream_name)
        query = start_query(
            small_batches, tmp_path, servers, stream_name, halt="wait", publishTimeout="1"
        )
        try:
            wait_for(lambda: bool(log.read(stream_name)))
            own_broker.stop()
            (tmp_path / "go").touch()
            # The second attempt can reach no server.
            text = rf"\[LIFTBRIDGE_UNREACHABLE\].*no server of {servers}.*publishTimeout"
            with pytest.raises(StreamingQueryException, match=text):
                query.awaitTermination()
        finally:
            query.stop()
            own_broker.start()
        finish(start_query(small_batches, tmp_path, servers, stream_name, halt="never"))
        assert check_all_rows(log, stream_name).repeats > 0


def test_a_server_away_at_the_start_is_named(
    spark: SparkSession, own_broker: BrokerThread, stream_name: str
) -> None:
    from pyspark.errors import PythonException  # noqa: PLC0415

    own_broker.stop()
    frame = spark.range(0, 1, numPartitions=1).selectExpr("'v' as value")
    writer = frame.write.format("liftbridge").mode("append").option("stream", stream_name)
    writer = writer.option("servers", own_broker.address).option("publishTimeout", "1")
    with pytest.raises(
        PythonException,
        match=rf"\[LIFTBRIDGE_UNREACHABLE\].*{own_broker.address}.*{stream_name}",
    ):
        writer.save()
    own_broker.start()
    with LogClient(own_broker.address) as log:
        log.create(stream_name)
        writer.option("publishTimeout", "30").save()
        assert [message.value for message in log.read(stream_name)] == [b"v"]
