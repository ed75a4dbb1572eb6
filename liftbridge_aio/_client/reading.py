"""The reading calls of the client."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, overload

from liftbridge_aio._core.arguments import (
    INT32_MAX,
    INT64_MAX,
    about,
    check_flags,
    check_partition,
    check_text,
    check_type,
    check_whole_number,
)
from liftbridge_aio._subscribe.core.plan import MergedPlan, ReadingPlan, kind_of_partitions
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.model import (
    Message,
    StartAt,
    StopAt,
    StopPosition,
)
from liftbridge_aio.options import UNSET, Duration, Unset, timer_seconds

from .base import ClientBase

if TYPE_CHECKING:
    from liftbridge_aio import transactions
    from liftbridge_aio._subscribe.merged_subscription import MergedSubscription
    from liftbridge_aio._subscribe.position_store import PositionStore
    from liftbridge_aio._subscribe.subscription import Subscription
    from liftbridge_aio.transactions.reading import OnMalformed, OnTruncated, ReadCommitted

_NEW_ONLY: Final = StartAt.new_only()
_EARLIEST: Final = StartAt.earliest()
_LATEST: Final = StopAt.latest()
_BOUNDED_FOR: Final = 30.0
"""Seconds for which a reading with an end is resumed after a break, if nobody has said."""


class ClientReading(ClientBase):
    """Calls that subscribe and read messages."""

    @overload
    def subscribe(
        self,
        stream: str,
        *,
        partition: int,
        start: StartAt = ...,
        stop: StopAt | None = ...,
        resubscribe_timeout: Duration | Unset | None = ...,
        unpause: bool = ...,
        from_isr_replica: bool = ...,
        reverse: bool = ...,
        cursor: str | None = ...,
        cursor_interval: Duration = ...,
        positions: transactions.Producer | None = ...,
        committed: bool | ReadCommitted = ...,
        timeout: Duration | None = ...,
    ) -> Subscription: ...

    @overload
    def subscribe(
        self,
        stream: str,
        *,
        partition: Collection[int] | None = ...,
        start: StartAt | Mapping[int, StartAt] = ...,
        stop: StopAt | None = ...,
        resubscribe_timeout: Duration | Unset | None = ...,
        unpause: bool = ...,
        from_isr_replica: bool = ...,
        reverse: bool = ...,
        cursor: str | None = ...,
        cursor_interval: Duration = ...,
        positions: transactions.Producer | None = ...,
        committed: bool | ReadCommitted = ...,
        timeout: Duration | None = ...,
    ) -> MergedSubscription: ...

    @overload
    def subscribe(
        self,
        stream: str,
        *,
        partition: int | Collection[int] | None,
        start: StartAt = ...,
        stop: StopAt | None = ...,
        resubscribe_timeout: Duration | Unset | None = ...,
        unpause: bool = ...,
        from_isr_replica: bool = ...,
        reverse: bool = ...,
        cursor: str | None = ...,
        cursor_interval: Duration = ...,
        positions: transactions.Producer | None = ...,
        committed: bool | ReadCommitted = ...,
        timeout: Duration | None = ...,
    ) -> Subscription | MergedSubscription: ...

    def subscribe(
        self,
        stream: str,
        *,
        partition: int | Collection[int] | None = None,
        start: StartAt | Mapping[int, StartAt] = _NEW_ONLY,
        stop: StopAt | None = None,
        resubscribe_timeout: Duration | Unset | None = UNSET,
        unpause: bool = False,
        from_isr_replica: bool = False,
        reverse: bool = False,
        cursor: str | None = None,
        cursor_interval: Duration = 5.0,
        positions: transactions.Producer | None = None,
        committed: bool | ReadCommitted = False,
        timeout: Duration | None = None,
    ) -> Subscription | MergedSubscription:
        """Read one partition or several: return an async iterator over messages.

        Iterate it inside `async with` or without. Nothing is sent before it is entered or iterated.

        With a `cursor`, the server stores the position, for as long as it keeps its log of cursors,
        and the next subscription with the same cursor starts behind it; `start` applies only if
        nothing is stored. The position is the last finished offset, as with Go clients. It is
        stored every `cursor_interval` seconds if it has moved, on leaving `async with`, and by
        `commit()`. A message is finished when the next one is requested, or when the block is left
        without an exception. So after a crash some messages are delivered again, and none is lost.
        Subscriptions that use the same cursor at the same time overwrite each other's position. If
        a start at new messages only finds an empty partition, messages published between the end of
        this subscription and the start of the next one are not read: -1 cannot be stored. If a
        policy of the servers forbids storing, or TLS fails for 5 seconds at each try, the
        subscription ends with that error.

        Args:
            stream: the stream to read.
            partition: a number, several of them, or None for all partitions. Several are read as
                one; the order of each is kept.
            start: where to begin, or a `Checkpoint`; for several partitions also a mapping from
                their numbers. An offset is one of the partitions that are named: to read all of
                several from an offset is refused.
            stop: where to end; None: never. An offset as for `start`.
            resubscribe_timeout: seconds to retry after a break, None: without limit; left out: the
                client's value or, if that is None and there is a stop, 30 seconds.
            unpause: resume the partition whenever it is paused.
            from_isr_replica: read from any in-sync replica instead of the leader.
            reverse: read towards lower offsets; needs a server with API 2.0.0.
            cursor: the id of a cursor that stores the position; requires `async with`.
            cursor_interval: seconds between commits of the cursor.
            positions: a producer with a store, whose transactions commit how far was read, see
                `Producer.transaction`. Reading goes on there; `start` applies only if nothing was
                committed. Requires `async with`.
            committed: True shows what transactions committed, and each message of a
                producer once; `transactions.ReadCommitted` has more options. Positions, the stop
                and the cursor then count the offsets of acks.
            timeout: seconds until the server has accepted; None is the client's call_timeout.

        Raises:
            InvalidRequest: an argument is invalid, or arguments contradict each other.
            ClientClosed: not connected.
            UsageError: the producer of `positions` has no store, or was not entered.
        """
        parts = self._living
        with about(stream):
            kind_of_partitions(partition)
        several = not isinstance(partition, int)
        if isinstance(start, Mapping) and not (several and start):
            raise InvalidRequest(
                "a mapping of starts needs several partitions, and must not be empty", stream=stream
            )
        first = next(iter(start)) if isinstance(start, Mapping) else 0
        plan = ReadingPlan(
            stream=stream,
            partition=partition if isinstance(partition, int) else first,
            start=start[first] if isinstance(start, Mapping) else start,
            stop=stop,
            resubscribe_timeout=self._resumed_for(resubscribe_timeout, stop),
            unpause=unpause,
            from_isr_replica=from_isr_replica,
            reverse=reverse,
            timeout=self._seconds(timeout),
            now=time.time_ns(),
            make_visibility=self._visibility(committed, stream),
        )
        with about(stream, partition):
            interval = _cursor_interval(cursor, cursor_interval, reverse=reverse)
        durable: PositionStore | None = None
        if positions is not None:
            with about(stream, partition):
                durable = _positions_of(positions, cursor, reverse=reverse)
        elif cursor is not None:
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
        *,
        partition: int,
        start: StartAt = ...,
        stop: StopAt = ...,
        unpause: bool = ...,
        committed: bool | ReadCommitted = ...,
        timeout: Duration | None = ...,
    ) -> Subscription: ...

    @overload
    def read(
        self,
        stream: str,
        *,
        partition: Collection[int] | None = ...,
        start: StartAt | Mapping[int, StartAt] = ...,
        stop: StopAt = ...,
        unpause: bool = ...,
        committed: bool | ReadCommitted = ...,
        timeout: Duration | None = ...,
    ) -> MergedSubscription: ...

    @overload
    def read(
        self,
        stream: str,
        *,
        partition: int | Collection[int] | None,
        start: StartAt = ...,
        stop: StopAt = ...,
        unpause: bool = ...,
        committed: bool | ReadCommitted = ...,
        timeout: Duration | None = ...,
    ) -> Subscription | MergedSubscription: ...

    def read(
        self,
        stream: str,
        *,
        partition: int | Collection[int] | None = None,
        start: StartAt | Mapping[int, StartAt] = _EARLIEST,
        stop: StopAt = _LATEST,
        unpause: bool = False,
        committed: bool | ReadCommitted = False,
        timeout: Duration | None = None,
    ) -> Subscription | MergedSubscription:
        """Read stored messages, and end: by default all that are stored when it begins.

        Returns an async iterator. It is empty for a stream without messages. If retention has
        removed all of them, that takes about 1.5 seconds to find out, as servers do not say so.

        Args:
            stream: the stream to read.
            partition: as for `subscribe`.
            start: where to begin, as for `subscribe`.
            stop: where to end; waits for an offset that does not exist yet.
            unpause: resume the partition if it is paused.
            committed: as for `subscribe`.
            timeout: seconds until the server has accepted; None is the client's call_timeout.

        Raises:
            InvalidRequest: an argument is invalid, or arguments contradict each other.
            ClientClosed: not connected.
        """
        check_type(stop, StopAt, "stop is a StopAt, such as StopAt.latest()")
        subscribe: Any = self.subscribe  # no overload has the union of all arguments
        reading: Subscription | MergedSubscription = subscribe(
            stream,
            partition=partition,
            start=start,
            stop=stop,
            unpause=unpause,
            committed=committed,
            timeout=timeout,
        )
        return reading

    def committed_range(
        self,
        stream: str,
        *,
        partition: int,
        start: int,
        end: int,
        look_back: int | None = None,
        on_truncated: OnTruncated = "error",
        on_malformed: OnMalformed = "error",
        unpause: bool = False,
        timeout: Duration | None = None,
    ) -> Subscription:
        """Read what a committed reading shows at the positions from `start` to before `end`.

        What it returns depends on the log and these arguments alone. So readers that share a
        partition out into ranges show each message of a transaction once, in the range where its
        ack stands; and each repeated single message once, as long as the repeat stands no further
        behind it than the `look_back` of its range. Messages of a transaction may stand before the
        start, and are read there.

        Args:
            stream: the stream to read.
            partition: which of its partitions.
            start: the first position.
            end: the one behind the last; waits for what does not exist yet.
            look_back: offsets before the start whose single messages are recognised when they are
                repeated; None: as for `ReadCommitted`.
            on_truncated: as for `ReadCommitted`.
            on_malformed: as for `ReadCommitted`, for acks in the range.
            unpause: resume the partition whenever it is paused.
            timeout: seconds until the server has accepted; None is the client's call_timeout.

        Raises:
            InvalidRequest: an argument is invalid, or the end is before the start.
            ClientClosed: not connected.
        """
        from liftbridge_aio.transactions.reading import LOOK_BACK, ReadCommitted  # noqa: PLC0415 - not before use

        parts = self._living
        with about(stream, partition):
            check_whole_number(start, "start", 0, INT64_MAX)
            check_whole_number(end, "end", start, INT64_MAX)
            committed = ReadCommitted(
                on_truncated=on_truncated,
                on_malformed=on_malformed,
                max_producers=INT64_MAX,
                look_back=LOOK_BACK if look_back is None else look_back,
            )
        stop = StopAt(StopPosition.OFFSET, end - 1)
        plan = ReadingPlan(
            stream=stream,
            partition=partition,
            start=StartAt.offset(start),
            stop=stop,
            start_found=True,
            resubscribe_timeout=self._resumed_for(UNSET, stop),
            unpause=unpause,
            from_isr_replica=False,
            reverse=False,
            timeout=self._seconds(timeout),
            now=time.time_ns(),
            make_visibility=self._visibility(committed, stream),
        )
        return parts.subscription(plan, timer_seconds(self.options.close_timeout), None)

    async def last(
        self,
        stream: str,
        *,
        n: int,
        partition: int | None = None,
        unpause: bool = False,
        committed: bool | ReadCommitted = False,
        timeout: Duration | None = None,
    ) -> list[Message]:
        """Return the last messages of a partition, the oldest of them first.

        These are fewer only if the log has no more; gaps from compaction and retention are skipped.
        Only messages on all in-sync replicas count. Cancelling abandons the calls.

        Args:
            stream: the stream to read.
            n: how many messages, from 0 up.
            partition: which of its partitions; None is the only one of the stream.
            unpause: resume the partition if it is paused.
            committed: as for `subscribe`: True returns those that such a reading shows
                last.
            timeout: seconds for everything; None is the client's call_timeout. If retention has
                emptied the log, finding that out takes 1.5 of them.

        Raises:
            InvalidRequest: the stream has several partitions, and none is named.
            StreamNotFound: no such stream.
            PartitionNotFound: the stream has no such partition.
            PartitionPaused: the partition is paused, and `unpause` is False.
            RequestTimeout: they could not be read in time.
            LiftbridgeError: the partition could not be read.
        """
        limit = self._seconds(timeout)
        parts = self._living
        with about(stream, partition):
            check_text(stream, "a stream name")
            if partition is not None:
                check_partition(partition)
            check_whole_number(n, "the number of messages", 0, INT64_MAX)
            check_flags(unpause=unpause)
        from liftbridge_aio._subscribe.log_start import last_messages  # noqa: PLC0415 - imports the network

        def subscribe(partition: int, start: StartAt, stop: StopAt) -> Subscription:
            return self.subscribe(
                stream,
                partition=partition,
                start=start,
                stop=stop,
                unpause=unpause,
                committed=committed,
                timeout=limit,
            )

        filtered = self._visibility(committed, stream) is not None
        return await last_messages(
            parts.network,
            subscribe,
            stream,
            partition,
            n,
            limit,
            unpause=unpause,
            filtered=filtered,
        )

    async def oldest_offset(
        self, stream: str, partition: int = 0, *, timeout: Duration | None = None
    ) -> int:
        """Return the offset of the oldest message that can be read. Cancelling abandons the call.

        If there is none, because nothing was published or retention has removed everything, it is
        the offset of the next message: one behind the high watermark. Finding out that retention
        has removed everything takes a second or two, as servers do not say so.

        Args:
            stream: its name.
            partition: which of its partitions.
            timeout: seconds for everything; None is the client's call_timeout.

        Raises:
            StreamNotFound: no such stream.
            PartitionNotFound: the stream has no such partition.
            LiftbridgeError: the leader did not answer in time.
        """
        limit = self._seconds(timeout)
        parts = self._living
        with about(stream, partition):
            check_text(stream, "a stream name")
            check_whole_number(partition, "a partition", 0, INT32_MAX)
        from liftbridge_aio._subscribe.log_start import readable_range  # noqa: PLC0415 - imports the network

        return (await readable_range(parts.network, stream, partition, limit)).start

    def _resumed_for(
        self, resubscribe_timeout: Duration | Unset | None, stop: StopAt | None
    ) -> Duration | None:
        """Return the seconds for which a reading is resumed after a break."""
        if not isinstance(resubscribe_timeout, Unset):
            return resubscribe_timeout
        chosen = self.options.resubscribe_timeout
        # A reading with an end is waited for, so it does not wait without one.
        return _BOUNDED_FOR if chosen is None and stop is not None else chosen

    async def _read_one(self, stream: str, partition: int, offset: int) -> Message | None:
        """Return the message at an offset; None if there is none. Bounded by call_timeout."""
        limit = self._seconds(None)
        network = self._living.network
        async with network.bounded(
            limit,
            "the message could not be read",
            call="Subscribe",
            stream=stream,
            partition=partition,
            offset=offset,
        ):
            state = await network.metadata.partition(stream, partition, limit)
            if offset > state.newest_offset:
                return None  # and a subscription would wait for it
            at, end = StartAt.offset(offset), StopAt.offset(offset)
            async with self.read(stream, partition=partition, start=at, stop=end) as subscription:
                async for message in subscription:
                    return message
        return None


def _positions_of(
    producer: transactions.Producer, cursor: str | None, *, reverse: bool
) -> PositionStore:
    from liftbridge_aio.transactions.producer import Producer  # noqa: PLC0415 - not before use

    check_type(producer, Producer, "positions is a producer with a store")
    if cursor is not None:
        raise InvalidRequest("positions are stored by a cursor or by a producer, not by both")
    if reverse:
        raise InvalidRequest("a subscription with positions of a producer cannot read in reverse")
    return producer.subscription_positions()


def _cursor_interval(cursor: str | None, interval: Duration, *, reverse: bool) -> float:
    if cursor is not None:
        check_text(cursor, "the id of a cursor")
        if not cursor:
            raise InvalidRequest("a cursor needs an id")
        if reverse:
            raise InvalidRequest("a subscription with a cursor cannot read in reverse")
    length = timer_seconds(interval, "cursor_interval")
    if not length:
        raise InvalidRequest("cursor_interval must be longer than 0 seconds")
    return length
