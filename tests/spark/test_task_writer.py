"""The effects of a task on its process while it writes."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from liftbridge_aio.spark.core.row_columns import RowColumns
from liftbridge_aio.spark.errors import InvalidRow
from support.loop_thread import BOUND
from support.spark.broker_thread import BrokerThread
from support.spark.log_client import LogClient

pytest.importorskip("pyarrow")

from support.spark.task_writers import batch_of, task_writer

if TYPE_CHECKING:
    import pyarrow as pa

pytestmark = pytest.mark.usefixtures("no_connections_left")


def test_the_garbage_collector_is_as_before_after_a_task(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name)
    before, during = gc.get_threshold(), []

    def batches(values: list[bytes | None]) -> Iterator[pa.RecordBatch]:
        during.append(gc.get_threshold())
        yield batch_of(values)

    task_writer(spark_broker, stream_name).publish_all(batches([b"v"] * 10))
    assert gc.get_threshold() == before
    with pytest.raises(InvalidRow):
        task_writer(spark_broker, stream_name).publish_all(batches([None]))
    assert gc.get_threshold() == before
    assert [threshold[0] for threshold in during] == [50_000, 50_000]
    assert len(log.read(stream_name)) == 10


def test_a_task_connects_while_its_first_rows_are_made(
    own_broker: BrokerThread, stream_name: str
) -> None:
    with LogClient(own_broker.address) as log, ExitStack() as stack:
        log.create(stream_name)
        is_called = stack.enter_context(own_broker.stalled("FetchMetadata"))

        def batches() -> Iterator[pa.RecordBatch]:
            deadline = time.monotonic() + BOUND
            while not is_called():
                assert time.monotonic() < deadline, "nothing is asked before there are rows"
                time.sleep(0.01)
            stack.close()
            yield batch_of([b"v"] * 10)

        task_writer(own_broker.address, stream_name).publish_all(batches())
        assert len(log.read(stream_name)) == 10


def test_a_task_asks_once_how_many_partitions_there_are(
    own_broker: BrokerThread, stream_name: str
) -> None:
    rows = batch_of([b"v"] * 10)
    with LogClient(own_broker.address) as log:
        log.create(stream_name)
        task_writer(own_broker.address, stream_name).publish_all(iter([rows]))  # connects
        asked = own_broker._broker.faults.delay("FetchMetadata", 0, times=None)
        task_writer(own_broker.address, stream_name).publish_all(iter([rows]))
        assert asked.applied == 1


def test_a_task_follows_a_stream_that_is_created_again(
    spark_broker: str, log: LogClient, stream_name: str
) -> None:
    log.create(stream_name)
    keys = [b"key-%d" % number for number in range(16)]
    rows = batch_of(keys, "key", "value")

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(4):
            yield rows
        while len(log.read(stream_name)) < 4 * len(keys):
            time.sleep(0.01)
        log.delete(stream_name)
        log.create(stream_name, partitions=8)
        until = time.monotonic() + BOUND
        while len({message.partition for message in log.read_all(stream_name)}) < 2:
            assert time.monotonic() < until
            yield rows

    writer = task_writer(spark_broker, stream_name, RowColumns(key=0, value=1))
    writer.publish_all(batches())
