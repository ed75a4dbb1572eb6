"""Write the rows of a task, from the thread in which Spark runs it."""

from __future__ import annotations

import asyncio
import gc
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from liftbridge_aio._client.client import Client
from liftbridge_aio.errors import (
    ConnectionFailed,
    LiftbridgeError,
    RequestTimeout,
    StreamNotFound,
    TLSFailed,
)
from liftbridge_aio.spark.connection import connection_to
from liftbridge_aio.spark.core.one_shot_producer import OneShotProducer, UncommittedRows
from liftbridge_aio.spark.core.options import Delivery, WriteOptions
from liftbridge_aio.spark.core.row_columns import RowColumns
from liftbridge_aio.spark.core.row_digest import joined_digest, rows_digest
from liftbridge_aio.spark.core.row_placement import RowPlacement, Rows
from liftbridge_aio.spark.core.write_id import TaskAttempt
from liftbridge_aio.spark.errors import (
    TLS_HINT,
    ServersUnreachable,
    SparkSourceError,
    StreamMissing,
    WriteFailed,
)
from liftbridge_aio.transactions.core.uuid import PRODUCER_BYTES, producer_id

from .arrow_rows import rows_of
from .batch_publisher import BatchPublisher, PartitionWritten

if TYPE_CHECKING:
    import pyarrow as pa

_LAST_CONNECT_TIMEOUT: Final = 1.0
"""Seconds to reach a server, if necessary, when a task has failed."""
_REPEATED: Final = "running the task again repeats them"
_GC_THRESHOLDS: Final = (50_000, 20, 50)
"""Least thresholds of the garbage collector while rows are published."""


class TaskWriter:
    """Publishes the rows of one attempt of a task.

    Published rows stay in their streams if it fails: Spark runs the task again and stores them a
    second time. A note on the error says how many rows are stored. With delivery=exactly_once they
    are uncommitted messages, which nobody sees unless the driver commits the attempt.

    Args:
        attempt: of the task.
        options: of the write.
        columns: the columns of the parts of a message.
    """

    def __init__(self, attempt: TaskAttempt, options: WriteOptions, columns: RowColumns) -> None:
        self._attempt = attempt
        self._options = options
        self._columns = columns
        self._connection = connection_to(options.connection)
        self._placement = RowPlacement(stream=options.stream, turn=attempt.task)
        self._partition_counts: dict[str, int] = {}
        self._counting = asyncio.Lock()
        self._uncommitted = options.delivery is Delivery.EXACTLY_ONCE
        self.digest: int | None = None if options.write_id is None else 0
        """The digest of the rows so far; None unless the write has a name."""
        self._publisher = BatchPublisher(
            ack_policy=options.ack_policy,
            max_in_flight=options.max_in_flight,
            ack_timeout=options.publish_timeout,
            identity=attempt if options.include_write_id else None,
            new_producer=_new_producer if self._uncommitted else None,
        )

    @property
    def resent(self) -> int:
        """The number of rows that were sent again because their outcome was unknown."""
        return self._publisher.resent

    def written(self) -> tuple[PartitionWritten, ...]:
        """Return the acked rows by partition."""
        return self._publisher.written()

    def uncommitted(self) -> tuple[UncommittedRows, ...]:
        """Return what the driver is to commit; nothing if the rows are visible."""
        return self._publisher.uncommitted()

    def publish_all(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Publish all rows; returns when each of them is acked.

        Raises:
            ServersUnreachable: no server could be reached.
            SparkSourceError: a row cannot be published, or was not acked.
        """
        first = 0
        if self._options.stream is not None:
            self._connection.begin(self._count_partitions, self._options.publish_timeout)
        try:
            with _relaxed_gc():
                for batch in batches:
                    if batch.num_rows:
                        rows = rows_of(batch, self._columns, first=first)
                        self._publish(rows)
                        if self.digest is not None:
                            own = rows_digest(rows, self._options.stream)
                            self.digest = joined_digest([self.digest, own])
                        first += batch.num_rows
                if self._publisher.in_flight:
                    self._run(self._publisher.finish)
        except BaseException as error:
            if note := self._abandon():
                error.add_note(note)
            raise

    def _publish(self, rows: Rows) -> None:
        streams = self._placement.streams(rows)

        async def publish(client: Client) -> None:
            async with self._counting:
                new = streams - self._partition_counts.keys()
                self._partition_counts |= await _partition_counts(
                    client, new, self._options.publish_timeout
                )
            for stream, count in self._partition_counts.items():
                # The client's metadata is newer if a stream was created again.
                self._partition_counts[stream] = client.metadata.partition_count(stream) or count
            outgoing = self._placement.place(rows, self._partition_counts)
            await self._publisher.publish(client, rows.first, outgoing)

        self._run(publish)

    async def _count_partitions(self, client: Client) -> None:
        """Count those of the stream in the options, if it exists. May be cancelled.

        Done while other processes make the first rows, as is connecting to a server.

        Raises:
            LiftbridgeError: no server answered; it is asked again with the first rows.
        """
        if (stream := self._options.stream) is not None:
            async with self._counting:
                count = (await client.fetch_metadata([stream])).partition_count(stream)
                if count:
                    self._partition_counts[stream] = count

    def _run(self, work: Callable[[Client], Awaitable[None]]) -> None:
        try:
            # No timeout: the publisher fails if no ack arrives for publishTimeout.
            self._connection.run(work, None, self._options.publish_timeout)
        except SparkSourceError:
            raise
        except (ConnectionFailed, RequestTimeout) as error:
            servers = ",".join(self._options.connection.servers)
            unreachable = ServersUnreachable(
                f"{self._attempt} could reach no server of {servers}: {error.message}"
            )
            unreachable.hint = (
                "check the option servers and that the servers run, or raise the option"
                " publishTimeout"
            )
            if isinstance(error, TLSFailed):
                unreachable.hint = f"{error.hint}; {TLS_HINT}"
            raise unreachable.at(self._options.stream) from error
        except LiftbridgeError as error:
            failed = WriteFailed(f"{self._attempt} failed: {error.message}", stream=error.stream)
            failed.hint = error.hint
            raise failed.at(self._options.stream) from error

    def _abandon(self) -> str:
        """Cancel rows that are not sent yet; return a note on what is stored, if anything is."""
        publisher = self._publisher
        unknown = publisher.in_flight

        async def abandon(_: Client) -> int:
            return await publisher.abandon()

        if unknown:
            with suppress(LiftbridgeError):  # the first error is the one to raise
                unknown = self._connection.run(abandon, None, _LAST_CONNECT_TIMEOUT)
        written = self.written()
        if not written and not unknown:
            return ""
        summary = (
            f"[LIFTBRIDGE_ROWS_STORED] {self._attempt}, attempt {self._attempt.number}:"
            f" {sum(part.rows for part in written)} rows are stored, {unknown} more may be;"
            f" {'they are not committed' if self._uncommitted else _REPEATED}"
        )
        parts = (
            f"  stream={part.stream!r}, partition={part.partition},"
            f" offsets {part.first_offset} to {part.last_offset}: {part.rows} rows"
            for part in written
        )
        return "\n".join((summary, *parts))


def _new_producer() -> OneShotProducer:
    return OneShotProducer(producer_id(secrets.token_bytes(PRODUCER_BYTES)), time.time_ns())


@contextmanager
def _relaxed_gc() -> Iterator[None]:
    """Run the garbage collector less often.

    Thousands of rows are in flight, none of them garbage: traversing them again and again is a
    tenth of the cost of publishing.
    """
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(*map(max, before, _GC_THRESHOLDS))
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def _partition_counts(
    client: Client, streams: Collection[str], timeout: float
) -> dict[str, int]:
    """Fetch the numbers of partitions of streams, within `timeout` seconds.

    Raises:
        StreamMissing: one of them does not exist.
        LiftbridgeError: no server answered, or not for long enough to know that.
    """
    if not streams:
        return {}
    try:
        metadata = await client.fetch_metadata(
            sorted(streams), expected=list(streams), timeout=timeout
        )
    except StreamNotFound as error:  # denied until `timeout`, which is below notFoundTimeout
        raise _missing(error.stream) from error
    counts = {stream: metadata.partition_count(stream) for stream in streams}
    known = {stream: count for stream, count in counts.items() if count}
    if len(known) < len(counts):
        raise _missing(min(counts.keys() - known.keys()))
    return known


def _missing(stream: str | None) -> StreamMissing:
    missing = StreamMissing("the stream does not exist", stream=stream)
    missing.hint = "create it, or set the option stream to another one"
    return missing
