"""The handle of a subscription to several partitions, read as one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Self, TypeVar, overload

from .arguments import INT64_MAX, about, check_type, check_whole_number
from .batches import Batches
from .errors import InvalidRequest, LiftbridgeError, UsageError
from .for_each import for_each
from .merge import Merge
from .model import EndReason, Message, StartAt
from .options import Duration, timer_seconds
from .raw_message import RawMessage
from .reading import Reading
from .seekable_reading import SeekableReading, SubscriptionStatistics, start_at
from .subscription_life import SubscriptionLife, SubscriptionState

if TYPE_CHECKING:
    from .durable_reading import DurableReading
    from .merged_plan import MergedPlan
    from .net.connection import Connection
    from .read_budget import ReadBudget

T = TypeVar("T")


class _Ends:
    """How the partitions ended: apart, so that what reads them does not hold the subscription."""

    def __init__(self) -> None:
        self.reasons: dict[int, EndReason] = {}
        self.errors: dict[int, LiftbridgeError] = {}

    def ended(self, reading: Reading) -> None:
        """Take note of an end, and raise what it was, if it was an error."""
        partition, feed = reading.plan.partition, reading.feed
        error = feed.take_error()
        if error is not None:
            self.errors[partition] = error
            raise error
        if feed.reason is not None:
            self.reasons[partition] = feed.reason


class MergedSubscription(SubscriptionLife):
    """Several partitions of a stream read as one; each resumes by itself.

    Iterate it, inside `async with` or without, as a `Subscription`. All starts are fixed before
    the first message is handed out. The order of each partition is kept; between partitions there
    is none, but each gets its turn. One task may read at a time.

    An error of one partition is raised once, with the partition in it; the others can be read on,
    and `seek` takes that one up again. The iteration ends when all partitions have ended.

    Make one with `Client.subscribe`.
    """

    def __init__(
        self,
        plan: MergedPlan,
        connection: Connection,
        budget: ReadBudget,
        close_timeout: float,
        durable: DurableReading | None = None,
    ) -> None:
        super().__init__(close_timeout, durable)
        self.stream = plan.stream
        self._plan = plan
        self._connection = connection
        self._budget = budget
        self._ends = _Ends()
        self._merge = Merge(self._ends.ended, connection.reporter.delivered, ends_with_last=True)
        self._places: dict[int, SeekableReading] = {}
        self._paused: set[int] = set()
        if plan.partitions is not None:
            self._make_places(plan.partitions)

    def __repr__(self) -> str:
        """Show what is read, and how it is."""
        partitions = ",".join(map(str, self._places)) or "all"
        buffered = sum(place.current.intake.buffered for place in self._places.values())
        return (
            f"<MergedSubscription {self.stream}/{partitions} {self._state.value}"
            f" buffered={buffered}>"
        )

    @property
    def partitions(self) -> tuple[int, ...]:
        """What is read; with `ALL_PARTITIONS` known on entering, and empty before."""
        return tuple(self._places)

    @property
    def positions(self) -> dict[int, int | None]:
        """The offset to be read next, for each partition; see `Subscription.position`."""
        return {partition: place.position for partition, place in self._places.items()}

    @property
    def end_reasons(self) -> dict[int, EndReason]:
        """Why partitions ended in an orderly way: those that have, once all was read or closed."""
        return dict(self._ends.reasons)

    @property
    def errors(self) -> dict[int, LiftbridgeError]:
        """The errors of partitions that ended with one, once it was raised."""
        return dict(self._ends.errors)

    async def lag(self, *, timeout: Duration | None = None) -> dict[int, int]:
        """Ask the leaders how far behind the end each partition is; see `Subscription.lag`.

        Cancelling abandons the calls.

        Args:
            timeout: seconds for each answer; None is what the first handshake has.

        Raises:
            UsageError: it reads towards lower offsets, or which partitions there are is not known
                yet.
            StreamNotFound: the stream is gone.
            LiftbridgeError: a leader could not be reached in time.
        """
        self._chosen(None)
        limit = self._plan.timeout if timeout is None else timer_seconds(timeout, "timeout")
        lags = await for_each(self._places.values(), lambda place: place.lag(limit))
        return dict(zip(self._places, lags, strict=True))

    def statistics(self) -> SubscriptionStatistics:
        """Return figures of this moment, of all partitions together."""
        each = [place.statistics() for place in self._places.values()]
        if not each:
            return SubscriptionStatistics(0, 0, 0, 0, 0)
        return SubscriptionStatistics(*map(sum, zip(*each, strict=True)))

    # Reading

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message of any partition, waiting for it if need be.

        Cancelling loses no message: the next call returns it.

        Raises:
            StopAsyncIteration: all partitions have ended; `end_reasons` tells how.
            ConcurrentRead: another task is waiting already.
            LiftbridgeError: a partition ended otherwise. Each error is raised once.
        """
        ready = self._merge.ready
        return ready.popleft() if ready else await self._next()

    async def _next(self) -> Message:
        if self._state is SubscriptionState.NEW:
            await self._begin()
        try:
            return await self._merge.take_next()
        except StopAsyncIteration:
            self._state = SubscriptionState.ENDED
            raise

    @overload
    def batches(
        self, max: int = ..., wait: Duration = ..., *, raw: Literal[False] = False
    ) -> Batches[Message]: ...

    @overload
    def batches(
        self, max: int = ..., wait: Duration = ..., *, raw: Literal[True]
    ) -> Batches[RawMessage]: ...

    @overload
    def batches(
        self, max: int = ..., wait: Duration = ..., *, raw: bool
    ) -> Batches[Message] | Batches[RawMessage]: ...

    def batches(
        self,
        max: int = 1000,  # noqa: A002 - says it best where it is called
        wait: Duration = 0.0,
        *,
        raw: bool = False,
    ) -> Batches[Message] | Batches[RawMessage]:
        """Read lists of messages, never empty; see `Subscription.batches`.

        A list may hold messages of several partitions, those of each in order.

        Args:
            max: messages in a list, at most.
            wait: seconds to wait for more than one; 0 takes what is there.
            raw: gives each message as a `RawMessage`, undecoded.

        Raises:
            InvalidRequest: an argument makes no sense.
        """
        with about(self.stream):
            check_whole_number(max, "the size of a batch", 1, INT64_MAX)
            seconds = timer_seconds(wait, "wait")
        if raw:
            return Batches(self._take_raw, max, seconds)
        return Batches(self._take, max, seconds)

    async def _take(self, most: int, wait: float) -> list[Message]:
        return await self._list(self._merge.take, most, wait)

    async def _take_raw(self, most: int, wait: float) -> list[RawMessage]:
        return await self._list(self._merge.take_raw, most, wait)

    async def _list(
        self, take: Callable[[int, float], Awaitable[list[T]]], most: int, wait: float
    ) -> list[T]:
        if self._state is SubscriptionState.NEW:
            await self._begin()
        try:
            return await take(most, wait)
        except StopAsyncIteration:
            self._state = SubscriptionState.ENDED
            raise

    # Elsewhere, and later

    async def seek(self, to: int | StartAt | Mapping[int, int | StartAt]) -> None:
        """Go on reading from elsewhere; see `Subscription.seek`.

        A partition that has ended, in whatever way, is read again. Cancelling abandons the wait;
        all are sent elsewhere all the same.

        Args:
            to: an offset or any start: for all partitions, or for each of those named in a mapping.

        Raises:
            UsageError: the subscription has ended, or does not know its partitions yet.
            InvalidRequest: that is no start, lies behind the stop or, with a cursor, behind the end
                of the log; or names a partition that is not read.
            LiftbridgeError: a partition was not accepted; the others go on.
        """
        self._check_not_ended()
        chosen = self._chosen(to if isinstance(to, Mapping) else None)
        targets = to if isinstance(to, Mapping) else dict.fromkeys(chosen, to)
        plans = {
            partition: self._places[partition].plan_from(start_at(target, self.stream, partition))
            for partition, target in targets.items()
        }
        if self._durable is not None:
            await for_each(plans.values(), self._durable.check_target)
            self._check_not_ended()
        before = [self._places[partition].seek(plan) for partition, plan in plans.items()]
        for reading in before:
            self._merge.remove(reading)
            reading.drop()
        for partition in plans:
            if self._durable is not None:
                self._durable.sought(self.stream, partition)
            self._ends.reasons.pop(partition, None)
            self._ends.errors.pop(partition, None)
        if self._state is SubscriptionState.READING:
            await self._read([self._places[partition] for partition in plans])

    def pause(self, partitions: Iterable[int] | None = None) -> None:
        """Hand nothing out of partitions until `resume`, not even their ends.

        Messages go on coming until buffers are full, which stops the server; a reader that waits
        gets what others have. With all of them paused he goes on waiting.

        Args:
            partitions: which; None: all that are read.

        Raises:
            UsageError: which partitions there are is not known yet.
            InvalidRequest: one of them is not read.
        """
        chosen = self._chosen(partitions)
        self._paused |= chosen
        self._merge.hold(self._places[partition].current for partition in chosen)

    def resume(self, partitions: Iterable[int] | None = None) -> None:
        """Hand messages out again. Harmless where nothing is paused.

        Args:
            partitions: which; None: all that are read.

        Raises:
            UsageError: which partitions there are is not known yet.
            InvalidRequest: one of them is not read.
        """
        chosen = self._chosen(partitions)
        self._paused -= chosen
        self._merge.release(self._places[partition].current for partition in chosen)

    @property
    def paused(self) -> frozenset[int]:
        """The partitions of which nothing is handed out for now."""
        return frozenset(self._paused)

    def _chosen(self, partitions: Iterable[int] | None) -> set[int]:
        if not self._places:
            raise self._wrong_time("which partitions there are is known on entering; wait for that")
        if partitions is None:
            return set(self._places)
        check_type(partitions, Iterable, "partitions are several numbers, in a list for one")
        chosen = set(partitions)
        unknown = chosen - self._places.keys()
        if unknown:
            text = f"partitions {sorted(unknown, key=str)} are none of those that are read"
            raise InvalidRequest(text, stream=self.stream)
        return chosen

    # The beginning and the end

    def _readings(self) -> list[Reading]:
        return [place.current for place in self._places.values()]

    def _make_places(self, partitions: Sequence[int]) -> None:
        self._places = {
            plan.partition: SeekableReading(plan, self._connection, self._budget)
            for plan in self._plan.for_partitions(partitions)
        }

    async def _begin(self) -> None:
        if self._durable is not None and not self._entered:
            raise self._wrong_time("a subscription with a cursor is read inside `async with`")
        if not self._places:
            info = await self._connection.metadata.stream(self.stream, renew=True)
            if not self._places:  # another task may have begun it meanwhile
                self._make_places(sorted(info.partitions))
        places = list(self._places.values())
        if self._durable is not None:
            merge = self._merge
            await self._durable.take_up(
                [(place, _finished_by(merge, place)) for place in places], self._plan.timeout
            )
        self._check_not_closed()
        if self._state is SubscriptionState.READING:
            return  # another task has begun it meanwhile
        self._state = SubscriptionState.READING
        try:
            await self._read(places)
        except LiftbridgeError:
            self._drop()
            raise

    async def _read(self, places: Sequence[SeekableReading]) -> None:
        """Begin to read these, and wait until the server has accepted.

        Raises:
            LiftbridgeError: what one of them ended with.
        """
        readings = [place.current for place in places]
        try:
            for reading in readings:
                reading.begin()
        except LiftbridgeError:
            self._drop()
            raise
        for reading in readings:
            self._merge.add(reading)
            if reading.plan.partition in self._paused:
                self._merge.hold([reading])
        for reading in readings:
            await asyncio.shield(reading.started)
        for reading in readings:
            if reading.feed.ended and not reading.intake.buffered:
                error = reading.feed.take_error()
                if error is not None:
                    self._ends.errors[reading.plan.partition] = error
                    raise error

    def _close_merge(self) -> None:
        for reading in tuple(self._merge.readings):
            self._merge.remove(reading)
            if reading.feed.reason is not None:
                self._ends.reasons[reading.plan.partition] = reading.feed.reason
        self._merge.finish()

    def _put_down(self) -> None:
        self._merge.put_down()

    def _wake(self) -> None:
        if self._state is SubscriptionState.ENDED:
            self._close_merge()
        self._merge.wake()

    def _wrong_time(self, text: str) -> UsageError:
        return UsageError(text, stream=self.stream)


def _finished_by(merge: Merge, place: SeekableReading) -> Callable[[], int | None]:
    return lambda: place.finished_at(merge.finished(place.current))
