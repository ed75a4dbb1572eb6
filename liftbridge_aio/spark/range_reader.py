"""Reads a range of offsets into Arrow record batches: what a task of Spark does.

The rows of a range are those that the log has between its two offsets, and nothing else: not when
it is read, by whom or in which pieces. So a replayed batch has the same rows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from liftbridge_aio.client import Client
from liftbridge_aio.errors import (
    ConnectionFailed,
    LiftbridgeError,
    NotFound,
    RequestTimeout,
    StreamReset,
)
from liftbridge_aio.model import StartAt, StopAt
from liftbridge_aio.subscription import Subscription
from liftbridge_aio.wire.column_batch import ColumnBatch

from .connection import connection_to
from .data_loss import Finding, Loss, judge_gap, judge_range, raise_or_tell
from .errors import ReadStalled
from .log_ends import log_states, oldest_offsets
from .offsets import OffsetRange
from .options import ReadOptions
from .read_failures import read_failure
from .record_batches import Chunk, Chunks, record_batch
from .schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("liftbridge_aio.spark")

_SUSPICIOUS: Final = 2.0
"""Seconds without a message after which it is asked whether there will be one."""

_GATHERING: Final = 0.05
"""Seconds to wait for more messages when one is there: many at once cost less."""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """What one task of Spark reads. Pickles."""

    wanted: OffsetRange
    created: int
    """When the stream was created that the offsets belong to, in Unix nanoseconds."""
    streaming: bool
    """Whether it belongs to a streaming query: what to change is told accordingly."""


def read_range(task: ReadTask, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Read a range as record batches of at most `arrowBatchRows` rows.

    Closing the iterator ends the reading.

    Raises:
        DataLoss: messages of the range are gone, and failOnDataLoss is set.
        StreamMissing: the stream or partition is gone.
        ReadStalled: nothing came for readTimeout seconds.
        ReadFailed: the servers were away for longer than readTimeout, or refused.
        ServersUnreachable: no server answered in the first place.
    """
    schema = arrow_schema(options.columns)
    connection = connection_to(options.connection)
    reading = RangeReading(task, options)
    chunks = connection.iterate(reading.chunks, None, options.read_timeout)
    try:
        for chunk in chunks:
            yield record_batch(chunk, schema)
    except LiftbridgeError as error:
        place, servers = task.wanted.place, options.connection.servers
        failure = read_failure(error, servers, place, reading.rest.start)
        raise failure from failure.__cause__
    finally:
        chunks.close()


class RangeReading:
    """One reading of a range, and how far it has come.

    Args:
        task: what is read.
        options: how.
    """

    def __init__(self, task: ReadTask, options: ReadOptions) -> None:
        self.rest = task.wanted
        """What was not read yet."""
        self._task = task
        self._options = options

    async def chunks(self, client: Client) -> AsyncGenerator[Chunk, None]:
        """Read the range, taken apart for record batches. Cancelling ends the reading.

        Raises:
            LiftbridgeError: it could not be read, or not all of it.
        """
        wanted, options = self._task.wanted, self._options
        chunks = Chunks(*wanted.place, options.columns, options.arrow_batch_rows)
        reading = client.subscribe(
            *wanted.place,
            StartAt.offset(wanted.start),
            StopAt.offset(wanted.last),
            resubscribe_timeout=options.read_timeout,
            resume=True,
            timeout=options.read_timeout,
        )
        try:
            async with reading:
                if not self._same_stream(client):
                    return
                while columns := await self._next(client, reading):
                    await self._check_gaps(client, columns.offsets)
                    self.rest = replace(wanted, start=columns.offsets[-1] + 1)
                    for chunk in chunks.add(columns):
                        yield chunk
        except (StreamReset, NotFound) as error:
            if options.fail_on_data_loss:
                raise
            logger.warning(
                "failOnDataLoss=false, so the query goes on without %s: %s", wanted, error
            )
        else:
            if self.rest.count and (finding := await self._missing(client)):
                self._tell(finding)
        if rest := chunks.rest():
            yield rest

    def _same_stream(self, client: Client) -> bool:
        """Tell whether the offsets are still those of the stream that was asked about.

        Raises:
            DataLoss: they are not, and that must not be.
        """
        wanted = self._task.wanted
        info = client.metadata.streams.get(wanted.stream)  # renewed by the subscription
        if info is None or info.creation_timestamp == self._task.created:
            return True
        detail = (
            "the stream was deleted and created again since the batch was planned, so offsets "
            "mean other messages now"
        )
        self._tell(Finding(Loss.RECREATED, *wanted.place, wanted.start, None, detail))
        return False

    async def _next(self, client: Client, reading: Subscription) -> ColumnBatch | None:
        """Wait for the next messages; None where the reading has ended.

        A server waits in silence for messages that it does not have, so silence is looked into.

        Raises:
            ReadStalled: nothing came for too long, though the log has it.
            LiftbridgeError: nothing came for too long, and the log could not be looked at.
        """
        loop, limit = asyncio.get_running_loop(), self._options.read_timeout
        most = min(self._options.arrow_batch_rows, self.rest.count)
        deadline = loop.time() + limit
        while True:
            silence = asyncio.timeout(min(_SUSPICIOUS, max(deadline - loop.time(), 0)))
            try:
                async with silence:
                    return await reading.read_columns(most, _GATHERING)
            except TimeoutError:
                if not silence.expired():
                    raise
            try:
                if finding := await self._missing(client):
                    self._tell(finding)
                    return None
            except (ConnectionFailed, RequestTimeout):
                if loop.time() >= deadline:
                    raise
            if loop.time() >= deadline:
                stalled = ReadStalled(f"nothing came for {limit:g} s, though the log has messages")
                stalled.hint = "raise the option readTimeout, or see what the servers are doing"
                raise stalled

    async def _check_gaps(self, client: Client, offsets: list[int]) -> None:
        """Look into offsets that were left out; compaction does that, and so does retention.

        Raises:
            DataLoss: retention removed them before they were read, and that must not be.
        """
        expected = self.rest.start
        end = offsets[-1] + 1
        if end - expected == len(offsets):
            return
        place = self._task.wanted.place
        [earliest] = (await oldest_offsets(client, {place: end})).values()
        for offset in offsets:
            finding = judge_gap(self._task.wanted, expected, offset, earliest)
            if finding is not None:
                self._tell(finding)
            expected = offset + 1

    async def _missing(self, client: Client) -> Finding | None:
        """Find out whether what is left of the range is gone from the log."""
        place = self.rest.place
        [state] = (await log_states(client, [place])).values()
        if finding := judge_range(self.rest, state):
            return finding
        [earliest] = (await oldest_offsets(client, {place: state.end})).values()
        return judge_gap(self._task.wanted, self.rest.start, self.rest.end, earliest)

    def _tell(self, finding: Finding) -> None:
        for text in raise_or_tell(
            [finding],
            fail_on_data_loss=self._options.fail_on_data_loss,
            streaming=self._task.streaming,
        ):
            logger.warning("%s", text)
