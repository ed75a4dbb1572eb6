"""The sink `liftbridge`: the writers that Spark calls, for batch writes and for streaming queries.

At least once, rows are visible as soon as they are published, and a task, batch or run that Spark
repeats publishes its rows again. Exactly once, rows are uncommitted messages until `commit` has
decided which attempts of the tasks count, and has shown their rows.

Spark makes a new writer for every micro-batch, pickles it for the tasks, and makes another one to
commit; so `commit` knows of the tasks only what their commit messages say. It may be called again,
in another process too, and `abort` after it.
"""

from __future__ import annotations

import logging
import secrets
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from liftbridge_aio.spark.core.decision import Decision
from liftbridge_aio.spark.core.one_shot_producer import UncommittedRows
from liftbridge_aio.spark.core.options import Delivery, WriteOptions
from liftbridge_aio.spark.core.row_columns import RowColumns, row_columns
from liftbridge_aio.spark.core.row_digest import joined_digest
from liftbridge_aio.spark.core.write_id import ATTEMPT_BYTES, TaskAttempt
from liftbridge_aio.spark.errors import BatchUnknown, InvalidOption, SparkSourceError

if TYPE_CHECKING:
    import pyarrow as pa

    from .batch_publisher import PartitionWritten

logger = logging.getLogger("liftbridge_aio.spark")

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
"""Local properties that Spark sets for the tasks of a streaming query."""
_DECISIONS: Final = "spark-decisions"
"""The stream in which batch writes are decided; a streaming query has one of its own, with its id
behind that."""
_NAMESPACE: Final = uuid.UUID("5b4e3f30-33a6-4a5c-9f0e-6d8a5a0d6f3b")
"""Namespace of the ids that are made of the names of batch writes."""


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """The commit message of a task, which wrote all its rows, for the driver."""

    attempt: TaskAttempt
    written: tuple[PartitionWritten, ...]
    """The stored rows by partition; each row of the task counts once."""
    resent: int
    """Rows that the task sent again because their outcome was unknown."""
    uncommitted: tuple[UncommittedRows, ...] = ()
    """The rows that a commit makes visible; empty if they are visible already."""
    digest: int | None = None
    """The digest of the rows, in a write that has a name."""

    @property
    def rows(self) -> int:
        """The number of rows of the task."""
        return sum(part.rows for part in self.written)

    @property
    def repeats_in_stage(self) -> int:
        """The number of repeats of its rows that may be stored since its stage last started.

        Spark numbers the attempts of a task from 0 when it starts the stage again, and tells tasks
        in Python nothing of earlier attempts. 0 if a commit shows only the rows of this one.
        """
        if self.uncommitted:
            return 0
        return self.resent + self.rows * self.attempt.number


class BatchSink(DataSourceArrowWriter):
    """Writes a DataFrame once.

    Args:
        options: of the write.
        schema: of the DataFrame.
        overwrite: True for mode "overwrite", which is refused.
    """

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            error = InvalidOption("a stream cannot be overwritten", stream=options.stream)
            error.hint = "use mode('append')"
            raise error
        self._options = options
        self._columns = _columns(schema, options)
        written = options.write_id
        self._job = uuid.uuid4() if written is None else uuid.uuid5(_NAMESPACE, written)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish the rows of a task; returns when each of them is acked."""
        context = _task_context()
        attempt = _attempt(context, query=self._job, batch=0)
        return _write(iterator, attempt, self._options, self._columns)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the rows visible, unless they are, and log what was written.

        Raises:
            CommitFailed: they are not visible, or not in all partitions.
        """
        options, decided_in = self._options, None
        again = "partitions may show its rows or not; writing it again repeats those that do"
        if options.write_id is not None:
            decided_in = options.decision_stream or _DECISIONS
            again = "write it again with the same writeId, which commits the same rows"
        _commit(_from_tasks(messages), options, f"write {self._job}", decided_in, again)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log what stays in the streams."""
        _report_aborted(
            _from_tasks(messages), f"write {self._job}", "running it again repeats them"
        )


class StreamSink(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query.

    Args:
        options: of the write.
        schema: of the DataFrame.
        overwrite: True for output mode "complete": each batch then appends the whole result.
    """

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:  # noqa: ARG002 - a log keeps older results
        self._options = options
        self._columns = _columns(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish the rows of a task; returns when each of them is acked.

        Raises:
            BatchUnknown: Spark names no query or no batch; nothing is published.
            SparkSourceError: a row cannot be published, or was not acked.
        """
        context = _task_context()
        try:
            query, batch = _query_and_batch(context)
        except BatchUnknown as error:
            raise error.at(self._options.stream) from None
        attempt = _attempt(context, query=query, batch=batch)
        return _write(iterator, attempt, self._options, self._columns)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Make the rows of a batch visible, unless they are, and log it; may be called again.

        Raises:
            BatchSuperseded: a later batch was committed, and this one never was.
            CommitFailed: the rows are not visible, or not in all partitions.
        """
        tasks = _from_tasks(messages)
        decided_in = self._options.decision_stream
        if decided_in is None and tasks:
            decided_in = f"{_DECISIONS}-{tasks[0].attempt.query}"
        again = "start the query again: it commits the same rows"
        _commit(tasks, self._options, _batch_name(messages, batchId), decided_in, again)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Log what stays in the streams, though the batch will be run again."""
        _report_aborted(
            _from_tasks(messages),
            _batch_name(messages, batchId),
            "the query's next start, which runs the batch again, repeats them",
        )


def _task_context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("a sink can write only in a task of Spark")
    return context


def _query_and_batch(context: TaskContext) -> tuple[uuid.UUID, int]:
    query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
    with suppress(ValueError):
        if query is not None and batch is not None and int(batch) >= 0:
            return uuid.UUID(query), int(batch)
    error = BatchUnknown(
        f"the task has the query id {query!r} ({_QUERY_ID}) and the batch id {batch!r}"
        f" ({_BATCH_ID}) from Spark, so the query and batch of its rows are not known"
    )
    error.hint = "run the query on Apache Spark 4.2 or newer, or write with foreachBatch"
    raise error


def _attempt(context: TaskContext, *, query: uuid.UUID, batch: int) -> TaskAttempt:
    return TaskAttempt(
        query=query,
        batch=batch,
        task=context.partitionId(),
        number=context.attemptNumber(),
        id=secrets.token_bytes(ATTEMPT_BYTES),
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
) -> TaskCommit:
    from .task_writer import TaskWriter  # noqa: PLC0415 - only tasks need it

    task = TaskWriter(attempt, options, columns)
    try:
        task.publish_all(batches)
    except SparkSourceError as error:
        error.at(options.stream)  # errors before a row is placed name no stream
        raise
    return TaskCommit(attempt, task.written(), task.resent, task.uncommitted(), task.digest)


def _commit(
    tasks: list[TaskCommit],
    options: WriteOptions,
    what: str,
    decision_stream: str | None,
    again: str,
) -> None:
    if options.delivery is Delivery.EXACTLY_ONCE and tasks:
        from .commit import commit_batch  # noqa: PLC0415 - tasks have no use for it

        rows = tuple(rows for task in tasks for rows in task.uncommitted)
        digests = [task.digest for task in tasks if task.digest is not None]
        digest = joined_digest(digests) if len(digests) == len(tasks) else None
        decision = Decision(tasks[0].attempt.query, tasks[0].attempt.batch, rows, digest)
        decided = commit_batch(options, decision, decision_stream, again)
        if decided != decision:
            _report_decided(decided, decision, options.write_id, what)
            return
    _report(tasks, what)


def _report_decided(before: Decision, now: Decision, write_id: str | None, what: str) -> None:
    """Warn that an earlier run decided, and of rows that are others than its rows."""
    about = "as they repeat those"
    if write_id is not None:
        unknown = None in (before.digest, now.digest)
        if before.row_count != now.row_count or not (unknown or before.digest == now.digest):
            about = (
                f"and are not the same: [LIFTBRIDGE_WRITE_ID_USED] writeId {write_id!r} was decided"
                " for other rows; give each write a writeId of its own"
            )
        elif unknown:
            about = f"as many; if they are other rows, use another writeId than {write_id!r}"
    logger.warning(
        "%s was decided by an earlier run of it, whose %d rows are committed; the %d rows of this"
        " run are not, %s",
        what,
        before.row_count,
        now.row_count,
        about,
    )


def _from_tasks(messages: Sequence[WriterCommitMessage | None]) -> list[TaskCommit]:
    """Return the messages of tasks that succeeded."""
    return [message for message in messages if isinstance(message, TaskCommit)]


def _batch_name(messages: Sequence[WriterCommitMessage | None], batch: int) -> str:
    queries = {message.attempt.query for message in _from_tasks(messages)}
    return f"batch {batch} of query {queries.pop()}" if queries else f"batch {batch}"


def _report(tasks: list[TaskCommit], what: str) -> None:
    rows = sum(task.rows for task in tasks)
    logger.info("%s: %d rows written by %d tasks", what, rows, len(tasks))
    for task in tasks:
        if task.repeats_in_stage:
            logger.warning(
                "%s: task %d had %d earlier attempts since its stage last started, and sent %d rows"
                " again; besides its %d rows, up to %d repeats may be stored since then in %s",
                what,
                task.attempt.task,
                task.attempt.number,
                task.resent,
                task.rows,
                task.repeats_in_stage,
                ", ".join(f"{part.stream}/{part.partition}" for part in task.written),
            )


def _report_aborted(tasks: list[TaskCommit], what: str, again: str) -> None:
    rows = sum(task.rows for task in tasks)
    if any(task.uncommitted for task in tasks):
        again = "no reading of committed rows shows them unless the batch is committed"
    logger.warning(
        "%s failed: %d rows of tasks that succeeded are stored in %s, besides those that the errors"
        " of failed tasks name; %s",
        what,
        rows,
        "; ".join(_places(task) for task in tasks if task.written) or "no stream",
        again,
    )


def _places(task: TaskCommit) -> str:
    return ", ".join(
        f"{part.stream}/{part.partition} from {part.first_offset} to {part.last_offset}"
        for part in task.written
    )
