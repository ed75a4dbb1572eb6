"""Writes the rows of one task from the thread in which Spark runs it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from liftbridge_aio.client import Client
from liftbridge_aio.errors import ConnectionFailed, LiftbridgeError, RequestTimeout, TLSFailed
from liftbridge_aio.options import timer_seconds

from .arrow_rows import Rows, add_headers, rows_of
from .batch_publisher import BatchPublisher, PartitionWritten
from .connection import connection_to
from .errors import ServersUnreachable, SparkSourceError, StreamMissing
from .options import WriteOptions
from .read_failures import TLS_HINT
from .row_columns import RowColumns
from .row_placement import RowPlacement
from .write_id import TaskAttempt

if TYPE_CHECKING:
    import pyarrow as pa

_LAST_CONNECT: Final = 1.0
"""Seconds to reach a server, if need be, when a task has failed."""
_ASK_AGAIN: Final = 0.1
"""Seconds between two questions for a stream that no broker knows yet."""
_COLLECTED_AFTER: Final = (50_000, 20, 50)
"""The least thresholds of the garbage collector while rows are published."""


class TaskWrite:
    """One attempt of one task to publish its rows.

    Rows that were published stay in their streams when it fails: Spark runs the task again, and
    what is stored by then is stored twice. A note on the error says how many rows that are.

    Args:
        attempt: who writes.
        options: where to, and how.
        columns: where the parts of a message stand in a row.
    """

    def __init__(self, attempt: TaskAttempt, options: WriteOptions, columns: RowColumns) -> None:
        self._attempt = attempt
        self._options = options
        self._columns = columns
        self._connection = connection_to(options.connection)
        self._placement = RowPlacement(stream=options.stream, turn=attempt.task)
        self._partition_counts: dict[str, int] = {}
        self._publisher = BatchPublisher(
            ack_policy=options.ack_policy,
            max_in_flight=options.max_in_flight,
            patience=options.publish_timeout,
        )

    @property
    def sent_again(self) -> int:
        """Rows that were sent twice, because it is not known whether the first was stored."""
        return self._publisher.sent_again

    def written(self) -> tuple[PartitionWritten, ...]:
        """What was acked, by partition."""
        return self._publisher.written()

    def publish_all(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Publish all rows; returns once each of them is acked.

        Raises:
            ServersUnreachable: no server answered.
            SparkSourceError: a row cannot be published, or was not acked.
        """
        first = 0
        try:
            with _seldom_collected():
                for batch in batches:
                    if batch.num_rows:
                        self._publish(rows_of(batch, self._columns, first=first))
                        first += batch.num_rows
                if self._publisher.in_flight:
                    self._run(self._publisher.finish)
        except BaseException as error:
            error.add_note(self._abandon())
            raise

    def _publish(self, rows: Rows) -> None:
        if self._options.include_write_id:
            add_headers(rows, self._attempt.headers(rows.first, len(rows)))
        new = self._placement.streams(rows) - self._partition_counts.keys()

        async def publish(client: Client) -> None:
            self._partition_counts |= await _partition_counts(client, new)
            outgoing = self._placement.place(rows, self._partition_counts)
            await self._publisher.publish(client, rows.first, outgoing)

        self._run(publish)

    def _run(self, work: Callable[[Client], Awaitable[None]]) -> None:
        try:
            # The publisher ends by itself when no ack comes for long, however much it has to do.
            self._connection.run(work, None, self._options.publish_timeout)
        except SparkSourceError:
            raise
        except (ConnectionFailed, RequestTimeout) as error:
            servers = ",".join(self._options.connection.servers)
            unreachable = ServersUnreachable(
                f"{self._attempt} found no server at {servers}: {error.message}"
            )
            unreachable.hint = (
                "check the option servers and that the servers run, or raise the option"
                " publishTimeout"
            )
            if isinstance(error, TLSFailed):
                unreachable.hint = f"{error.hint}; {TLS_HINT}"
            raise unreachable.at(self._options.stream) from error

    def _abandon(self) -> str:
        """Take back what is not written yet, and say what is stored."""
        publisher = self._publisher
        unknown = publisher.in_flight

        async def abandon(_: Client) -> int:
            return await publisher.abandon()

        if unknown:
            with suppress(LiftbridgeError):  # the error that brought us here tells more
                unknown = self._connection.run(abandon, None, _LAST_CONNECT)
        written = self.written()
        summary = (
            f"[LIFTBRIDGE_ROWS_STORED] {self._attempt}, attempt {self._attempt.number}:"
            f" {sum(part.rows for part in written)} rows are stored, {unknown} more may be;"
            " running the task again repeats them"
        )
        parts = (
            f"  stream={part.stream!r}, partition={part.partition},"
            f" offsets {part.first_offset} to {part.last_offset}: {part.rows} rows"
            for part in written
        )
        return "\n".join((summary, *parts))


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Let the garbage collector look less often.

    Thousands of rows wait for their acks at any time, and none of them is garbage: looking at them
    again and again is a tenth of what publishing costs.
    """
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(*map(max, before, _COLLECTED_AFTER))
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def _partition_counts(client: Client, streams: Iterable[str]) -> dict[str, int]:
    """Ask how many partitions streams have.

    Raises:
        StreamMissing: no broker knows one of them, even after not_found_timeout.
    """
    wanted = set(streams)
    if not wanted:
        return {}
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timer_seconds(client.options.not_found_timeout)
    while True:
        metadata = await client.fetch_metadata(sorted(wanted))
        counts = {stream: metadata.partition_count(stream) for stream in wanted}
        known = {stream: count for stream, count in counts.items() if count}
        if known.keys() == wanted:
            return known
        if loop.time() + _ASK_AGAIN > deadline:
            missing = StreamMissing("no such stream", stream=min(wanted - known.keys()))
            missing.hint = "create it, or set the option stream to another one"
            raise missing
        await asyncio.sleep(_ASK_AGAIN)
