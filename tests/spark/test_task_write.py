"""What a task does to its process while it writes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from liftbridge_aio.spark.errors import InvalidRow
from liftbridge_aio.spark.options import WriteOptions
from liftbridge_aio.spark.row_columns import RowColumns
from liftbridge_aio.spark.task_write import TaskWrite
from liftbridge_aio.spark.write_id import TaskAttempt
from spark.log_client import LogClient

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
    attempt = TaskAttempt(query="q", batch=0, task=0, number=0, id="i")
    TaskWrite(attempt, options, RowColumns(value=0)).publish_all(batches([b"v"] * 10))
    assert gc.get_threshold() == before
    with pytest.raises(InvalidRow):
        TaskWrite(attempt, options, RowColumns(value=0)).publish_all(batches([None]))
    assert gc.get_threshold() == before
    assert [threshold[0] for threshold in during] == [50_000, 50_000]
    assert len(log.read(stream_name)) == 10
