"""A log of records with one writer at a time, who is fenced off by the next one."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from dataclasses import replace
from typing import Final, Protocol, Self

from liftbridge_aio._core.arguments import check_type
from liftbridge_aio._subscribe.committed_state import committed_state
from liftbridge_aio.errors import (
    IncorrectOffset,
    InvalidRequest,
    LiftbridgeError,
    PublishOutcomeUnknown,
    UsageError,
)
from liftbridge_aio.model import (
    Ack,
    Acked,
    AckPolicy,
    Message,
    PartitionInfo,
    StartAt,
    StopAt,
)
from liftbridge_aio.options import OWN_STREAM, StreamOptions
from liftbridge_aio.retry import Retry

from .core.records import (
    HEADER,
    WRITER_BYTES,
    Assembler,
    Kind,
    LogRecord,
    Mark,
    decode_mark,
    parts_of,
)
from .errors import NewerFormat, ProducerFenced

ALL_SERVERS: Final = -1
"""Replication factor: every server stores it."""
OPTIONS: Final = replace(OWN_STREAM, optimistic_concurrency_control=True)
"""The settings of a claimed log: servers check expected offsets, and nothing is ever deleted."""

_FEW: Final = 16
"""Messages that are read first to find the last record."""
_FRESH: Final = 0.01
"""Seconds for which an own message counts as the last one: in less nobody deletes a stream, creates
it again, claims it, and writes as many messages as there were."""
_WIDER: Final = 4
"""Factor by which each part that is read is wider than the one before."""


class LogClient(Protocol):
    """The parts of a connected `Client` that a claimed log needs."""

    async def create_stream(
        self,
        name: str,
        *,
        replication_factor: int,
        options: StreamOptions | None,
        exist_ok: bool,
    ) -> None:
        """See `Client.create_stream`."""

    async def fetch_partition_metadata(self, stream: str, partition: int) -> PartitionInfo:
        """See `Client.fetch_partition_metadata`."""

    async def oldest_offset(self, stream: str, partition: int) -> int:
        """See `Client.oldest_offset`."""

    def subscribe(
        self, stream: str, *, partition: int, start: StartAt, stop: StopAt | None, unpause: bool
    ) -> AbstractAsyncContextManager[AsyncIterable[Message]]:
        """See `Client.subscribe`."""

    async def publish(
        self,
        stream: str,
        value: bytes,
        *,
        headers: Mapping[str, bytes] | None,
        partition: int | None,
        ack_policy: Acked,
        expected_offset: int | None,
    ) -> Ack:
        """See `Client.publish`."""


class ClaimedLog:
    """A log of records with one writer at a time, who is fenced off by the next one.

    It is a stream of one partition with optimistic concurrency control. Opening it appends a claim
    at its end by compare-and-set, so everything up to the claim can be read, and whoever wrote
    before can append nothing more. An append whose outcome is unknown is never guessed: what stands
    at its offset is read back. A writer whose last message is no longer in the log is fenced, too:
    the stream was created again, or its servers have lost its end. How to use it:

        log = await ClaimedLog.open(client, "decisions")
        last = await log.last()                 # what the writers before have left
        await log.append(b"...")

    One that is not used any more needs no closing.
    """

    def __init__(self, client: LogClient, stream: str, retry: Retry) -> None:
        """Use `open`."""
        check_type(retry, Retry, "retry is a Retry")
        self.stream = stream
        self.claim = -1
        """The offset of this writer's claim."""
        self._client = client
        self._retry = retry
        self._writer = secrets.token_bytes(WRITER_BYTES)
        self._next = 0
        self._own = -1
        """The offset of the newest message of this writer that is known to be stored."""
        self._own_at = 0.0
        """The time of the event loop at which that was known."""
        self._unsettled: deque[tuple[Mark, bytes]] = deque()
        """The messages of records that are not known to be stored."""
        self._may_be_stored = False
        """True if the first of these may be stored."""
        self._fenced: ProducerFenced | None = None
        self._busy = False

    @classmethod
    async def open(
        cls,
        client: LogClient,
        stream: str,
        *,
        replication_factor: int = ALL_SERVERS,
        retry: Retry | None = None,
    ) -> Self:
        """Claim a log, which fences off its writer; create it if it is missing.

        Cancelling may leave it claimed.

        Args:
            client: a connected client.
            stream: the stream of the log. It may exist already, if it has one partition and
                optimistic concurrency control.
            replication_factor: number of servers that store it, if it is created; -1: all.
            retry: how writing is repeated while its outcome is unknown; None is `Retry()`.

        Raises:
            InvalidRequest: the stream exists, and its servers do not check expected offsets.
            LiftbridgeError: it could not be created or claimed.
        """
        log = cls(client, stream, Retry() if retry is None else retry)
        await client.create_stream(
            stream, replication_factor=replication_factor, options=OPTIONS, exist_ok=True
        )
        await log._claim()
        return log

    def __repr__(self) -> str:
        """Show the stream and the claim."""
        return f"<ClaimedLog {self.stream} claim={self.claim} next={self._next}>"

    async def _claim(self) -> None:
        tries = 0
        while True:
            state = await self._client.fetch_partition_metadata(self.stream, 0)
            expected = state.newest_offset + 1
            try:
                await self._publish(Mark(Kind.CLAIM, self._writer), b"", expected)
            except (IncorrectOffset, PublishOutcomeUnknown):
                # A claim that is stored all the same does no harm: it is this writer's too.
                tries = await self._wait_before_next(tries)
                if not tries:
                    raise
            else:
                self.claim = expected
                self._stored(expected)
                return await self._check_control()

    async def _check_control(self) -> None:
        """Refuse a log that stores what it should refuse, at an offset that is taken."""
        with suppress(IncorrectOffset, PublishOutcomeUnknown):
            await self._publish(Mark(Kind.MARKER, self._writer), b"", self.claim)
            raise self._unchecked()

    # Reading

    async def records(self, start: int = 0) -> AsyncGenerator[LogRecord, None]:
        """Yield the records that were written before the claim, the oldest first.

        Cancelling abandons it.

        Args:
            start: the first offset that is read.

        Raises:
            NewerFormat: a later version of this package has written one.
            LiftbridgeError: the log could not be read.
        """
        async with aclosing(self._read(StartAt.offset(start))) as records:
            async for record in records:
                yield record

    async def _read(self, start: StartAt) -> AsyncGenerator[LogRecord, None]:
        found = Assembler()
        async with self._span(start, self.claim) as messages:
            async for message in messages:
                record = found.feed(message.offset, self._mark(message), message.value)
                if record is not None:
                    yield record

    def _span(
        self, start: StartAt, last: int
    ) -> AbstractAsyncContextManager[AsyncIterable[Message]]:
        stop = StopAt.offset(last)
        return self._client.subscribe(
            self.stream, partition=0, start=start, stop=stop, unpause=True
        )

    async def last(self) -> LogRecord | None:
        """Return the last record that was written before the claim; None if there is none.

        Only the end of the log is read, however long it is. Cancelling abandons it.

        Raises:
            NewerFormat: a later version of this package has written it.
            LiftbridgeError: the log could not be read.
        """
        width = _FEW
        oldest = await self._client.oldest_offset(self.stream, 0)
        while True:
            start = self.claim - width
            is_whole = start <= oldest
            last = None
            # Nobody misses what retention has removed, even since the look: it is not asked for.
            position = StartAt.earliest() if is_whole else StartAt.offset(start)
            async with aclosing(self._read(position)) as records:
                async for record in records:
                    last = record
            if last is not None or is_whole:
                return last
            width *= _WIDER

    def _mark(self, message: Message) -> Mark | None:
        try:
            return decode_mark(message.headers.get(HEADER))
        except ValueError as error:
            raise NewerFormat(
                f"{self.stream} has a message of another version of the format at offset"
                f" {message.offset}: {error}"
            ) from None

    # Writing

    def check(self) -> None:
        """Raise an error if another writer is known to have claimed the log.

        Raises:
            ProducerFenced: one has.
        """
        if self._fenced is not None:
            raise self._fenced

    @property
    def in_doubt(self) -> bool:
        """True if the outcome of the last append is unknown; see `settle`."""
        return bool(self._unsettled)

    async def append(self, value: bytes) -> int:
        """Append a record and return its offset. It may be of any size.

        Where the outcome of the record before is unknown, that one is settled first.

        Cancelling leaves its outcome unknown, see `settle`.

        Args:
            value: the record.

        Raises:
            ProducerFenced: another writer has claimed the log; the record is not in it.
            PublishOutcomeUnknown: it may be in the log or not; `settle` finds out.
            UsageError: another task writes.
            LiftbridgeError: it is not in the log.
        """
        check_type(value, bytes, "a record is bytes")
        await self._write(parts_of(self._writer, value))
        return self._next - 1

    async def settle(self) -> None:
        """Write the rest of a record whose outcome is unknown. Does nothing if there is none.

        Cancelling leaves the outcome unknown.

        Raises:
            ProducerFenced: another writer has claimed the log; the record is not in it.
            PublishOutcomeUnknown: it is still unknown.
            UsageError: another task writes.
        """
        await self._write(())

    async def _write(self, parts: Iterable[tuple[Mark, bytes]]) -> None:
        if self._busy:
            raise UsageError(f"one task at a time writes to {self.stream}", stream=self.stream)
        self._busy = True
        try:
            self._unsettled.extend(parts)
            await self._settle()
        finally:
            self._busy = False

    async def _settle(self) -> None:
        self.check()
        unsettled = self._unsettled
        while unsettled:
            try:
                await self._check_own()
                await self._store(*unsettled[0])
            except (PublishOutcomeUnknown, asyncio.CancelledError):
                raise
            except LiftbridgeError:
                unsettled.clear()
                self._may_be_stored = False
                raise
            unsettled.popleft()
            self._may_be_stored = False

    def _stored(self, offset: int) -> None:
        """Note that a message of this writer is stored."""
        self._next, self._own = offset + 1, offset
        self._own_at = asyncio.get_running_loop().time()

    async def _check_own(self) -> None:
        """Fence this writer if its newest message is not in the log any more.

        The next expected offset does not tell: another log may have as many messages.

        Raises:
            ProducerFenced: it is not.
            LiftbridgeError: that could not be read.
        """
        own = self._own
        if asyncio.get_running_loop().time() - self._own_at < _FRESH:
            return
        try:
            state = await self._client.fetch_partition_metadata(self.stream, 0)
            if state.newest_offset < own:
                raise self._fence_lost()
            if state.high_watermark >= own:  # else nobody has published since a restart
                async with self._span(StartAt.offset(own), own) as messages:
                    async for message in messages:
                        self._check_writer(message)
        except (ProducerFenced, NewerFormat):
            raise
        except LiftbridgeError as error:
            if not self._may_be_stored:
                raise
            raise PublishOutcomeUnknown(
                f"what stands in {self.stream} could not be read back: {error.message}",
                stream=self.stream,
                partition=0,
            ) from error

    def _check_writer(self, message: Message) -> None:
        found = self._mark(message)
        if message.offset == self._own and (found is None or found.writer != self._writer):
            raise self._fence_lost()

    async def _store(self, mark: Mark, value: bytes) -> None:
        """Write the next message, however often it takes.

        Raises:
            ProducerFenced: another writer has claimed the log.
            PublishOutcomeUnknown: it may be stored or not.
            LiftbridgeError: it is not stored.
        """
        tries = 0
        while True:
            before, self._may_be_stored = self._may_be_stored, True
            try:
                await self._publish(mark, value, self._next)
            except IncorrectOffset as error:
                failure: LiftbridgeError = error
                if await self._is_stored(mark):
                    return
            except PublishOutcomeUnknown as error:
                failure = error
            except LiftbridgeError as error:
                self._may_be_stored = before
                if not before:
                    raise
                failure = error
            else:
                self._stored(self._next)
                return
            tries = await self._wait_before_next(tries)
            if not tries:
                raise PublishOutcomeUnknown(
                    f"it is unknown if a record is stored: {failure.message}",
                    stream=self.stream,
                    partition=0,
                    offset=self._next,
                ) from failure

    async def _is_stored(self, mark: Mark) -> bool:
        """Read what stands where a message was to be; move on to behind what is not a record.

        Raises:
            ProducerFenced: another writer has claimed the log.
            PublishOutcomeUnknown: it could not be read.
        """
        try:
            state = await self._committed()
            if state.newest_offset < self._own:
                raise self._fence_lost()
            if state.newest_offset < self._next:
                return False
            start = StartAt.offset(self._next)
            async with self._span(start, state.newest_offset) as messages:
                async for message in messages:
                    found = self._mark(message)
                    self._next = message.offset + 1
                    if found == mark:
                        self._stored(message.offset)
                        return True
                    if found is None or found.kind is Kind.MARKER:
                        continue
                    if found.kind is Kind.CLAIM or found.writer != self._writer:
                        done = "claimed" if found.kind is Kind.CLAIM else "appended to"
                        raise self._fence(
                            message.offset,
                            f"another writer has {done} {self.stream} at offset {message.offset}",
                        )
        except ProducerFenced:
            raise
        except LiftbridgeError as error:
            raise PublishOutcomeUnknown(
                f"what stands in {self.stream} could not be read back: {error.message}",
                stream=self.stream,
                partition=0,
            ) from error
        return False

    def _fence_lost(self) -> ProducerFenced:
        text = (
            f"the newest message of this writer, offset {self._own}, is not in {self.stream} any"
            " more: the stream was created again, or its servers have lost its end"
        )
        return self._fence(self._own, text)

    def _fence(self, offset: int, text: str) -> ProducerFenced:
        self._fenced = ProducerFenced(text, stream=self.stream, partition=0, offset=offset)
        return self._fenced

    async def _committed(self) -> PartitionInfo:
        """Return the state of the log once all of it can be read."""
        tries = 0

        async def publish_marker(offset: int) -> None:
            nonlocal tries
            tries = await self._wait_before_next(tries)
            if not tries:
                raise PublishOutcomeUnknown(
                    f"{self.stream} does not commit what it stores", stream=self.stream, partition=0
                )
            with suppress(PublishOutcomeUnknown):
                await self._publish(Mark(Kind.MARKER, self._writer), b"", offset)

        return await committed_state(
            lambda: self._client.fetch_partition_metadata(self.stream, 0), publish_marker
        )

    async def _publish(self, mark: Mark, value: bytes, expected: int) -> None:
        ack = await self._client.publish(
            self.stream,
            value,
            headers={HEADER: mark.encode()},
            partition=0,
            ack_policy=AckPolicy.ALL,
            expected_offset=expected,
        )
        if ack.offset != expected:
            raise self._unchecked()

    def _unchecked(self) -> InvalidRequest:
        text = (
            f"the servers do not check expected offsets in {self.stream}: create it with"
            " StreamOptions(optimistic_concurrency_control=True), or let this create it"
        )
        return InvalidRequest(text, stream=self.stream)

    async def _wait_before_next(self, tries: int) -> int:
        """Wait before another try; return how many there were, 0 if there may be no more."""
        if tries + 1 >= self._retry.attempts:
            return 0
        await asyncio.sleep(self._retry.backoff.delay(tries, random.random()))  # noqa: S311 - jitter
        return tries + 1
