"""The reports of a sink in the driver's log, and its notes on the error of a task."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import LongType, StringType, StructType

from liftbridge_aio.spark.core.options import WriteOptions
from liftbridge_aio.spark.core.row_columns import RowColumns
from liftbridge_aio.spark.core.write_id import TaskAttempt
from liftbridge_aio.spark.errors import (
    BatchUnknown,
    InvalidColumns,
    InvalidRow,
    StreamMissing,
    WriteFailed,
)
from liftbridge_aio.spark.write.batch_publisher import PartitionWritten
from liftbridge_aio.spark.write.sink import BatchSink, StreamSink, TaskCommit
from liftbridge_aio.spark.write.task_writer import TaskWriter
from support.spark.broker_thread import BrokerThread
from support.spark.log_client import LogClient

pytestmark = pytest.mark.usefixtures("no_connections_left")

QUERY = UUID("0ffee000-1111-4222-8333-444444444444")
SCHEMA = StructType().add("value", StringType())


def options(servers: str, **more: str) -> WriteOptions:
    return WriteOptions.parse({"servers": servers, "stream": "totals", **more}, streaming=True)


def attempt(task: int = 0, *, number: int = 0) -> TaskAttempt:
    return TaskAttempt(QUERY, 7, task, number, b"attempt1")


def written(task: int, rows: int, *, number: int = 0, resent: int = 0) -> TaskCommit:
    part = PartitionWritten("totals", 1, 100, 100 + rows - 1, rows)
    return TaskCommit(attempt(task, number=number), (part,) if rows else (), resent)


def a_sink() -> StreamSink:
    return StreamSink(options("127.0.0.1:1"), SCHEMA, overwrite=False)


def test_a_batch_without_trouble_is_told_quietly(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "liftbridge_aio.spark"):
        a_sink().commit([written(0, 30), written(1, 12), written(2, 0)], 7)
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert record.getMessage() == f"batch 7 of query {QUERY}: 42 rows written by 3 tasks"


def test_a_batch_without_tasks_is_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "liftbridge_aio.spark"):
        a_sink().commit([], 7)
    assert caplog.messages == ["batch 7: 0 rows written by 0 tasks"]


def test_tasks_that_may_have_stored_rows_twice_are_logged_with_their_bound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    a_sink().commit([written(0, 30), written(1, 12, number=2, resent=5)], 7)
    (message,) = caplog.messages
    assert message == (
        f"batch 7 of query {QUERY}: task 1 had 2 earlier attempts since its stage last started,"
        " and sent 5 rows again; besides its 12 rows, up to 29 repeats may be stored since then in"
        " totals/1"
    )


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"sql.streaming.queryId": str(QUERY)},
        {"streaming.sql.batchId": "7"},
        {"sql.streaming.queryId": "no id", "streaming.sql.batchId": "7"},
        {"sql.streaming.queryId": str(QUERY), "streaming.sql.batchId": ""},
        {"sql.streaming.queryId": str(QUERY), "streaming.sql.batchId": "-1"},
    ],
)
def test_a_task_that_is_not_told_its_query_and_batch_publishes_nothing(
    properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    context = TaskContext(
        partitionId=0, attemptNumber=0, stageId=0, taskAttemptId=0, localProperties=properties
    )
    assert TaskContext.get() is context
    with pytest.raises(BatchUnknown, match=r"sql\.streaming\.queryId.*stream='totals'"):
        a_sink().write(iter([batch("a")]))


def test_an_aborted_batch_says_what_stays(caplog: pytest.LogCaptureFixture) -> None:
    a_sink().abort([written(0, 30), None], 7)
    (message,) = caplog.messages
    assert message.startswith(
        f"batch 7 of query {QUERY} failed: 30 rows of tasks that succeeded are stored in"
        " totals/1 from 100 to 129"
    )


def test_writers_and_their_messages_pickle() -> None:
    assert pickle.loads(pickle.dumps(written(3, 9))) == written(3, 9)  # noqa: S301 - our own
    for sink in (a_sink(), BatchSink(options("127.0.0.1:1"), SCHEMA, overwrite=False)):
        copied = pickle.loads(pickle.dumps(sink))  # noqa: S301 - our own
        assert copied.__dict__ == sink.__dict__


@pytest.fixture
def log(own_broker: BrokerThread) -> Iterator[LogClient]:
    with LogClient(own_broker.address) as log:
        yield log


def batch(*values: str | None) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.string())})


def test_a_task_that_fails_after_it_published_says_how_many_rows_stay(log: LogClient) -> None:
    log.create("totals")
    task = TaskWriter(attempt(number=1), options(log.address), RowColumns(value=0))

    def rows_then_failure() -> Iterator[pa.RecordBatch]:
        yield batch("a", "b", "c")
        raise OSError("the shuffle is gone")

    with pytest.raises(OSError, match="the shuffle is gone") as failed:
        task.publish_all(rows_then_failure())
    (note,) = failed.value.__notes__
    assert note == (
        f"[LIFTBRIDGE_ROWS_STORED] task 0 of batch 7 of query {QUERY}, attempt 1: 3 rows are"
        " stored, 0 more may be; running the task again repeats them\n"
        "  stream='totals', partition=0, offsets 0 to 2: 3 rows"
    )
    assert [message.value for message in log.read("totals")] == [b"a", b"b", b"c"]


def test_rows_are_numbered_over_all_batches_of_the_task(log: LogClient) -> None:
    log.create("totals")
    task = TaskWriter(attempt(), options(log.address), RowColumns(value=0))
    with pytest.raises(InvalidRow, match="row 3 of the task has no value"):
        task.publish_all(iter([batch("a", "b"), batch(), batch("c", None)]))
    # Nothing of a batch is published in which a row is bad.
    assert [message.value for message in log.read("totals")] == [b"a", b"b"]


@pytest.mark.parametrize("sooner", ["liftbridge.not_found_timeout", "publishTimeout"])
def test_a_missing_stream_is_named(log: LogClient, sooner: str) -> None:
    quick = options(log.address, **{sooner: "0.3"})
    with pytest.raises(
        StreamMissing, match=r"the stream does not exist \[stream='totals'\]: create it"
    ) as caught:
        TaskWriter(attempt(), quick, RowColumns(value=0)).publish_all(iter([batch("a")]))
    assert not hasattr(caught.value, "__notes__")  # nothing is stored


def test_any_failure_of_a_task_has_a_code(own_broker: BrokerThread, log: LogClient) -> None:
    log.create("totals")
    own_broker._broker.faults.fail("FetchMetadata", times=None, code="PERMISSION_DENIED")
    with pytest.raises(WriteFailed, match=r"task 0 of batch 7 .*failed.*stream='totals'"):
        TaskWriter(attempt(), options(log.address), RowColumns(value=0)).publish_all(
            iter([batch("a")])
        )


def test_what_is_wrong_with_the_columns_names_the_stream() -> None:
    numbers = StructType().add("value", LongType())
    for sink in (StreamSink, BatchSink):
        with pytest.raises(InvalidColumns, match=r"value is bigint.*\[stream='totals'\]"):
            sink(options("127.0.0.1:1"), numbers, overwrite=False)
