"""The handle of a subscription: an async iterator and an async context manager."""

from __future__ import annotations

import asyncio
import enum
import warnings
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NamedTuple, Self, overload

from .arguments import INT64_MAX, about, check_whole_number
from .batches import Batches
from .errors import ClientClosed, UsageError
from .model import EndReason, Message
from .net.supervisor import wait_despite_cancellation
from .options import Duration, timer_seconds
from .raw_message import RawMessage
from .reading import Reading

if TYPE_CHECKING:
    from .net.connection import Connection
    from .read_budget import ReadBudget
    from .reading_plan import ReadingPlan
    from .wire.column_batch import ColumnBatch


class SubscriptionState(enum.Enum):
    """Life of a subscription."""

    NEW = "new"
    READING = "reading"
    ENDED = "ended"


class SubscriptionStatistics(NamedTuple):
    """Figures of one subscription."""

    delivered: int
    """Messages handed to the user."""
    buffered: int
    """Messages that wait here to be read; repeats among them are found when their turn comes."""
    buffered_bytes: int
    """Bytes of these, with what they cost beside in this process, about."""
    resubscriptions: int
    """How often it was resumed after a break."""
    dropped: int
    """Messages below the start, and repeats, that were not handed on."""


class Subscription:
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
    ) -> None:
        self.stream = plan.stream
        self.partition = plan.partition
        self._close_timeout = close_timeout
        self._reading = Reading(plan, connection, budget)
        self._feed = self._reading.feed
        self._intake = self._reading.intake
        self._delivered_hook = connection.reporter.delivered
        # What `__anext__` takes from without another look: nothing, where a hook is to be told.
        self._ready = self._intake.ready if self._delivered_hook is None else deque[Message]()
        self._state = SubscriptionState.NEW
        self._entered = False
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        """Show what is read, how far, and how it is."""
        return (
            f"<Subscription {self.stream}/{self.partition} {self._state.value}"
            f" last_offset={self.last_offset} buffered={self._intake.buffered}>"
        )

    @property
    def state(self) -> SubscriptionState:
        """Whether it has started or ended."""
        return self._state

    @property
    def end_reason(self) -> EndReason | None:
        """Why the reading ended in an orderly way; None before that, and after an error."""
        return self._feed.reason

    @property
    def last_offset(self) -> int | None:
        """The last offset that came from the server, read or not; None before the first."""
        return self._intake.last_offset

    def statistics(self) -> SubscriptionStatistics:
        """Return figures of this moment."""
        intake = self._intake
        return SubscriptionStatistics(
            intake.delivered,
            intake.buffered,
            intake.buffered_bytes,
            self._reading.resubscriptions,
            intake.dropped,
        )

    async def __aenter__(self) -> Self:
        """Subscribe and wait until the server has accepted.

        Cancelling ends the subscription.

        Raises:
            StreamNotFound: no broker knows the stream.
            PartitionNotFound: the stream has no such partition.
            ClientClosed: the client, or this, was closed meanwhile.
            LiftbridgeError: it was not accepted, or no server answered.
        """
        if self._state is SubscriptionState.ENDED:
            text = "a subscription can be read once; make a new one"
            raise UsageError(text, stream=self.stream, partition=self.partition)
        self._entered = True
        try:
            await self._start()
            if not self._reading.accepted and self._feed.reason is EndReason.CLOSED:
                text = "closed before the server had accepted the subscription"
                raise ClientClosed(text, stream=self.stream, partition=self.partition)
        except BaseException:
            self._entered = False
            self._drop()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the subscription; see `aclose`."""
        await self.aclose()

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
        intake = self._intake
        while not intake.refill():
            await self._something()
        message = intake.ready.popleft()
        if self._delivered_hook is not None:
            self._delivered_hook(message)
        return message

    async def _something(self) -> None:
        """Wait until a message waits to be looked at.

        Raises:
            StopAsyncIteration: an orderly end.
            LiftbridgeError: any other end.
        """
        feed = self._feed
        while not self._intake.buffered:
            if self._state is SubscriptionState.NEW:
                await self._start()
            elif feed.ended:
                self._state = SubscriptionState.ENDED
                error = feed.take_error()
                if error is not None:
                    raise error
                raise StopAsyncIteration
            else:
                await feed.wait()

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
        intake = self._intake
        while True:
            await self._gather(most, wait)
            messages = intake.take(most)
            if messages:
                break
        if self._delivered_hook is not None:
            for message in messages:
                self._delivered_hook(message)
        return messages

    async def _take_raw(self, most: int, wait: float) -> list[RawMessage]:
        while True:
            await self._gather(most, wait)
            messages = self._intake.take_raw(most, self.stream, self.partition)
            if messages:
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
        intake, feed = self._intake, self._feed
        intake.give_back()
        await self._something()
        if not wait or intake.buffered >= most:
            return
        try:
            async with asyncio.timeout(wait):
                while intake.buffered < most and not feed.half_full and not feed.ended:
                    await feed.wait(most - len(intake.ready))
        except TimeoutError:
            pass  # what is there will do

    # The end

    async def aclose(self) -> None:
        """End the subscription and drop what is buffered. May be called again, from any task.

        Cancelling does not keep it from ending; the wait is bounded by close_timeout.
        """
        self._entered = False
        self._drop()
        await wait_despite_cancellation(self._reading.wait_closed(), self._close_timeout)

    async def _start(self) -> None:
        if self._state is SubscriptionState.NEW:
            self._reading.begin()
            self._state = SubscriptionState.READING
        await asyncio.shield(self._reading.started)
        if self._feed.ended and not self._intake.buffered:
            error = self._feed.take_error()
            if error is not None:
                self._state = SubscriptionState.ENDED
                raise error

    def _drop(self) -> None:
        self._state = SubscriptionState.ENDED
        self._reading.drop()

    def __del__(self) -> None:
        reading: Reading | None = getattr(self, "_reading", None)
        if reading is None:
            return
        if self._entered:
            warnings.warn(f"{self!r} was entered but never left", ResourceWarning, stacklevel=2)
        left = reading.feed.held_bytes or not reading.feed.ended
        if left and self._state is not SubscriptionState.NEW and not self._loop.is_closed():
            # The collector may run in any thread.
            self._loop.call_soon_threadsafe(reading.drop)
