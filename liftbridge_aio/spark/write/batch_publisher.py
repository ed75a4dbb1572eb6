"""Publish the rows of a task, with a bounded number in flight, and wait for every ack.

At least once, rows of a partition keep their order unless one of them has to be sent again. As
uncommitted messages they always keep it: where one fails, all rows from there on are sent again,
under another producer id.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from liftbridge_aio._client.client import Client
from liftbridge_aio._core.message_check import SERVER_OVERHEAD_BYTES
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
from liftbridge_aio.model import (
    UUID_HEADER,
    Ack,
    AckPolicy,
    OutgoingMessage,
    PublishOptions,
)
from liftbridge_aio.spark.core.one_shot_producer import OneShotProducer, UncommittedRows
from liftbridge_aio.spark.core.row_placement import OutgoingRow
from liftbridge_aio.spark.core.write_id import WRITE_ID_HEADER, TaskAttempt
from liftbridge_aio.spark.errors import InvalidRow, SparkSourceError, StreamMissing, WriteFailed
from liftbridge_aio.wire.codec import encode_uuid_header

_MAX_CHUNK_ROWS: Final = 1024
"""Rows that are passed to the client before it can send them and receive acks."""
_DRAIN_TIMEOUT: Final = 2.0
"""Seconds to wait for acks when a task has failed, so that stored rows are counted."""

_RETRYABLE: Final = (
    ConnectionFailed,
    NoMetadataLeader,
    NotPartitionLeader,
    PublishNotSent,
    PublishOutcomeUnknown,
    RequestTimeout,
)
"""Errors after which the row is published again."""


class PartitionWritten(NamedTuple):
    """The rows that a task wrote to a partition."""

    stream: str
    partition: int
    first_offset: int
    last_offset: int
    rows: int
    """Acked rows; other publishers' messages may be between the two offsets."""


@dataclass(slots=True)
class _Chunk:
    """Rows that are passed to the client together."""

    numbers: Sequence[int]
    """Their numbers within the task."""
    rows: Sequence[OutgoingRow]
    sent: list[asyncio.Future[Ack | None]] = field(default_factory=list)
    unsent: LiftbridgeError | None = None
    """The reason why the rows after those in `sent` were not sent."""


@dataclass(slots=True)
class _Span:
    first_offset: int
    last_offset: int
    rows: int = 0


class BatchPublisher:
    """Publishes the rows of a task, to any number of streams.

    Its coroutines run in the event loop of the client, one at a time. End it with `finish`, or with
    `abandon` after a failure.

    Args:
        ack_policy: when a row counts as written.
        max_in_flight: most unacknowledged rows.
        ack_timeout: seconds without any ack after which it fails.
        identity: the attempt, for the write id of each row; None: rows get no write id.
        new_producer: makes a producer, under which rows are uncommitted; None: rows are visible.
    """

    def __init__(
        self,
        *,
        ack_policy: AckPolicy,
        max_in_flight: int,
        ack_timeout: float,
        identity: TaskAttempt | None = None,
        new_producer: Callable[[], OneShotProducer] | None = None,
    ) -> None:
        self.resent = 0
        """Rows that were sent again though they may have been stored before."""
        self._ack_policy = ack_policy
        self._max_in_flight = max_in_flight
        self._chunk_rows = max(1, min(_MAX_CHUNK_ROWS, max_in_flight // 2))
        self._ack_timeout = ack_timeout
        self._identity = identity
        self._new_producer = new_producer
        self._producer = new_producer() if new_producer is not None else None
        self._uncommitted: list[UncommittedRows] = []
        """Of producers that others took over from."""
        self._chunks: deque[_Chunk] = deque()
        self._spans: dict[tuple[str, int], _Span] = {}
        self._limit: asyncio.Timeout | None = None
        self._last_failure: BaseException | None = None

    @property
    def in_flight(self) -> int:
        """The number of rows without a known outcome."""
        return sum(len(chunk.rows) for chunk in self._chunks)

    def written(self) -> tuple[PartitionWritten, ...]:
        """Return the acked rows by partition."""
        return tuple(
            PartitionWritten(*place, span.first_offset, span.last_offset, span.rows)
            for place, span in sorted(self._spans.items())
        )

    def uncommitted(self) -> tuple[UncommittedRows, ...]:
        """Return what the driver is to commit, when every row is acked."""
        last = None if self._producer is None else self._producer.rows()
        return (*self._uncommitted, *(() if last is None else (last,)))

    async def publish(self, client: Client, first: int, rows: Sequence[OutgoingRow]) -> None:
        """Publish rows; returns when the last of them is in flight, before they are acked.

        Nothing is published if a row is too large, its headers not counted. After an error or
        cancelling, only `abandon` may be called.

        Args:
            client: connected.
            first: number of the first row within its task.
            rows: to publish.

        Raises:
            InvalidRow: a row cannot be published as it is.
            StreamMissing: a stream or partition does not exist.
            WriteFailed: a row was refused, or no ack arrived for `ack_timeout` seconds.
        """
        _check_sizes(first, rows, client.options.max_message_bytes - SERVER_OVERHEAD_BYTES)
        async with self._ack_deadline():
            for start in range(0, len(rows), self._chunk_rows):
                part = rows[start : start + self._chunk_rows]
                while self._chunks and self.in_flight + len(part) > self._max_in_flight:
                    await self._settle_oldest(client)
                chunk = _Chunk(range(first + start, first + start + len(part)), part)
                self._chunks.append(chunk)
                await self._send(client, chunk)
                await asyncio.sleep(0)  # lets the client write, and receive acks

    async def finish(self, client: Client) -> None:
        """Wait until every row is acked. After cancelling, call `abandon`.

        Raises:
            SparkSourceError: as `publish`.
        """
        async with self._ack_deadline():
            while self._chunks:
                await self._settle_oldest(client)

    async def abandon(self) -> int:
        """Cancel rows that are not sent yet, and wait shortly for acks of the others.

        Returns:
            How many rows may be stored besides those that are acked.
        """
        self._producer = None  # nothing will be committed
        in_flight = [future for chunk in self._chunks for future in chunk.sent]
        if in_flight:
            await asyncio.wait(in_flight, timeout=_DRAIN_TIMEOUT)
        unknown = 0
        while self._chunks:
            chunk = self._chunks.popleft()
            for future in chunk.sent:
                unknown += not future.done() or isinstance(_failure(future), PublishOutcomeUnknown)
                future.cancel()
            self._count_acks(chunk)
        return unknown

    @asynccontextmanager
    async def _ack_deadline(self) -> AsyncIterator[None]:
        limit = self._limit = asyncio.timeout(self._ack_timeout)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            text = f"no ack arrived for {self._ack_timeout:g} s"
            if self._last_failure is not None:
                text += f"; the last failure was: {self._last_failure}"
            failed = WriteFailed(text)
            if self._chunks and self._chunks[0].rows:
                oldest = self._chunks[0].rows[0]
                failed.at(oldest[0], oldest[4])
            failed.hint = "check the servers, or raise the option publishTimeout"
            raise failed from self._last_failure

    def _extend_deadline(self) -> None:
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time() + self._ack_timeout)

    async def _send(self, client: Client, chunk: _Chunk) -> None:
        policy, sent, living = self._ack_policy, chunk.sent, client._living  # noqa: SLF001 - own headers
        publish = client.publish_async
        try:
            if self._identity is None and self._producer is None:
                for stream, value, key, headers, partition in chunk.rows:
                    future = await publish(
                        stream, value, key, headers, partition=partition, ack_policy=policy
                    )
                    sent.append(future)
                return
            own = self._own_headers(chunk)
            for row, (write_id, uuid) in zip(chunk.rows, own, strict=False):
                stream, value, key, headers, partition = row
                both = {**headers, **write_id} if headers else write_id or None
                options: PublishOptions = {"partition": partition, "ack_policy": policy}
                if uuid is None:
                    sent.append(await publish(stream, value, key, both, **options))
                    continue
                encoded = encode_uuid_header(uuid)
                now = living.submit_now(stream, value, key, both, options, encoded)
                if now is None:
                    message = OutgoingMessage(stream, value, key, both, **options)
                    message.own_headers = {UUID_HEADER: uuid}
                    now = await living.submit(message)
                sent.append(now)
        except LiftbridgeError as error:
            chunk.unsent = error

    def _own_headers(self, chunk: _Chunk) -> Iterator[tuple[dict[str, bytes], bytes | None]]:
        """Yield what each row gets when it is sent: further headers, and the UUID of a producer."""
        # One dict for all rows: the client encodes it before it takes the next row.
        own: dict[str, bytes] = {}
        attempt, producer = self._identity, self._producer
        if producer is None:
            if attempt is not None:
                for own[WRITE_ID_HEADER] in attempt.write_ids(chunk.numbers):
                    yield own, None
            return
        if attempt is None:
            for uuid in producer.uuids:
                yield own, uuid
            return
        ids = attempt.write_ids(chunk.numbers)
        for own[WRITE_ID_HEADER], uuid in zip(ids, producer.uuids, strict=False):
            yield own, uuid

    async def _settle_oldest(self, client: Client) -> None:
        """Wait for the acks of the oldest chunk, and send failed rows again."""
        backoff, tries = client.options.backoff, 0
        while True:
            chunk = self._chunks[0]
            await self._outcomes(chunk)
            failures = _failures(chunk)
            if failures and self._producer is not None:
                self._retire_from(failures[0][0])
            acked = self._count_acks(chunk)
            if acked:
                self._extend_deadline()
            if acked == len(chunk.rows):
                self._chunks.popleft()
                return
            for index, error in failures:
                if not isinstance(error, _RETRYABLE):
                    self._chunks.popleft()
                    raise _refusal(chunk.numbers[index], chunk.rows[index], error)
            self._last_failure = failures[0][1]
            self.resent += sum(isinstance(one, PublishOutcomeUnknown) for _, one in failures)
            again = self._to_repeat([index for index, _ in failures])
            await asyncio.sleep(backoff.delay(tries, random.random()))  # noqa: S311 - jitter
            tries += 1
            for chunk in again:
                await self._send(client, chunk)

    def _retire_from(self, index: int) -> None:
        """Forget what became of the rows from one of the oldest chunk on: none of them counts."""
        forgotten = self._chunks[0].sent[index:]
        del self._chunks[0].sent[index:]
        for chunk in list(self._chunks)[1:]:
            forgotten += chunk.sent
            chunk.sent.clear()
        for future in forgotten:
            if not future.cancel():
                _failure(future)

    def _to_repeat(self, failed: list[int]) -> list[_Chunk]:
        """Return the chunks to be sent again; `failed` are indexes in the oldest one."""
        oldest = self._chunks[0]
        if self._new_producer is None:
            self._chunks[0] = _Chunk(
                [oldest.numbers[index] for index in failed],
                [oldest.rows[index] for index in failed],
            )
            return [self._chunks[0]]
        self._uncommitted += self.uncommitted()[len(self._uncommitted) :]
        self._producer = self._new_producer()
        start = failed[0]
        self._chunks[0] = _Chunk(oldest.numbers[start:], oldest.rows[start:])
        for chunk in self._chunks:
            chunk.unsent = None
        return list(self._chunks)

    async def _outcomes(self, chunk: _Chunk) -> None:
        # One after the other: acks arrive in the order of the rows and many at once, so most
        # futures are done already.
        for future in chunk.sent:
            if not future.done():
                with suppress(LiftbridgeError):
                    await future
                    self._extend_deadline()

    def _count_acks(self, chunk: _Chunk) -> int:
        """Count the acks of a chunk by partition, and return how many there are.

        Raises:
            WriteFailed: a partition stored uncommitted rows in another order.
        """
        acked = 0
        stored = _offsets(chunk)
        if self._producer is not None and (place := self._producer.stored(stored)):
            raise WriteFailed(
                "the partition stored rows of the task in another order than they were sent",
                stream=place[0],
                partition=place[1],
            )
        for place, offsets in stored.items():
            acked += len(offsets)
            span = self._spans.setdefault(place, _Span(offsets[0], offsets[0]))
            span.rows += len(offsets)
            span.first_offset = min(span.first_offset, *offsets)
            span.last_offset = max(span.last_offset, *offsets)
        return acked


def _offsets(chunk: _Chunk) -> dict[tuple[str, int], list[int]]:
    """Return the offsets of acked rows, by partition."""
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
    """Return the acks of the sent rows; None for a row without one."""
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
    """Return index and error of each row that is not acked; all sent rows must be done."""
    failed: list[tuple[int, BaseException]] = [
        (index, error)
        for index, future in enumerate(chunk.sent)
        if (error := _failure(future)) is not None
    ]
    if chunk.unsent is not None:
        failed += ((index, chunk.unsent) for index in range(len(chunk.sent), len(chunk.rows)))
    return failed


def _refusal(number: int, row: OutgoingRow, error: BaseException) -> SparkSourceError:
    """Return an error that names the row, and says what to do."""
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
        refused.hint = "correct the row, or leave it out"
    elif isinstance(error, NotFound):
        refused = StreamMissing(text)
        refused.hint = "create the stream, or set the option stream to another one"
    else:
        refused = WriteFailed(text)
        refused.hint = getattr(error, "hint", "")
    refused.__cause__ = error
    return refused.at(row[0], row[4])
