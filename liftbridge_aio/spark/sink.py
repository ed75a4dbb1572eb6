"""The sink `liftbridge`: writers of Arrow batches, for batch writes and for streaming queries.

Rows are in their streams as soon as they are published, and a task, a batch or a whole run that
Spark repeats publishes its rows again: at least once. Spark makes a new writer for every
micro-batch, pickles it for the tasks, and makes yet another one to commit; so everything that
`commit` knows of the tasks comes in their messages.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from .batch_publisher import PartitionWritten
from .errors import InvalidOption, SparkSourceError
from .options import WriteOptions
from .row_columns import RowColumns, row_columns
from .task_write import TaskWrite
from .write_id import TaskAttempt

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("liftbridge_aio.spark")


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    """What a task that wrote all its rows tells the driver."""

    attempt: TaskAttempt
    written: tuple[PartitionWritten, ...]
    """What was stored, by partition; each row of the task counts once."""
    sent_again: int
    """Rows that the task sent twice, because the first outcome is unknown."""

    @property
    def rows(self) -> int:
        """How many rows the task had."""
        return sum(part.rows for part in self.written)

    @property
    def most_repeats(self) -> int:
        """How many repeats of the task's rows may be stored, from this run of the batch."""
        return self.sent_again + self.rows * self.attempt.number


class BatchSink(DataSourceArrowWriter):
    """Writes a DataFrame once.

    Args:
        options: where to, and how.
        schema: of the DataFrame.
        overwrite: whether mode "overwrite" was asked for.
    """

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            error = InvalidOption("a stream cannot be overwritten", stream=options.stream)
            error.hint = "use mode('append')"
            raise error
        self._options = options
        self._columns = _columns(schema, options)
        self._job = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish the rows of a task; returns once each of them is acked."""
        context = _task_context()
        attempt = _attempt(context, query=self._job, batch=0)
        return _write(iterator, attempt, self._options, self._columns)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Tell what was written: the rows are visible since they were published."""
        _report(_from_tasks(messages), f"write {self._job}")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Tell what stays in the streams."""
        _report_aborted(_from_tasks(messages), f"write {self._job}", "running it again")


class StreamSink(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query.

    Args:
        options: where to, and how.
        schema: of the DataFrame.
        overwrite: whether the output mode is "complete": each batch then appends the whole result.
    """

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:  # noqa: ARG002 - a log keeps the older results too
        self._options = options
        self._columns = _columns(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish the rows of a task; returns once each of them is acked."""
        context = _task_context()
        attempt = _attempt(
            context,
            query=context.getLocalProperty("sql.streaming.queryId") or "",
            batch=int(context.getLocalProperty("streaming.sql.batchId") or -1),
        )
        return _write(iterator, attempt, self._options, self._columns)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Settle a batch whose tasks have all written their rows; Spark may call it again.

        This is the one place where the fate of a batch is decided. The rows are visible since they
        were published, so there is nothing left to decide, and it tells what was written.
        """
        _report(_from_tasks(messages), _batch_name(messages, batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Tell what stays in the streams, though the batch will be run again."""
        _report_aborted(
            _from_tasks(messages),
            _batch_name(messages, batchId),
            "the query's next start, which runs the batch again,",
        )


def _task_context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("a sink writes inside tasks of Spark only")
    return context


def _attempt(context: TaskContext, *, query: str, batch: int) -> TaskAttempt:
    return TaskAttempt(
        query=query,
        batch=batch,
        task=context.partitionId(),
        number=context.attemptNumber(),
        id=uuid.uuid4().hex[:12],
    )


def _columns(schema: StructType, options: WriteOptions) -> RowColumns:
    try:
        return row_columns(schema.fields, stream=options.stream)
    except SparkSourceError as error:
        raise error.at(options.stream) from None


def _write(
    batches: Iterator[pa.RecordBatch],
    attempt: TaskAttempt,
    options: WriteOptions,
    columns: RowColumns,
) -> TaskWritten:
    task = TaskWrite(attempt, options, columns)
    try:
        task.publish_all(batches)
    except SparkSourceError as error:
        error.at(options.stream)  # what is wrong may be found before a row is placed
        raise
    return TaskWritten(attempt, task.written(), task.sent_again)


def _from_tasks(messages: Sequence[WriterCommitMessage | None]) -> list[TaskWritten]:
    """Leave out the tasks that failed, and batches that had none."""
    return [message for message in messages if isinstance(message, TaskWritten)]


def _batch_name(messages: Sequence[WriterCommitMessage | None], batch: int) -> str:
    queries = {message.attempt.query for message in _from_tasks(messages)}
    return f"batch {batch} of query {queries.pop()}" if queries else f"batch {batch}"


def _report(tasks: list[TaskWritten], what: str) -> None:
    rows = sum(task.rows for task in tasks)
    logger.info("%s: %d rows written by %d tasks", what, rows, len(tasks))
    for task in tasks:
        if task.most_repeats:
            logger.warning(
                "%s: task %d was tried %d times before and sent %d rows again; besides its %d rows"
                " up to %d repeats of them are stored in %s",
                what,
                task.attempt.task,
                task.attempt.number,
                task.sent_again,
                task.rows,
                task.most_repeats,
                ", ".join(f"{part.stream}/{part.partition}" for part in task.written),
            )


def _report_aborted(tasks: list[TaskWritten], what: str, again: str) -> None:
    rows = sum(task.rows for task in tasks)
    logger.warning(
        "%s failed: %d rows of the tasks that were done are stored in %s, besides those that the"
        " errors of the failed tasks tell of; %s repeats them",
        what,
        rows,
        "; ".join(_places(task) for task in tasks if task.written) or "no stream",
        again,
    )


def _places(task: TaskWritten) -> str:
    return ", ".join(
        f"{part.stream}/{part.partition} from {part.first_offset} to {part.last_offset}"
        for part in task.written
    )
