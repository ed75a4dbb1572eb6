"""The effects of a task on its process while it writes."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from liftbridge_aio.spark.connection import close_connections
from liftbridge_aio.spark.core.options import WriteOptions
from liftbridge_aio.spark.core.row_columns import RowColumns
from liftbridge_aio.spark.core.write_id import TaskAttempt
from liftbridge_aio.spark.errors import InvalidRow
from liftbridge_aio.spark.write.task_writer import TaskWriter
from support.loop_thread import BOUND
from support.spark.broker_thread import BrokerThread
from support.spark.log_client import LogClient

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = pytest.importorskip("pyarrow")


def test_the_garbage_collector_is_as_before_after_a_task(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name)
    before, during = gc.get_threshold(), []

    def batches(values: list[bytes | None]) -> Iterator[pa.RecordBatch]:
        during.append(gc.get_threshold())
        yield pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})

    options = WriteOptions.parse({"servers": spark_broker, "stream": stream_name}, streaming=False)
    attempt = TaskAttempt(query=UUID(int=5), batch=0, task=0, number=0, id=b"attempt1")
    TaskWriter(attempt, options, RowColumns(value=0)).publish_all(batches([b"v"] * 10))
    assert gc.get_threshold() == before
    with pytest.raises(InvalidRow):
        TaskWriter(attempt, options, RowColumns(value=0)).publish_all(batches([None]))
    assert gc.get_threshold() == before
    assert [threshold[0] for threshold in during] == [50_000, 50_000]
    assert len(log.read(stream_name)) == 10


def test_a_task_connects_while_its_first_rows_are_made(
    own_broker: BrokerThread, stream_name: str
) -> None:
    given = {"servers": own_broker.address, "stream": stream_name}
    options = WriteOptions.parse(given, streaming=False)
    attempt = TaskAttempt(query=UUID(int=5), batch=0, task=0, number=0, id=b"attempt1")
    with LogClient(own_broker.address) as log, ExitStack() as stack:
        log.create(stream_name)
        is_called = stack.enter_context(own_broker.stalled("FetchMetadata"))

        def batches() -> Iterator[pa.RecordBatch]:
            deadline = time.monotonic() + BOUND
            while not is_called():
                assert time.monotonic() < deadline, "nothing is asked before there are rows"
                time.sleep(0.01)
            stack.close()
            yield pa.RecordBatch.from_pydict({"value": pa.array([b"v"] * 10, pa.binary())})

        TaskWriter(attempt, options, RowColumns(value=0)).publish_all(batches())
        assert len(log.read(stream_name)) == 10
    close_connections()


def test_a_task_asks_once_how_many_partitions_there_are(
    own_broker: BrokerThread, stream_name: str
) -> None:
    given = {"servers": own_broker.address, "stream": stream_name}
    options = WriteOptions.parse(given, streaming=False)
    attempt = TaskAttempt(query=UUID(int=5), batch=0, task=0, number=0, id=b"attempt1")
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"v"] * 10, pa.binary())})
    with LogClient(own_broker.address) as log:
        log.create(stream_name)
        TaskWriter(attempt, options, RowColumns(value=0)).publish_all(iter([rows]))  # connects
        asked = own_broker._broker.faults.delay("FetchMetadata", 0, times=None)
        TaskWriter(attempt, options, RowColumns(value=0)).publish_all(iter([rows]))
        assert asked.applied == 1
    close_connections()


def test_a_task_follows_a_stream_that_is_created_again(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name)
    keys = [b"key-%d" % number for number in range(16)]
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(keys, pa.binary())}

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(4):
            yield pa.RecordBatch.from_pydict(columns)
        while len(log.read(stream_name)) < 4 * len(keys):
            time.sleep(0.01)
        log.delete(stream_name)
        log.create(stream_name, partitions=8)
        until = time.monotonic() + BOUND
        while len({message.partition for message in log.read_all(stream_name)}) < 2:
            assert time.monotonic() < until
            yield pa.RecordBatch.from_pydict(columns)

    options = WriteOptions.parse({"servers": spark_broker, "stream": stream_name}, streaming=False)
    attempt = TaskAttempt(query=UUID(int=5), batch=0, task=0, number=0, id=b"attempt1")
    TaskWriter(attempt, options, RowColumns(key=0, value=1)).publish_all(batches())
