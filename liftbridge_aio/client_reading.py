"""The reading calls of the client: subscriptions and cursors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final, overload

from .arguments import INT32_MAX, INT64_MAX, about, check_text, check_type, check_whole_number
from .client_face import ClientFace
from .errors import InvalidRequest, LiftbridgeError, RequestTimeout
from .merged_plan import MergedPlan, kind_of_partitions
from .model import AllPartitions, Message, StartAt, StopAt
from .options import UNSET, Duration, Unset, timer_seconds
from .reading_plan import ReadingPlan

if TYPE_CHECKING:
    from .merged_subscription import MergedSubscription
    from .subscription import Subscription

_NEW_ONLY: Final = StartAt.new_only()
_EARLIEST: Final = StartAt.earliest()
_LATEST: Final = StopAt.latest()


class ClientReading(ClientFace):
    """Subscriptions, and the positions that readers store."""

    @overload
    def subscribe(
        self,
        stream: str,
        partition: int = ...,
        start: StartAt = ...,
        stop: StopAt | None = ...,
        *,
        resubscribe_timeout: Duration | Unset | None = ...,
        resume: bool = ...,
        from_isr_replica: bool = ...,
        reverse: bool = ...,
        cursor: str | None = ...,
        cursor_interval: Duration = ...,
        timeout: Duration | None = ...,
    ) -> Subscription: ...

    @overload
    def subscribe(
        self,
        stream: str,
        partition: AllPartitions | Collection[int],
        start: StartAt | Mapping[int, StartAt] = ...,
        stop: StopAt | None = ...,
        *,
        resubscribe_timeout: Duration | Unset | None = ...,
        resume: bool = ...,
        from_isr_replica: bool = ...,
        reverse: bool = ...,
        cursor: str | None = ...,
        cursor_interval: Duration = ...,
        timeout: Duration | None = ...,
    ) -> MergedSubscription: ...

    @overload
    def subscribe(
        self,
        stream: str,
        partition: int | AllPartitions | Collection[int],
        start: StartAt = ...,
        stop: StopAt | None = ...,
        *,
        resubscribe_timeout: Duration | Unset | None = ...,
        resume: bool = ...,
        from_isr_replica: bool = ...,
        reverse: bool = ...,
        cursor: str | None = ...,
        cursor_interval: Duration = ...,
        timeout: Duration | None = ...,
    ) -> Subscription | MergedSubscription: ...

    def subscribe(
        self,
        stream: str,
        partition: int | AllPartitions | Collection[int] = 0,
        start: StartAt | Mapping[int, StartAt] = _NEW_ONLY,
        stop: StopAt | None = None,
        *,
        resubscribe_timeout: Duration | Unset | None = UNSET,
        resume: bool = False,
        from_isr_replica: bool = False,
        reverse: bool = False,
        cursor: str | None = None,
        cursor_interval: Duration = 5.0,
        timeout: Duration | None = None,
    ) -> Subscription | MergedSubscription:
        """Read one partition or several: iterate over what this returns.

        Do so inside `async with` or without. Nothing happens before it is entered or iterated over.

        With a `cursor` the server remembers how far the reader is, for as long as it keeps its log
        of cursors, and who subscribes with the same cursor begins behind that; `start` counts
        where nothing is stored. Stored is the last offset that is finished, as Go clients do it:
        every `cursor_interval` seconds if it has moved, on leaving `async with`, and by
        `commit()`. A message is finished when the next one is asked for, or when the block is left
        without an exception. So after a crash some messages come again, and none is left out. Two
        who read with the same cursor at once disturb each other. A start at new messages only
        leaves out what comes between the first reader's end and the next one's start if the
        partition was empty: -1 cannot be stored. Where the servers' policy forbids to store, or TLS
        fails for 5 seconds whenever one tries, the reading ends with that error.

        Args:
            stream: what to read.
            partition: which of its partitions: a number, several, or `ALL_PARTITIONS`. Several are
                read as one, the order of each kept.
            start: where to begin; where there are several partitions, for each by its number too.
            stop: where to end; None goes on for ever.
            resubscribe_timeout: seconds to try to resume after a break, None for ever; left out:
                the client's value.
            resume: resume the partition if it is paused.
            from_isr_replica: read from any in-sync replica instead of the leader.
            reverse: read towards lower offsets; needs a server of API 2.0.0.
            cursor: the id of a cursor that remembers the position; then it is read inside
                `async with`.
            cursor_interval: seconds from one time of storing to the next.
            timeout: seconds for the first handshake; None is the client's call_timeout.

        Raises:
            InvalidRequest: the arguments make no sense.
            ClientClosed: not connected.
        """
        parts = self._living
        with about(stream):
            kind_of_partitions(partition)
        several = not isinstance(partition, int)
        if isinstance(start, Mapping) and not (several and start):
            text = "starts by partition are for several partitions, and not none"
            raise InvalidRequest(text, stream=stream)
        plan = ReadingPlan(
            stream=stream,
            partition=partition if isinstance(partition, int) else 0,
            start=next(iter(start.values())) if isinstance(start, Mapping) else start,
            stop=stop,
            resubscribe_timeout=(
                self.options.resubscribe_timeout
                if isinstance(resubscribe_timeout, Unset)
                else resubscribe_timeout
            ),
            resume=resume,
            from_isr_replica=from_isr_replica,
            reverse=reverse,
            timeout=self._seconds(timeout),
            now=time.time_ns(),
        )
        durable = None
        if cursor is not None:
            with about(stream, partition):
                interval = _cursor_interval(cursor, cursor_interval, reverse=reverse)
            durable = parts.durable_reading(cursor, interval, plan.timeout)
        close_timeout = timer_seconds(self.options.close_timeout)
        if isinstance(partition, int):
            return parts.subscription(plan, close_timeout, durable)
        merged = MergedPlan(plan, partition, start)
        return parts.merged_subscription(merged, close_timeout, durable)

    @overload
    def read(
        self,
        stream: str,
        start: StartAt = ...,
        stop: StopAt = ...,
        partition: int = ...,
        *,
        resume: bool = ...,
        timeout: Duration | None = ...,
    ) -> Subscription: ...

    @overload
    def read(
        self,
        stream: str,
        start: StartAt | Mapping[int, StartAt] = ...,
        stop: StopAt = ...,
        *,
        partition: AllPartitions | Collection[int],
        resume: bool = ...,
        timeout: Duration | None = ...,
    ) -> MergedSubscription: ...

    @overload
    def read(
        self,
        stream: str,
        start: StartAt | Mapping[int, StartAt],
        stop: StopAt,
        partition: AllPartitions | Collection[int],
        *,
        resume: bool = ...,
        timeout: Duration | None = ...,
    ) -> MergedSubscription: ...

    @overload
    def read(
        self,
        stream: str,
        start: StartAt = ...,
        stop: StopAt = ...,
        partition: int | AllPartitions | Collection[int] = ...,
        *,
        resume: bool = ...,
        timeout: Duration | None = ...,
    ) -> Subscription | MergedSubscription: ...

    def read(
        self,
        stream: str,
        start: StartAt | Mapping[int, StartAt] = _EARLIEST,
        stop: StopAt = _LATEST,
        partition: int | AllPartitions | Collection[int] = 0,
        *,
        resume: bool = False,
        timeout: Duration | None = None,
    ) -> Subscription | MergedSubscription:
        """Read what is stored, and end: by default all of it, as it is when the reading starts.

        Iterate over what this returns. A stream that never held a message gives none. One whose
        messages were all taken by retention does not end by itself on servers up to now, which say
        nothing about it: bound the wait, or use `last`.

        Args:
            stream: what to read.
            start: where to begin, as for `subscribe`.
            stop: where to end; an offset that does not exist yet is waited for.
            partition: which of its partitions, as for `subscribe`.
            resume: resume the partition if it is paused.
            timeout: seconds for the first handshake; None is the client's call_timeout.

        Raises:
            InvalidRequest: the arguments make no sense.
            ClientClosed: not connected.
        """
        check_type(stop, StopAt, "a bounded reading stops at a StopAt")
        if isinstance(partition, int):
            if isinstance(start, Mapping):
                text = "starts by partition are for several partitions"
                raise InvalidRequest(text, stream=stream)
            return self.subscribe(stream, partition, start, stop, resume=resume, timeout=timeout)
        return self.subscribe(stream, partition, start, stop, resume=resume, timeout=timeout)

    async def last(
        self, stream: str, n: int, partition: int = 0, *, timeout: Duration | None = None
    ) -> list[Message]:
        """Read the last messages of a partition, the oldest of them first.

        Fewer only if the log has no more: gaps that compaction and retention have made are read
        over. Only committed messages count. Cancelling abandons the reading.

        Args:
            stream: what to read.
            n: how many messages, from 0 up.
            partition: which of its partitions.
            timeout: seconds for everything; None is the client's call_timeout. An emptied log is
                known by its silence, after three seconds.

        Raises:
            StreamNotFound: no such stream.
            PartitionNotFound: the stream has no such partition.
            PartitionPaused: the partition is paused.
            RequestTimeout: they could not be read in time.
            LiftbridgeError: the partition could not be read.
        """
        limit = self._seconds(timeout)
        parts = self._living
        with about(stream, partition):
            check_text(stream, "a stream name")
            check_whole_number(partition, "a partition", 0, INT32_MAX)
            check_whole_number(n, "the number of messages", 0, INT64_MAX)
        from .last_messages import last_messages  # noqa: PLC0415 - imports the network

        def subscribe(start: StartAt, stop: StopAt) -> Subscription:
            return self.subscribe(stream, partition, start, stop, timeout=limit)

        try:
            async with asyncio.timeout(limit):
                return await last_messages(parts.connection, subscribe, stream, partition, n, limit)
        except TimeoutError as error:
            if isinstance(error, LiftbridgeError):
                raise
            text = f"the last messages could not be read within {limit:g} s"
            raise RequestTimeout(text, stream=stream, partition=partition) from None

    async def _read_one(self, stream: str, partition: int, offset: int) -> Message | None:
        """Read the message at an offset; None where there is none. Bounded by call_timeout."""
        limit = self._seconds(None)
        parts = self._living
        try:
            async with asyncio.timeout(limit):
                state = await parts.connection.metadata.partition(stream, partition, limit)
                if offset > state.newest_offset:
                    return None  # and reading would wait for it
                reading = self.subscribe(
                    stream, partition, StartAt.offset(offset), StopAt.offset(offset)
                )
                async with reading:
                    async for message in reading:
                        return message
        except TimeoutError as error:
            if isinstance(error, LiftbridgeError):
                raise
            text = f"the message could not be read within {limit:g} s"
            raise RequestTimeout(text, stream=stream, partition=partition, offset=offset) from None
        return None

    async def set_cursor(
        self,
        cursor_id: str,
        stream: str,
        partition: int,
        offset: int,
        *,
        timeout: Duration | None = None,
    ) -> None:
        """Store a position in the server, by convention the last offset that was processed.

        Positions of one cursor that are set while another is being written are written as one, the
        newest. Rewinding is unreliable on v1.9.0 servers: after a restart they recover the highest
        position. Cancelling abandons the wait; the position may be stored or not.

        Args:
            cursor_id: names the cursor.
            stream: what the position belongs to.
            partition: which of its partitions.
            offset: the position, from 0 up.
            timeout: seconds for everything; None is the client's call_timeout.

        Raises:
            InvalidRequest: an argument makes no sense.
            CursorsUnavailable: the server keeps no cursors, or failed to store this one.
            LiftbridgeError: no server answered in time.
        """
        _check_cursor(cursor_id, stream, partition)
        with about(stream, partition):
            check_whole_number(offset, "an offset", 0, INT64_MAX)
        await self._living.cursors.set(cursor_id, stream, partition, offset, self._seconds(timeout))

    async def fetch_cursor(
        self, cursor_id: str, stream: str, partition: int, *, timeout: Duration | None = None
    ) -> int | None:
        """Read a stored position; None where none was stored. Cancelling abandons the call.

        Raises:
            InvalidRequest: an argument makes no sense.
            CursorsUnavailable: the server keeps no cursors, or failed to read this one.
            LiftbridgeError: no server answered in time.
        """
        _check_cursor(cursor_id, stream, partition)
        return await self._living.cursors.fetch(
            cursor_id, stream, partition, self._seconds(timeout)
        )


def _cursor_interval(cursor: str, interval: Duration, *, reverse: bool) -> float:
    check_text(cursor, "the id of a cursor")
    if not cursor:
        raise InvalidRequest("a cursor needs an id")
    if reverse:
        raise InvalidRequest("a reading with a cursor goes towards higher offsets")
    length = timer_seconds(interval, "cursor_interval")
    if not length:
        raise InvalidRequest("cursor_interval must be longer than 0 seconds")
    return length


def _check_cursor(cursor_id: str, stream: str, partition: int) -> None:
    with about(stream, partition):
        check_text(cursor_id, "the id of a cursor")
        check_text(stream, "a stream name")
        check_whole_number(partition, "a partition", 0, INT32_MAX)
        if not cursor_id or not stream:
            raise InvalidRequest("a cursor needs an id and the name of a stream")
