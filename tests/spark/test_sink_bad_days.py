"""Bad days of the sink: no row is lost, and what is there twice is counted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import liftbridge_aio
from liftbridge_aio.spark.write_report import WriteReport, write_report
from spark.broker_thread import BrokerThread
from spark.conftest import KIND
from spark.halting_query import ROWS, SMALL_BATCHES, Halt, row_number, start_query
from spark.log_client import LogClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOUND: Final = 100.0


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, in which rows reach the sink a few at a time."""
    before = {name: str(spark.conf.get(name)) for name in SMALL_BATCHES}
    for name, value in SMALL_BATCHES.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


def wait_for(condition: Callable[[], bool]) -> None:
    """Block until it holds: what is waited for happens in other processes."""
    deadline = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < deadline, "the condition that the test waits for never held"
        time.sleep(0.05)


def java_options(spark: SparkSession) -> str:
    """Return what makes the session start fast, for another one; two must not write one archive."""
    given = str(spark.conf.get("spark.driver.extraJavaOptions", ""))
    return " ".join(word for word in given.split() if "ArchiveClassesAtExit" not in word)


def check_all_rows(log: LogClient, stream: str) -> WriteReport:
    """Check that every row is there, and that each repeat was counted; return what was counted."""
    messages = log.read_all(stream)
    assert {row_number(message.value) for message in messages} == set(range(ROWS))
    report = log.run(lambda client: write_report(client, stream))
    assert (report.rows, report.gaps, report.unmarked) == (ROWS, 0, 0)
    assert report.repeats == len(messages) - ROWS
    return report


OWN_EXECUTORS: Final = pytest.mark.skipif(
    KIND not in {"cluster", "standalone"}, reason="the executor is the driver here"
)


@pytest.mark.parametrize("halt", ["raise", "kill", pytest.param("lose", marks=OWN_EXECUTORS)])
def test_a_task_that_fails_after_it_published_is_repeated_and_its_repeats_are_counted(
    small_batches: SparkSession,
    spark_broker: str,
    log: LogClient,
    stream_name: str,
    tmp_path: Path,
    halt: Halt,
) -> None:
    log.create(stream_name)
    query = start_query(small_batches, tmp_path, spark_broker, stream_name, halt=halt)
    try:
        wait_for(lambda: bool(log.read(stream_name)))
        (tmp_path / "go").touch()
        query.awaitTermination()
    finally:
        query.stop()
    report = check_all_rows(log, stream_name)
    assert report.repeats > 0
    assert [batch.attempts for batch in report.batches] == [2]


@pytest.mark.timeout(240)  # it starts a Spark of its own
def test_a_driver_killed_in_the_middle_of_a_batch_loses_no_row(
    small_batches: SparkSession,
    spark_broker: str,
    log: LogClient,
    stream_name: str,
    tmp_path: Path,
) -> None:
    log.create(stream_name)
    tests = Path(__file__).parent.parent
    root = Path(liftbridge_aio.__file__).parent.parent
    program = tests / "spark" / "killed_driver.py"
    options = java_options(small_batches)
    driver = subprocess.Popen(
        [sys.executable, program, tmp_path, spark_broker, stream_name, options],
        env={**os.environ, "PYTHONPATH": f"{tests}{os.pathsep}{root}"},
        start_new_session=True,
    )
    try:
        wait_for(lambda: bool(log.read(stream_name)) or driver.poll() is not None)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)  # the driver's Java process too
        driver.wait(BOUND)
    published = len(log.read(stream_name))
    assert 0 < published < ROWS
    query = start_query(small_batches, tmp_path, spark_broker, stream_name, halt="never")
    try:
        query.awaitTermination()
    finally:
        query.stop()
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


def test_a_server_that_is_away_for_too_long_fails_the_query_whose_restart_loses_no_row(
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
            # The second attempt finds no server at all.
            text = rf"\[LIFTBRIDGE_UNREACHABLE\].*no server at {servers}.*publishTimeout"
            with pytest.raises(StreamingQueryException, match=text):
                query.awaitTermination()
        finally:
            query.stop()
            own_broker.start()
        query = start_query(small_batches, tmp_path, servers, stream_name, halt="never")
        try:
            query.awaitTermination()
        finally:
            query.stop()
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
