"""The readers that Spark calls for a batch query and for a streaming query.

Spark pickles them to the processes in which it plans and reads, so they hold options and offsets,
and no connection.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from liftbridge_aio.spark.core.admission import TriggerDelay
from liftbridge_aio.spark.core.offsets import (
    OffsetRange,
    Offsets,
    end_of_first_batch,
    split,
    start_of_batch,
)
from liftbridge_aio.spark.core.options import ReadOptions

from .batch_planning import plan_batch
from .driver import run_with_retry
from .range_reader import ReadTask, read_range
from .stream_planning import (
    Limits,
    MicroBatch,
    fetch_logs,
    initial_position,
    newest_position,
    next_batch,
    planned_ranges,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from .group_positions import GroupPositions


class BatchReader(DataSourceReader):
    """Reads a batch query."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Plan the query, and split it into tasks."""
        options = self._options
        plan = run_with_retry(options, lambda client: plan_batch(client, options))
        return _tasks(options, self.wanted(plan.ranges), plan.created, streaming=False)

    def wanted(self, ranges: Sequence[OffsetRange]) -> Sequence[OffsetRange]:
        """Return the parts of the planned ranges to read: all of them."""
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the range of a task."""
        return _read(partition, self._options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a streaming query in micro-batches.

    One of them exists in the driver while the query runs; others are made to read.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        self._batch: MicroBatch | None = None
        """The micro-batch that was planned last."""
        self._group: GroupPositions | None = None
        """The group with the position of the query, when it has one."""
        self._delay = TriggerDelay(options.min_offsets_per_trigger, options.max_trigger_delay)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a new query starts; always the same, as Spark calls this twice."""
        options = self._options
        if self._initial is None:
            self._initial = run_with_retry(
                options, lambda client: initial_position(client, options)
            )
        return self._initial.to_dict()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the next micro-batch ends; `start` itself if there is nothing to read."""
        options, target, limits = self._options, self._target, self._limits(limit)
        position = Offsets.from_checkpoint(start)
        batch = run_with_retry(
            options, lambda client: next_batch(client, options, position, limits, target), position
        )
        self._batch = batch
        self._show(position)
        if batch.end != position or not limits.min_offsets:
            self._delay.planned(time.monotonic())
        if batch.end == position:
            return start
        if position == self._initial:
            return end_of_first_batch(position, batch.end)
        return batch.end.to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return one limit of a micro-batch, as Spark takes only one; `_limits` adds the others."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Store the present end, at which a query with `availableNow` stops."""
        options = self._options
        self._target = run_with_retry(options, lambda client: newest_position(client, options))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the end of the streams when the last micro-batch was planned."""
        return None if self._batch is None else self._batch.available.to_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plan a micro-batch, and split it into tasks."""
        options = self._options
        begin, stop = start_of_batch(start, end), Offsets.from_checkpoint(end)
        ranges = begin.ranges_to(stop)
        if not ranges:
            return []
        if self._batch is not None and self._batch.end == stop:
            logs = self._batch.logs
        else:  # the query has just been started
            logs = run_with_retry(
                options, lambda client: fetch_logs(client, options, ranges), begin
            )
        left = planned_ranges(options, ranges, stop, logs)
        return _tasks(options, left, stop.created, streaming=True)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the range of a task."""
        return _read(partition, self._options)

    def stop(self) -> None:
        """Do nothing: the connection is closed when the process ends."""

    def _show(self, committed: Offsets) -> None:
        """Show where the query is as the position of a group.

        Spark plans a batch when the one before is in the commit log of the checkpoint, and once
        more when a query with `availableNow` ends. Its call `commit` comes later, and not in the
        end.
        """
        group = self._options.positions_group
        if group is None or committed == self._initial:
            return
        if self._group is None:
            # Importing groups takes long, and Spark waits 10 s for a process that it starts.
            from .group_positions import GroupPositions  # noqa: PLC0415

            self._group = GroupPositions(self._options, group)
        self._group.show(committed)

    def _limits(self, limit: ReadLimit) -> Limits:
        """Combine Spark's limit with those in the options; a query that runs once has none.

        A query with `availableNow` does not wait for more offsets.
        """
        least = self._delay.min_offsets(time.monotonic()) if self._target is None else 0
        match limit:
            case ReadMaxRows(max_rows=rows):
                return Limits(rows, self._options.max_bytes_per_trigger, least)
            case ReadMaxBytes(max_bytes=size):
                return Limits(None, size, least)
            case ReadMinRows():
                return Limits(min_offsets=least)
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
