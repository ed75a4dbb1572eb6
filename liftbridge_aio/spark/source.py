"""The data source `liftbridge`: what Spark calls, and no more.

Spark pickles all of it to and fro between the driver, the processes in which it plans, and those
of the executors. So nothing here holds a connection, and what runs on executors only is imported
there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from .batch_planning import plan_batch
from .driver import ask
from .errors import InvalidColumns
from .first_batch import end_of_first_batch, start_of_batch
from .offsets import OffsetRange, Offsets
from .options import ExtraColumns, ReadOptions, WriteOptions
from .range_reader import ReadTask, read_range
from .schema import spark_schema, spark_types
from .splitting import split
from .stream_planning import Limits, initial_position, newest_position, next_step, planned_ranges

if TYPE_CHECKING:
    import pyarrow as pa


class LiftbridgeDataSource(DataSource):
    """Streams of Liftbridge as DataFrames, to read and to write; see the room's README."""

    @classmethod
    def name(cls) -> str:
        """Return what `format` takes."""
        return "liftbridge"

    def schema(self) -> str:
        """Return the columns of what is read.

        Raises:
            InvalidOption: an option for columns makes no sense.
        """
        return spark_schema(ExtraColumns.parse(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of a batch query.

        Raises:
            InvalidOption: an option makes no sense.
            InvalidColumns: `schema` was given, and is not that of a stream.
        """
        options = ReadOptions.parse(self.options, streaming=False)
        _check_columns(schema, options.columns)
        if options.pushdown_filters:
            from .pushdown import PushdownReader  # noqa: PLC0415 - it builds on the reader here

            return PushdownReader(options)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Make the reader of a streaming query.

        Raises:
            InvalidOption: an option makes no sense.
            InvalidColumns: `schema` was given, and is not that of a stream.
        """
        options = ReadOptions.parse(self.options, streaming=True)
        _check_columns(schema, options.columns)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Make the writer of a batch write.

        Raises:
            InvalidOption: an option makes no sense.
            InvalidColumns: the DataFrame has columns that cannot be written.
        """
        from .sink import BatchSink  # noqa: PLC0415 - reading has no use for it

        return BatchSink(WriteOptions.parse(self.options, streaming=False), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Make the writer of a micro-batch.

        Raises:
            InvalidOption: an option makes no sense.
            InvalidColumns: the DataFrame has columns that cannot be written.
        """
        from .sink import StreamSink  # noqa: PLC0415 - reading has no use for it

        return StreamSink(WriteOptions.parse(self.options, streaming=True), schema, overwrite)


class BatchReader(DataSourceReader):
    """Reads what a batch query asks for."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Find out what there is to read, and make tasks of it."""
        options = self._options
        plan = ask(options, lambda client: plan_batch(client, options))
        return _tasks(options, self.wanted(plan.ranges), plan.created, streaming=False)

    def wanted(self, ranges: Sequence[OffsetRange]) -> Sequence[OffsetRange]:
        """Choose what is read of the ranges that there are: all of it."""
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read what a task is given."""
        return _read(partition, self._options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what a streaming query asks for, micro-batch by micro-batch.

    One of these lives in the driver as long as the query runs; others are made to read.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        self._available: Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Find out where a new query starts; Spark asks twice, and gets the same answer."""
        options = self._options
        if self._initial is None:
            self._initial = ask(options, lambda client: initial_position(client, options))
        return self._initial.to_dict()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Find out where the next micro-batch ends; `start` itself where there is nothing new."""
        options, target, limits = self._options, self._target, self._limits(limit)
        position = Offsets.from_checkpoint(start)
        step = ask(
            options, lambda client: next_step(client, options, position, limits, target), position
        )
        self._available = step.available
        if step.end == position:
            return start
        if position == self._initial:
            return end_of_first_batch(position, step.end)
        return step.end.to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of a micro-batch: offsets, else bytes, else none."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Take note of what there is, beyond which a query that stops by itself does not read."""
        options = self._options
        self._target = ask(options, lambda client: newest_position(client, options))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return what there was to read when the last micro-batch was planned."""
        return None if self._available is None else self._available.to_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Make tasks of a micro-batch."""
        options = self._options
        begin, stop = start_of_batch(start, end), Offsets.from_checkpoint(end)
        ranges = ask(options, lambda client: planned_ranges(client, options, begin, stop), begin)
        return _tasks(options, ranges, stop.created, streaming=True)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read what a task is given."""
        return _read(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: where the query stands is in Spark's checkpoint."""

    def stop(self) -> None:
        """Do nothing: the connection goes with the process."""

    def _limits(self, limit: ReadLimit) -> Limits:
        """Turn Spark's limit and our own into one; a query that runs once has none."""
        match limit:
            case ReadMaxRows(max_rows=rows):
                return Limits(rows, self._options.max_bytes_per_trigger)
            case ReadMaxBytes(max_bytes=size):
                return Limits(None, size)
            case _:
                return Limits()


def _tasks(
    options: ReadOptions,
    ranges: Sequence[OffsetRange],
    created: Mapping[str, int],
    *,
    streaming: bool,
) -> list[InputPartition]:
    pieces = split(
        ranges,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
    return [
        InputPartition(ReadTask(piece, created.get(piece.stream, 0), streaming)) for piece in pieces
    ]


def _read(partition: InputPartition, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    task = partition.value
    return iter(()) if task is None else read_range(task, options)


def _check_columns(schema: StructType, columns: ExtraColumns) -> None:
    expected = spark_types(columns)
    given = {field.name: field.dataType.simpleString() for field in schema}
    if list(given.items()) != list(expected.items()):
        error = InvalidColumns(f"a stream has the columns {expected}, not {given}")
        error.hint = "leave schema() out; options such as includeHeaders add columns"
        raise error
