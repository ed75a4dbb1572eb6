"""Publishes the rows of one task: a bounded number of them on their way, every ack awaited.

Rows of one partition keep their order, as long as none of them has to be sent again.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from liftbridge_aio.client import Client
from liftbridge_aio.errors import (
    ConnectionFailed,
    InvalidRequest,
    LiftbridgeError,
    MessageTooLarge,
    NoMetadataLeader,
    NotFound,
    NotPartitionLeader,
    PublishNotSent,
    PublishOutcomeUnknown,
    RequestTimeout,
)
from liftbridge_aio.model import Ack, AckPolicy
from liftbridge_aio.publish_check import SERVER_OVERHEAD_BYTES

from .errors import InvalidRow, SparkSourceError, StreamMissing, WriteFailed
from .row_placement import OutgoingRow

_MOST_AT_ONCE: Final = 1024
"""Rows that are handed to the client before it gets to send and to take acks."""
_LAST_ACKS: Final = 2.0
"""Seconds to wait for acks on the way when a task has failed, so that its rows are counted."""

_PASSING: Final = (
    ConnectionFailed,
    NoMetadataLeader,
    NotPartitionLeader,
    PublishNotSent,
    PublishOutcomeUnknown,
    RequestTimeout,
)
"""Failures after which the same row may be published with success."""


class PartitionWritten(NamedTuple):
    """What a task wrote to a partition."""

    stream: str
    partition: int
    first_offset: int
    last_offset: int
    rows: int
    """Acked rows; messages of others may lie between the two offsets."""


@dataclass(slots=True)
class _Chunk:
    """Rows that are published together."""

    numbers: Sequence[int]
    """Which rows of the task they are."""
    rows: Sequence[OutgoingRow]
    sent: list[asyncio.Future[Ack | None]] = field(default_factory=list)
    unsent: LiftbridgeError | None = None
    """Why the rows that follow those that were sent were not."""


@dataclass(slots=True)
class _Span:
    first_offset: int
    last_offset: int
    rows: int = 0


class BatchPublisher:
    """Publishes rows of one task, to any number of streams.

    Its coroutines run in the event loop of the client, one at a time. It ends with `finish`, or
    with `abandon` where anything failed.

    Args:
        ack_policy: when a row counts as written.
        max_in_flight: rows that may wait for their acks at once.
        patience: seconds that may pass without any ack before it gives up.
    """

    def __init__(self, *, ack_policy: AckPolicy, max_in_flight: int, patience: float) -> None:
        self.sent_again = 0
        """Rows that were sent again after an attempt that may have stored them."""
        self._ack_policy = ack_policy
        self._max_in_flight = max_in_flight
        self._chunk_rows = max(1, min(_MOST_AT_ONCE, max_in_flight // 2))
        self._patience = patience
        self._chunks: deque[_Chunk] = deque()
        self._spans: dict[tuple[str, int], _Span] = {}
        self._limit: asyncio.Timeout | None = None
        self._last_failure: BaseException | None = None

    @property
    def in_flight(self) -> int:
        """Rows whose outcome is not known."""
        return sum(len(chunk.rows) for chunk in self._chunks)

    def written(self) -> tuple[PartitionWritten, ...]:
        """What was acked so far, by partition."""
        return tuple(
            PartitionWritten(*place, span.first_offset, span.last_offset, span.rows)
            for place, span in sorted(self._spans.items())
        )

    async def publish(self, client: Client, first: int, rows: Sequence[OutgoingRow]) -> None:
        """Publish rows; returns once the last of them have found room, before they are acked.

        Nothing is published where a row is too large for any server, headers not counted. After any
        error and after cancelling, only `abandon` may follow.

        Args:
            client: where to.
            first: number of the first row in its task.
            rows: what to publish.

        Raises:
            InvalidRow: a row cannot be published as it is.
            StreamMissing: a stream or partition does not exist.
            WriteFailed: a row was refused, or no ack came for `patience` seconds.
        """
        _check_sizes(first, rows, client.options.max_message_bytes - SERVER_OVERHEAD_BYTES)
        async with self._while_acks_come():
            for start in range(0, len(rows), self._chunk_rows):
                part = rows[start : start + self._chunk_rows]
                while self._chunks and self.in_flight + len(part) > self._max_in_flight:
                    await self._settle_oldest(client)
                chunk = _Chunk(range(first + start, first + start + len(part)), part)
                self._chunks.append(chunk)
                await self._send(client, chunk)
                await asyncio.sleep(0)  # lets the client write, and take the acks that are there

    async def finish(self, client: Client) -> None:
        """Wait until every row is acked. Cancelling abandons the wait; `abandon` must follow.

        Raises:
            SparkSourceError: as `publish`.
        """
        async with self._while_acks_come():
            while self._chunks:
                await self._settle_oldest(client)

    async def abandon(self) -> int:
        """Take back what is not written yet, count what is acked within a moment.

        Returns:
            How many rows may be stored besides those that are acked.
        """
        on_the_way = [future for chunk in self._chunks for future in chunk.sent]
        if on_the_way:
            await asyncio.wait(on_the_way, timeout=_LAST_ACKS)
        unknown = 0
        while self._chunks:
            chunk = self._chunks.popleft()
            for future in chunk.sent:
                unknown += not future.done() or isinstance(_failure(future), PublishOutcomeUnknown)
                future.cancel()
            self._count_acks(chunk)
        return unknown

    @asynccontextmanager
    async def _while_acks_come(self) -> AsyncIterator[None]:
        limit = self._limit = asyncio.timeout(self._patience)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            text = f"no ack came for {self._patience:g} s"
            if self._last_failure is not None:
                text += f"; the last failure was: {self._last_failure}"
            failed = WriteFailed(text)
            if self._chunks and self._chunks[0].rows:
                oldest = self._chunks[0].rows[0]
                failed.at(oldest[0], oldest[4])
            failed.hint = "look after the servers, or raise the option publishTimeout"
            raise failed from self._last_failure

    def _acks_came(self) -> None:
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time() + self._patience)

    async def _send(self, client: Client, chunk: _Chunk) -> None:
        publish, policy, sent = client.publish_async, self._ack_policy, chunk.sent
        try:
            for stream, value, key, headers, partition in chunk.rows:
                sent.append(await publish(stream, value, key, headers, partition, None, policy))
        except LiftbridgeError as error:
            chunk.unsent = error

    async def _settle_oldest(self, client: Client) -> None:
        """Wait for the acks of a chunk, sending again what failed for now."""
        backoff, tries = client.options.backoff, 0
        while True:
            chunk = self._chunks[0]
            await self._outcomes(chunk)
            acked = self._count_acks(chunk)
            if acked:
                self._acks_came()
            if acked == len(chunk.rows):
                self._chunks.popleft()
                return
            failures = _failures(chunk)
            for index, error in failures:
                if not isinstance(error, _PASSING):
                    self._chunks.popleft()
                    raise _refusal(chunk.numbers[index], chunk.rows[index], error)
            self._last_failure = failures[0][1]
            self.sent_again += sum(isinstance(one, PublishOutcomeUnknown) for _, one in failures)
            chunk = self._chunks[0] = _Chunk(
                [chunk.numbers[index] for index, _ in failures],
                [chunk.rows[index] for index, _ in failures],
            )
            await asyncio.sleep(backoff.delay(tries, random.random()))  # noqa: S311 - jitter
            tries += 1
            await self._send(client, chunk)

    async def _outcomes(self, chunk: _Chunk) -> None:
        # One after the other: acks come in the order of the rows and many at once, so few of the
        # futures have to be waited for.
        for future in chunk.sent:
            if not future.done():
                with suppress(LiftbridgeError):
                    await future
                    self._acks_came()

    def _count_acks(self, chunk: _Chunk) -> int:
        """Take the acks of a chunk into the account, once, and say how many there are."""
        acked = 0
        for place, offsets in _offsets(chunk).items():
            acked += len(offsets)
            span = self._spans.setdefault(place, _Span(offsets[0], offsets[0]))
            span.rows += len(offsets)
            span.first_offset = min(span.first_offset, *offsets)
            span.last_offset = max(span.last_offset, *offsets)
        return acked


def _offsets(chunk: _Chunk) -> dict[tuple[str, int], list[int]]:
    """The offsets that rows got, by partition; nothing of a partition where none is acked."""
    acks = _acks(chunk)
    found: dict[tuple[str, int], list[int]] = {}
    places = {(row[0], row[4]) for row in chunk.rows}
    if len(places) == 1:
        if offsets := [ack.offset for ack in acks if ack is not None]:
            found[places.pop()] = offsets
        return found
    for row, ack in zip(chunk.rows, acks, strict=False):
        if ack is not None:
            found.setdefault((row[0], row[4]), []).append(ack.offset)
    return found


def _acks(chunk: _Chunk) -> list[Ack | None]:
    """The acks of the rows that were sent; None where a row has none, or none yet."""
    try:
        return [future.result() for future in chunk.sent]
    except (LiftbridgeError, asyncio.CancelledError, asyncio.InvalidStateError):
        return [
            future.result() if future.done() and _failure(future) is None else None
            for future in chunk.sent
        ]


def _check_sizes(first: int, rows: Sequence[OutgoingRow], most: int) -> None:
    sizes = [len(value) + len(key) if key else len(value) for _, value, key, _, _ in rows]
    if max(sizes, default=0) > most:
        index = next(index for index, size in enumerate(sizes) if size > most)
        error = MessageTooLarge(f"{sizes[index]} bytes exceed max_message_bytes")
        raise _refusal(first + index, rows[index], error)


def _failure(future: asyncio.Future[Ack | None]) -> BaseException | None:
    return asyncio.CancelledError() if future.cancelled() else future.exception()


def _failures(chunk: _Chunk) -> list[tuple[int, BaseException]]:
    """The rows that are not acked, by index and in order, and why; all that were sent are done."""
    failed: list[tuple[int, BaseException]] = [
        (index, error)
        for index, future in enumerate(chunk.sent)
        if (error := _failure(future)) is not None
    ]
    if chunk.unsent is not None:
        failed += ((index, chunk.unsent) for index in range(len(chunk.sent), len(chunk.rows)))
    return failed


def _refusal(number: int, row: OutgoingRow, error: BaseException) -> SparkSourceError:
    """Say which row it was, and what to do about it."""
    text = f"row {number} of the task: {getattr(error, 'message', error)}"
    refused: SparkSourceError
    if isinstance(error, MessageTooLarge):
        refused = InvalidRow(text)
        refused.hint = (
            "leave the row out, or raise the option liftbridge.maxMessageBytes and the limit of"
            " the servers"
        )
    elif isinstance(error, InvalidRequest):
        refused = InvalidRow(text)
        refused.hint = "mend the row, or leave it out"
    elif isinstance(error, NotFound):
        refused = StreamMissing(text)
        refused.hint = "create the stream, or set the option stream to another one"
    else:
        refused = WriteFailed(text)
        refused.hint = getattr(error, "hint", "")
    refused.__cause__ = error
    return refused.at(row[0], row[4])
