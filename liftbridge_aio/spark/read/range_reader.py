"""Read a range of offsets into Arrow record batches, in a task of Spark.

The rows of a range depend only on the log between its two offsets, not on when, by whom or in which
pieces it is read. So a batch that is run again has the same rows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from liftbridge_aio._client.client import Client
from liftbridge_aio.errors import (
    ConnectionFailed,
    LiftbridgeError,
    NotFound,
    RequestTimeout,
    StreamReset,
)
from liftbridge_aio.model import StartAt, StopAt
from liftbridge_aio.spark.connection import connection_to
from liftbridge_aio.spark.core.data_loss import Finding, Loss, judge_gap, judge_range, raise_or_warn
from liftbridge_aio.spark.core.offsets import OffsetRange
from liftbridge_aio.spark.core.options import ReadOptions
from liftbridge_aio.spark.core.read_failures import read_failure
from liftbridge_aio.spark.errors import ReadStalled

from .log_ends import log_states, oldest_offsets
from .record_batches import Chunk, ChunkBuilder, record_batch
from .schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from liftbridge_aio._subscribe.subscription import Subscription
    from liftbridge_aio.transactions.errors import MalformedAck
    from liftbridge_aio.wire.column_batch import ColumnBatch

    from .committed_columns import LogPart

logger = logging.getLogger("liftbridge_aio.spark")

_CHECK_INTERVAL: Final = 2.0
"""Seconds without a message after which the log is checked for loss."""

_NAMED: Final = 10
"""Most offsets that a warning names."""
_LINGER: Final = 0.05
"""Seconds to wait for more messages after the first: larger batches cost less."""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """A task of Spark: the range that it reads. Pickles."""

    wanted: OffsetRange
    created: int
    """The creation time of the stream that the offsets belong to, in Unix nanoseconds."""
    streaming: bool
    """True for a streaming query; errors then advise other changes than for a batch query."""


def read_range(task: ReadTask, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Read a range as record batches of at most `arrowBatchRows` rows.

    Closing the iterator ends the subscription.

    Raises:
        DataLoss: messages of the range are gone, and failOnDataLoss is set.
        StreamMissing: the stream or partition is gone.
        ReadStalled: no message arrived for readTimeout seconds.
        ReadFailed: the servers were unreachable for longer than readTimeout, or refused.
        ServersUnreachable: no server could be reached at the start.
    """
    schema = arrow_schema(options.columns)
    connection = connection_to(options.connection)
    reader = RangeReader(task, options)
    chunks = connection.iterate(reader.chunks, None, options.read_timeout)
    try:
        for chunk in chunks:
            yield record_batch(chunk, schema, reader.malformed)
        reader.tell_malformed()
    except LiftbridgeError as error:
        place, servers = task.wanted.place, options.connection.servers
        failure = read_failure(error, servers, place, reader.rest.start)
        raise failure from failure.__cause__
    finally:
        chunks.close()


class RangeReader:
    """Reads a range once, and knows what is left of it.

    Args:
        task: what to read.
        options: of the query.
    """

    def __init__(self, task: ReadTask, options: ReadOptions) -> None:
        from .committed_columns import CommittedColumns  # noqa: PLC0415 - imports protobuf

        self.rest = task.wanted
        """The part of the range that is not read yet."""
        self._task = task
        self._options = options
        self._committed = (
            CommittedColumns(
                task.wanted.start,
                whole=options.fail_on_data_loss,
                on_malformed=options.on_malformed,
            )
            if options.committed
            else None
        )

    @property
    def malformed(self) -> Mapping[int, MalformedAck]:
        """The malformed acks that were passed, by offset."""
        return {} if self._committed is None else self._committed.malformed

    def tell_malformed(self) -> None:
        """Warn of malformed acks that were passed."""
        if malformed := self.malformed:
            offsets = list(map(str, malformed))
            more = ", …" if len(offsets) > _NAMED else ""
            logger.warning(
                "onMalformed=%s, so the query continues though %s has %d malformed acks (offsets"
                " %s%s): %s",
                self._options.on_malformed.value,
                self._task.wanted.place,
                len(malformed),
                ", ".join(offsets[:_NAMED]),
                more,
                next(iter(malformed.values())).message,
            )

    async def chunks(self, client: Client) -> AsyncGenerator[Chunk, None]:
        """Read the range in chunks, one for each record batch. Cancelling ends the subscription.

        Raises:
            LiftbridgeError: the range, or a part of it, could not be read.
        """
        wanted, options = self._task.wanted, self._options
        chunks = ChunkBuilder(*wanted.place, options.columns, options.arrow_batch_rows)
        subscription = client.subscribe(
            wanted.place.stream,
            partition=wanted.place.partition,
            start=StartAt.offset(wanted.start),
            stop=StopAt.offset(wanted.last),
            resubscribe_timeout=options.read_timeout,
            unpause=True,
            timeout=options.read_timeout,
        )
        try:
            async with subscription:
                if not self._same_stream(client):
                    return
                while columns := await self._next(client, subscription):
                    await self._check_gaps(client, columns.offsets)
                    self.rest = replace(wanted, start=columns.offsets[-1] + 1)
                    async with aclosing(self._shown(client, columns)) as shown:
                        async for rows in shown:
                            for chunk in chunks.add(rows):
                                yield chunk
        except (StreamReset, NotFound) as error:
            if options.fail_on_data_loss:
                raise
            logger.warning(
                "failOnDataLoss=false, so the query continues without %s: %s", wanted, error
            )
        else:
            if self.rest.count and (finding := await self._missing(client)):
                self._raise_or_log(finding)
        if rest := chunks.rest():
            yield rest

    async def _shown(
        self, client: Client, columns: ColumnBatch
    ) -> AsyncGenerator[ColumnBatch, None]:
        """Yield what is shown of messages. Cancelling ends what is read for that."""
        if self._committed is None:
            yield columns
            return
        from .committed_columns import LogPart  # noqa: PLC0415 - imports protobuf

        for step in self._committed.add(columns):
            if isinstance(step, LogPart):
                await self._read_part(client, step)
            else:
                yield step

    async def _read_part(self, client: Client, part: LogPart) -> None:
        """Read a part of the log, as far as it is still there. Cancelling ends the subscription.

        Raises:
            LiftbridgeError: it could not be read.
        """
        place = self._task.wanted.place
        ends = {place: part.end}
        limit = self._options.read_timeout
        [oldest] = (await oldest_offsets(client, ends, timeout=limit)).values()
        if oldest >= part.end:
            return
        subscription = client.subscribe(
            place.stream,
            partition=place.partition,
            start=StartAt.offset(max(oldest, part.begin)),
            stop=StopAt.offset(part.end - 1),
            resubscribe_timeout=limit,
            unpause=True,
            timeout=limit,
        )
        async with subscription, asyncio.timeout(None) as idle:
            while True:
                idle.reschedule(asyncio.get_running_loop().time() + limit)
                columns = await subscription.read_columns(self._options.arrow_batch_rows, _LINGER)
                if columns is None:
                    return
                part.feed(columns)
                if columns.offsets[-1] >= part.end - 1:
                    return

    def _same_stream(self, client: Client) -> bool:
        """Return True if the stream is still the one that the offsets belong to.

        Raises:
            DataLoss: it was created again, and failOnDataLoss is set.
        """
        wanted = self._task.wanted
        info = client.metadata.streams.get(wanted.stream)  # renewed by the subscription
        if info is None or info.creation_timestamp == self._task.created:
            return True
        detail = (
            "the stream was deleted and created again since the batch was planned, so its "
            "offsets are those of other messages"
        )
        self._raise_or_log(Finding(Loss.RECREATED, *wanted.place, wanted.start, None, detail))
        return False

    async def _next(self, client: Client, subscription: Subscription) -> ColumnBatch | None:
        """Return the next messages; None if the range is read or the subscription has ended.

        A server waits for messages that it no longer has, so the log is checked meanwhile.

        Raises:
            ReadStalled: no message arrived within readTimeout, though the log has more.
            LiftbridgeError: no message arrived within readTimeout, and the log cannot be checked.
        """
        if not self.rest.count:
            return None
        loop, limit = asyncio.get_running_loop(), self._options.read_timeout
        most = min(self._options.arrow_batch_rows, self.rest.count)
        deadline = loop.time() + limit
        while True:
            idle = asyncio.timeout(min(_CHECK_INTERVAL, max(deadline - loop.time(), 0)))
            try:
                async with idle:
                    return await subscription.read_columns(most, _LINGER)
            except TimeoutError:
                if not idle.expired():
                    raise
            try:
                if finding := await self._missing(client):
                    self._raise_or_log(finding)
                    return None
            except (ConnectionFailed, RequestTimeout):
                if loop.time() >= deadline:
                    raise
            if loop.time() >= deadline:
                text = f"no message arrived for {limit:g} s, though the log has more"
                stalled = ReadStalled(text)
                stalled.hint = "raise the option readTimeout, or check the servers"
                raise stalled

    async def _check_gaps(self, client: Client, offsets: list[int]) -> None:
        """Find out if missing offsets were compacted or removed by retention.

        Raises:
            DataLoss: retention removed them before they were read, and failOnDataLoss is set.
        """
        expected = self.rest.start
        end = offsets[-1] + 1
        if end - expected == len(offsets):
            return
        place = self._task.wanted.place
        [earliest] = (
            await oldest_offsets(client, {place: end}, timeout=self._options.read_timeout)
        ).values()
        for offset in offsets:
            finding = judge_gap(self._task.wanted, expected, offset, earliest)
            if finding is not None:
                self._raise_or_log(finding)
            expected = offset + 1

    async def _missing(self, client: Client) -> Finding | None:
        """Return the loss if the log no longer has the rest of the range."""
        place, limit = self.rest.place, self._options.read_timeout
        [state] = (await log_states(client, [place], timeout=limit)).values()
        if finding := judge_range(self.rest, state):
            return finding
        ends = {place: state.end}
        [earliest] = (await oldest_offsets(client, ends, timeout=limit)).values()
        return judge_gap(self._task.wanted, self.rest.start, self.rest.end, earliest)

    def _raise_or_log(self, finding: Finding) -> None:
        for text in raise_or_warn(
            [finding],
            fail_on_data_loss=self._options.fail_on_data_loss,
            streaming=self._task.streaming,
        ):
            logger.warning("%s", text)
