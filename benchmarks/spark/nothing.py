"""A source and a sink for Spark that do nothing: what Spark itself costs for the same rows.

The source has the columns of the source `liftbridge`, and hands over one record batch, made once
for each process, again and again.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
)
_BATCH_ROWS: Final = 8192
_FIRST: Final = "row"
"""The only key of an offset: the number of the next row."""


class NothingDataSource(DataSource):
    """Rows from nowhere, for nobody.

    Options: `rows` in all, `size` of a value in bytes, `tasks`, `rowsPerBatch` for micro-batches.
    """

    @classmethod
    def name(cls) -> str:
        """Name for `format`."""
        return "nothing"

    def schema(self) -> str:
        """The columns of the source `liftbridge`."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        """For a batch query."""
        return _Reader(self._number("rows"), self._number("size"), self._number("tasks"))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's signature
        """For a streaming query."""
        return _StreamReader(
            *(self._number(name) for name in ("rows", "size", "tasks", "rowsPerBatch"))
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002 - Spark's signature
        """For a batch write."""
        return _Writer()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802 - Spark's signature
        """For the micro-batches of a query."""
        return _StreamWriter()

    def _number(self, option: str) -> int:
        return int(self.options[option])


class _Reader(DataSourceReader):
    def __init__(self, rows: int, size: int, tasks: int) -> None:
        self._rows, self._size, self._tasks = rows, size, tasks

    def partitions(self) -> list[InputPartition]:
        return _tasks(self._rows, self._tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _batches(partition.value, self._size)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, rows: int, size: int, tasks: int, rows_per_batch: int) -> None:
        self._rows, self._size, self._tasks = rows, size, tasks
        self._rows_per_batch = rows_per_batch

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {_FIRST: 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._rows
        return {_FIRST: min(self._rows, start[_FIRST] + most)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._rows_per_batch) if self._rows_per_batch else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Return an offset that never changes."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return _tasks(end[_FIRST] - start[_FIRST], self._tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _batches(partition.value, self._size)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept."""

    def stop(self) -> None:
        """Nothing is open."""


class _Writer(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _take(iterator)


class _StreamWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _take(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing was written."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing was written."""


def _take(batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    for _ in batches:
        pass
    return WriterCommitMessage()


def _tasks(rows: int, tasks: int) -> list[InputPartition]:
    return [
        InputPartition(rows // tasks + (number < rows % tasks))
        for number in range(min(tasks, rows))
    ]


def _batches(rows: int | None, size: int) -> Iterator[pa.RecordBatch]:
    batch = _batch(size)
    for start in range(0, rows or 0, _BATCH_ROWS):
        left = (rows or 0) - start
        yield batch if left >= _BATCH_ROWS else batch.slice(0, left)


@functools.cache
def _batch(size: int) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415 - in workers only

    micros = time.time_ns() // 1000
    columns = {
        "key": pa.nulls(_BATCH_ROWS, pa.binary()),
        "value": pa.array([bytes(size)] * _BATCH_ROWS, pa.binary()),
        "topic": pa.array(["nothing"] * _BATCH_ROWS, pa.string()),
        "partition": pa.array([0] * _BATCH_ROWS, pa.int32()),
        "offset": pa.array(range(_BATCH_ROWS), pa.int64()),
        "timestamp": pa.array([micros] * _BATCH_ROWS, pa.timestamp("us", tz="UTC")),
    }
    return pa.RecordBatch.from_pydict(columns)
