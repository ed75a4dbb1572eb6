"""What a sink tells the driver's log, and what it notes on the error of a task."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructType

from liftbridge_aio.spark.batch_publisher import PartitionWritten
from liftbridge_aio.spark.connection import close_connections
from liftbridge_aio.spark.errors import InvalidColumns, InvalidRow, StreamMissing
from liftbridge_aio.spark.options import WriteOptions
from liftbridge_aio.spark.row_columns import RowColumns
from liftbridge_aio.spark.sink import BatchSink, StreamSink, TaskWritten
from liftbridge_aio.spark.task_write import TaskWrite
from liftbridge_aio.spark.write_id import TaskAttempt
from spark.broker_thread import BrokerThread
from spark.log_client import LogClient

SCHEMA = StructType().add("value", StringType())


def options(servers: str, **more: str) -> WriteOptions:
    return WriteOptions.parse({"servers": servers, "stream": "totals", **more}, streaming=True)


def attempt(task: int = 0, *, number: int = 0) -> TaskAttempt:
    return TaskAttempt("0ffee", 7, task, number, "some-id")


def written(task: int, rows: int, *, number: int = 0, sent_again: int = 0) -> TaskWritten:
    part = PartitionWritten("totals", 1, 100, 100 + rows - 1, rows)
    return TaskWritten(attempt(task, number=number), (part,) if rows else (), sent_again)


def a_sink() -> StreamSink:
    return StreamSink(options("127.0.0.1:1"), SCHEMA, overwrite=False)


def test_a_batch_without_trouble_is_told_quietly(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "liftbridge_aio.spark"):
        a_sink().commit([written(0, 30), written(1, 12), written(2, 0)], 7)
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert record.getMessage() == "batch 7 of query 0ffee: 42 rows written by 3 tasks"


def test_a_batch_without_tasks_is_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "liftbridge_aio.spark"):
        a_sink().commit([], 7)
    assert caplog.messages == ["batch 7: 0 rows written by 0 tasks"]


def test_tasks_that_may_have_stored_rows_twice_are_told_with_how_many_at_most(
    caplog: pytest.LogCaptureFixture,
) -> None:
    a_sink().commit([written(0, 30), written(1, 12, number=2, sent_again=5)], 7)
    (message,) = caplog.messages
    assert message == (
        "batch 7 of query 0ffee: task 1 was tried 2 times before and sent 5 rows again; besides its"
        " 12 rows up to 29 repeats of them are stored in totals/1"
    )


def test_an_aborted_batch_says_what_stays(caplog: pytest.LogCaptureFixture) -> None:
    a_sink().abort([written(0, 30), None], 7)
    (message,) = caplog.messages
    assert message.startswith(
        "batch 7 of query 0ffee failed: 30 rows of the tasks that were done are stored in"
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
    close_connections()


def batch(*values: str | None) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.string())})


def test_a_task_that_fails_after_it_published_says_how_many_rows_stay(log: LogClient) -> None:
    log.create("totals")
    task = TaskWrite(attempt(number=1), options(log.address), RowColumns(value=0))

    def rows_then_failure() -> Iterator[pa.RecordBatch]:
        yield batch("a", "b", "c")
        raise OSError("the shuffle is gone")

    with pytest.raises(OSError, match="the shuffle is gone") as failed:
        task.publish_all(rows_then_failure())
    (note,) = failed.value.__notes__
    assert note == (
        "[LIFTBRIDGE_ROWS_STORED] task 0 of batch 7 of query 0ffee, attempt 1: 3 rows are stored,"
        " 0 more may be; running the task again repeats them\n"
        "  stream='totals', partition=0, offsets 0 to 2: 3 rows"
    )
    assert [message.value for message in log.read("totals")] == [b"a", b"b", b"c"]


def test_rows_are_numbered_over_all_batches_of_the_task(log: LogClient) -> None:
    log.create("totals")
    task = TaskWrite(attempt(), options(log.address), RowColumns(value=0))
    with pytest.raises(InvalidRow, match="row 3 of the task has no value"):
        task.publish_all(iter([batch("a", "b"), batch(), batch("c", None)]))
    # Nothing of a batch is published in which a row is bad.
    assert [message.value for message in log.read("totals")] == [b"a", b"b"]


def test_a_missing_stream_is_named(log: LogClient) -> None:
    quick = options(log.address, **{"liftbridge.not_found_timeout": "0.3"})
    with pytest.raises(StreamMissing, match=r"no such stream \[stream='totals'\]: create it"):
        TaskWrite(attempt(), quick, RowColumns(value=0)).publish_all(iter([batch("a")]))


def test_what_is_wrong_with_the_columns_names_the_stream() -> None:
    numbers = StructType().add("value", LongType())
    for sink in (StreamSink, BatchSink):
        with pytest.raises(InvalidColumns, match=r"value is bigint.*\[stream='totals'\]"):
            sink(options("127.0.0.1:1"), numbers, overwrite=False)
