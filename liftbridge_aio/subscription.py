"""The handle of a subscription: an async iterator and an async context manager."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, Self, overload

from .arguments import INT64_MAX, about, check_whole_number
from .batches import Batches
from .errors import ClientClosed, UsageError
from .model import EndReason, Message, StartAt
from .options import Duration, timer_seconds
from .raw_message import RawMessage
from .reading import Reading
from .seekable_reading import SeekableReading, SubscriptionStatistics, start_at
from .subscription_life import SubscriptionLife, SubscriptionState

if TYPE_CHECKING:
    from .durable_reading import DurableReading
    from .net.connection import Connection
    from .read_budget import ReadBudget
    from .reading_plan import ReadingPlan
    from .wire.column_batch import ColumnBatch


class Subscription(SubscriptionLife):
    """An ordered reading of one partition that resumes by itself.

    Iterate it, inside `async with` or without. Inside, the start is fixed and errors such as an
    unknown stream are raised on entering; without, at the first step. Leaving a bare `async for`
    by `break` ends the subscription when the iterator is dropped. One task may read at a time.

    Every offset is delivered once and in order. Gaps are normal: compaction and retention make
    them. After an orderly end the iteration stops and `end_reason` says why.

    Make one with `Client.subscribe`.
    """

    def __init__(
        self,
        plan: ReadingPlan,
        connection: Connection,
        budget: ReadBudget,
        close_timeout: float,
        durable: DurableReading | None = None,
    ) -> None:
        super().__init__(close_timeout, durable)
        self.stream = plan.stream
        self.partition = plan.partition
        self._place = SeekableReading(plan, connection, budget)
        self._delivered_hook = connection.reporter.delivered
        self._paused = False
        self._attach()

    def _attach(self) -> None:
        """Take from the reading that counts now."""
        self._reading = self._place.current
        self._feed = self._reading.feed
        self._intake = self._reading.intake
        # What `__anext__` takes from without another look: nothing, where a hook is to be told.
        plain = self._delivered_hook is None and not self._paused
        self._ready = self._intake.ready if plain else deque[Message]()

    def __repr__(self) -> str:
        """Show what is read, how far, and how it is."""
        return (
            f"<Subscription {self.stream}/{self.partition} {self._state.value}"
            f" last_offset={self.last_offset} buffered={self._intake.buffered}>"
        )

    @property
    def end_reason(self) -> EndReason | None:
        """Why the reading ended in an orderly way; None before that, and after an error."""
        return self._feed.reason

    @property
    def connected(self) -> bool:
        """Whether a server serves it now; False before the first has, and during each break."""
        return self._reading.address is not None

    @property
    def last_offset(self) -> int | None:
        """The last offset that came from the server, read or not; None before the first."""
        return self._intake.last_offset

    @property
    def position(self) -> int | None:
        """The offset to be read next.

        One behind the last message that was handed out (in a reverse reading, one before it, and
        so -1 after offset 0). Before there is one, where the reading begins; None where that is
        not known yet: "earliest" and a time are known as offsets with the first message that
        comes, "new only" and "latest" on entering.
        """
        return self._place.position

    async def lag(self, *, timeout: Duration | None = None) -> int:
        """Ask the leader how far behind the end of the log this is. Cancelling abandons the call.

        Counted are offsets, from `position` to the newest committed message, both included. So
        messages that wait here unread count, the one in hand does not, and offsets that compaction
        or retention has emptied do. Where `position` is not known yet, from offset 0.

        Args:
            timeout: seconds for the answer; None is what the first handshake had.

        Raises:
            UsageError: it reads towards lower offsets.
            StreamNotFound: the stream is gone.
            LiftbridgeError: the leader could not be reached in time.
        """
        plan = self._place.plan
        limit = plan.timeout if timeout is None else timer_seconds(timeout, "timeout")
        return await self._place.lag(limit)

    def statistics(self) -> SubscriptionStatistics:
        """Return figures of this moment; they go on counting over seeks."""
        return self._place.statistics()

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message, waiting for it if need be.

        Cancelling loses no message: the next call returns it.

        Raises:
            StopAsyncIteration: an orderly end; `end_reason` tells which.
            SubscriptionLost: it broke and could not be resumed in time.
            StreamReset: the log is not the one that was being read.
            ConcurrentRead: another task is waiting already.
            LiftbridgeError: any other end. Each error is raised once.
        """
        ready = self._ready
        return ready.popleft() if ready else await self._next()

    async def _next(self) -> Message:
        """Return the next message where none is at hand."""
        self._place.asked()
        while self._paused or not self._intake.refill():
            await self._something()
        message = self._intake.ready.popleft()
        if self._delivered_hook is not None:
            self._delivered_hook(message)
        return message

    async def _something(self) -> None:
        """Wait until a message waits to be looked at.

        Raises:
            StopAsyncIteration: an orderly end.
            LiftbridgeError: any other end.
        """
        while True:
            ended = self._state is SubscriptionState.ENDED
            if self._state is SubscriptionState.NEW:
                await self._begin()
            elif self._paused and not ended:
                await self._feed.wait()
            elif self._intake.buffered:
                return
            elif self._feed.ended:
                self._state = SubscriptionState.ENDED
                error = self._feed.take_error()
                if error is not None:
                    raise error
                raise StopAsyncIteration
            else:
                await self._feed.wait()

    # Many at a time

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
        """Read lists of messages, in order and never empty, instead of one by one.

        A list is handed out as soon as `max` messages are there, or `wait` seconds after its first
        one was, or as soon as so many are there that the server might soon have to stop. Iterating
        over the subscription itself and over batches may take turns.

        Args:
            max: messages in a list, at most.
            wait: seconds to wait for more than one; 0 takes what is there.
            raw: gives each message as a `RawMessage`: only its place is read, the rest stays
                encoded. A hook's `delivered` is not told of these.

        Raises:
            InvalidRequest: an argument makes no sense.
        """
        with about(self.stream, self.partition):
            check_whole_number(max, "the size of a batch", 1, INT64_MAX)
            seconds = timer_seconds(wait, "wait")
        if raw:
            return Batches(self._take_raw, max, seconds)
        return Batches(self._take, max, seconds)

    async def _take(self, most: int, wait: float) -> list[Message]:
        messages: list[Message] = []
        while not messages:
            await self._gather(most, wait)
            messages = self._intake.take(most)
        if self._delivered_hook is not None:
            for message in messages:
                self._delivered_hook(message)
        return messages

    async def _take_raw(self, most: int, wait: float) -> list[RawMessage]:
        messages: list[RawMessage] = []
        while not messages:
            await self._gather(most, wait)
            messages = self._intake.take_raw(most, self.stream, self.partition)
        return messages

    async def read_columns(self, most: int, wait: float = 0.0) -> ColumnBatch | None:
        """Read the next messages as columns, for those who make tables of them.

        As with a list of `batches`, which this may take turns with. A hook's `delivered` is not
        told of these messages. Cancelling loses none of them.

        Args:
            most: messages, at most; at least 1.
            wait: seconds to wait for more than one.

        Returns:
            At least one message; None after an orderly end.

        Raises:
            ConcurrentRead: another task is waiting already.
            LiftbridgeError: any other end. Each error is raised once.
        """
        try:
            while True:
                await self._gather(most, wait)
                columns = self._intake.take_columns(most)
                if columns is not None:
                    return columns
        except StopAsyncIteration:
            return None

    async def _gather(self, most: int, wait: float) -> None:
        """Wait for a message, then for more."""
        self._place.asked()
        self._intake.give_back()
        await self._something()
        if wait and self._intake.buffered < most:
            with suppress(TimeoutError):  # what is there will do
                async with asyncio.timeout(wait):
                    await self._enough(most)
            # It may have been paused meanwhile, or sent elsewhere.
            await self._something()

    async def _enough(self, most: int) -> None:
        while self._intake.buffered < most and not self._feed.half_full and not self._feed.ended:
            await self._feed.wait(most - len(self._intake.ready))

    # Elsewhere, and later

    async def seek(self, to: int | StartAt) -> None:
        """Go on reading from elsewhere; a reader that waits in another task goes on there too.

        From the moment of the call nothing is handed out from where it was. Waits until the server
        has accepted, if the reading has begun. A `stop` stays where it is, "latest" where it was
        found. With a cursor, the position that is stored moves along, down as well (but
        v1.9.0 servers recover the highest one after a restart); to the beginning it moves with the
        first message that is finished, as servers keep no position below offset 0. Cancelling
        abandons the wait; it is sent elsewhere all the same, unless the end of the log was still
        being asked for.

        Args:
            to: an offset, or any start.

        Raises:
            UsageError: it has ended.
            InvalidRequest: that is no start, or lies behind the stop; or, with a cursor, behind
                the end of the log.
            LiftbridgeError: the server did not accept; the reading has ended.
        """
        self._check_not_ended()
        plan = self._place.plan_from(start_at(to, self.stream, self.partition))
        if self._durable is not None:
            await self._durable.check_target(plan)
            self._check_not_ended()
        before = self._place.seek(plan)
        if self._durable is not None:
            self._durable.sought(self.stream, self.partition)
        self._attach()
        before.drop()
        if self._state is SubscriptionState.READING:
            try:
                self._reading.begin()
            except ClientClosed:
                self._drop()
                raise
            finally:
                before.feed.bell.ring()
            await self._accepted()

    def pause(self) -> None:
        """Hand nothing out until `resume`, not even the end. May be called again.

        Messages go on coming until the buffer is full, which stops the server. A reader that waits
        goes on waiting.
        """
        self._paused = True
        self._attach()

    def resume(self) -> None:
        """Hand messages out again. Harmless where it is not paused."""
        self._paused = False
        self._attach()
        self._wake()

    # The beginning and the end

    def _readings(self) -> list[Reading]:
        return [self._reading]

    async def _begin(self) -> None:
        if self._durable is not None and self._state is SubscriptionState.NEW:
            if not self._entered:
                raise self._wrong_time("a subscription with a cursor is read inside `async with`")
            place = self._place
            await self._durable.take_up([(place, lambda: place.finished)], place.plan.timeout)
            self._check_not_closed()
            self._attach()
        if self._state is SubscriptionState.NEW:
            self._reading.begin()
            self._state = SubscriptionState.READING
        await self._accepted()

    async def _accepted(self) -> None:
        reading = self._reading
        await asyncio.shield(reading.started)
        if reading.feed.ended and not reading.intake.buffered:
            error = reading.feed.take_error()
            if error is not None:
                if reading is self._reading:
                    self._state = SubscriptionState.ENDED
                raise error

    def _put_down(self) -> None:
        self._place.asked()

    def _wake(self) -> None:
        self._feed.bell.ring()

    def _wrong_time(self, text: str) -> UsageError:
        return UsageError(text, stream=self.stream, partition=self.partition)
