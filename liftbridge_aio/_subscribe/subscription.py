"""Subscription to one partition: an async iterator and an async context manager."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Self, TypeVar

from liftbridge_aio._core.arguments import partition_numbers
from liftbridge_aio._core.public_face import as_one_class
from liftbridge_aio.errors import ClientClosed, UsageError
from liftbridge_aio.model import EndReason, Message, StartAt
from liftbridge_aio.options import Duration, timer_seconds
from liftbridge_aio.wire.raw_message import RawMessage

from .partition_reader import PartitionReader
from .seekable_reader import ReadStatistics, SeekableReader, start_at
from .subscription_base import SubscriptionBase, SubscriptionState

if TYPE_CHECKING:
    from liftbridge_aio.net.network import Network
    from liftbridge_aio.wire.column_batch import ColumnBatch

    from .core.checkpoint import Checkpoint
    from .core.memory_budget import MemoryBudget
    from .core.plan import ReadingPlan
    from .position_store import PositionStore

T = TypeVar("T")


@as_one_class
class Subscription(SubscriptionBase):
    """An ordered read of one partition, which resubscribes after breaks.

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
        network: Network,
        budget: MemoryBudget,
        close_timeout: float,
        durable: PositionStore | None = None,
    ) -> None:
        super().__init__(close_timeout, durable)
        self.stream = plan.stream
        self.partition = plan.partition
        self._where = plan.stream, plan.partition
        self._seekable = SeekableReader(plan, network, budget)
        self._delivered_hook = network.reporter.delivered
        self._paused = False
        self._attach()

    def _attach(self) -> None:
        """Take messages from the current reader."""
        self._reader = self._seekable.current
        self._buffer = self._reader.buffer
        self._decoder = self._reader.decoder
        # `__anext__` takes from here without a check: empty if a hook is to be called.
        plain = self._delivered_hook is None and not self._paused
        self._ready = self._decoder.ready if plain else deque[Message]()

    def __repr__(self) -> str:
        """Show the partition, the state and the last offset."""
        return (
            f"<Subscription {self.stream}/{self.partition} {self._state.value}"
            f" last_offset={self.last_offset} buffered={self._decoder.buffered}>"
        )

    @property
    def end_reason(self) -> EndReason | None:
        """The reason of an orderly end; None before that, and after an error."""
        return self._buffer.reason

    @property
    def connected(self) -> bool:
        """True while a server serves it; False before the first does, and during breaks."""
        return self._reader.address is not None

    @property
    def last_offset(self) -> int | None:
        """The last offset received from the server, delivered or not; None before the first."""
        return self._decoder.last_offset

    @property
    def position(self) -> int | None:
        """The offset to be delivered next.

        One behind the last delivered message (in reverse, one before it, and so -1 after offset 0).
        Before the first message, the start; None while that is not known: "earliest" and a time
        are known as offsets with the first message, "new only" and "latest" on entering.
        """
        return self._seekable.position

    async def lag(self, *, timeout: Duration | None = None) -> int:
        """Ask the leader how far behind the end of the log this is. Cancelling abandons the call.

        The lag counts the offsets from `position` to the newest committed message, both included.
        Messages that are buffered here count; the last delivered one does not, nor do messages that
        retention has removed. Gaps left by compaction count. While `position` is not known, it is
        the oldest message. A log that retention has emptied takes a second or two, as servers do
        not say so. `Client.statistics` has the lag as last known, without a call.

        Args:
            timeout: seconds for the answer; None: as for the first handshake.

        Raises:
            UsageError: it reads in reverse.
            StreamNotFound: the stream is gone.
            LiftbridgeError: the leader could not be reached in time.
        """
        plan = self._seekable.plan
        limit = plan.timeout if timeout is None else timer_seconds(timeout, "timeout")
        return await self._seekable.lag(limit)

    def checkpoint(self) -> Checkpoint:
        """Return a start behind the last delivered message, also in the middle of a transaction.

        To be stored by the program with what it has made of the messages: the last message or list
        that was delivered counts as read. A subscription that starts at it goes on exactly there,
        see `Checkpoint` for its bounds. Before the first message it is the start.

        Raises:
            UsageError: it reads in reverse.
        """
        return self._reader.checkpoint()

    def statistics(self) -> ReadStatistics:
        """Return the counters of this subscription; they continue after seeks."""
        return self._seekable.statistics()

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message; wait for it if none is buffered.

        Cancelling loses no message: the next call returns it.

        Raises:
            StopAsyncIteration: an orderly end; `end_reason` says which.
            SubscriptionLost: it broke and could not be resumed in time.
            StreamReset: the log is not the one that was read before.
            ConcurrentRead: another task is waiting already.
            LiftbridgeError: any other end. Each error is raised once.
        """
        ready = self._ready
        return ready.popleft() if ready else await self._next()

    async def _next(self) -> Message:
        """Return the next message if none is decoded."""
        self._seekable.mark_finished()
        while self._paused or not self._decoder.refill():
            await self._something()
        message = self._decoder.ready.popleft()
        if self._delivered_hook is not None:
            self._delivered_hook(message)
        return message

    async def _something(self) -> None:
        """Wait until a message is buffered.

        Raises:
            StopAsyncIteration: an orderly end.
            LiftbridgeError: any other end.
        """
        while True:
            ended = self._state is SubscriptionState.ENDED
            if self._state is SubscriptionState.NEW:
                await self._begin()
            elif self._paused and not ended:
                await self._buffer.wait()
            elif self._decoder.buffered:
                return
            elif self._buffer.over:
                self._state = SubscriptionState.ENDED
                error = self._buffer.take_error()
                if error is not None:
                    raise error
                raise StopAsyncIteration
            else:
                await self._buffer.wait()

    # Many at a time

    async def _take(self, most: int, wait: float) -> list[Message]:
        messages: list[Message] = []
        while not messages:
            await self._gather(most, wait)
            messages = self._decoder.take(most)
        if self._delivered_hook is not None:
            for message in messages:
                self._delivered_hook(message)
        return messages

    async def _take_as(
        self, most: int, wait: float, convert: Callable[[Message], T | None]
    ) -> list[T]:
        items: list[T] = []
        while not items:
            await self._gather(most, wait)
            items = self._decoder.take_as(most, convert, self._delivered_hook)
        return items

    async def _take_raw(self, most: int, wait: float) -> list[RawMessage]:
        messages: list[RawMessage] = []
        while not messages:
            await self._gather(most, wait)
            messages = self._decoder.take_raw(most, self.stream, self.partition)
        return messages

    async def read_columns(self, most: int, wait: Duration = 0.0) -> ColumnBatch | None:
        """Read the next messages as columns, to make tables of them.

        Works as a list of `batches`, and may take turns with these. A hook's `delivered` is not
        called for these messages. Cancelling loses none of them.

        Args:
            most: messages, at most; at least 1.
            wait: seconds to wait for more than one.

        Returns:
            At least one message; None after an orderly end.

        Raises:
            ConcurrentRead: another task is waiting already.
            InvalidRequest: an argument makes no sense.
            LiftbridgeError: any other end. Each error is raised once.
        """
        seconds = self._checked_wait(most, wait)
        try:
            while True:
                await self._gather(most, seconds)
                columns = self._decoder.take_columns(most)
                if columns is not None:
                    return columns
        except StopAsyncIteration:
            return None

    async def _gather(self, most: int, wait: float) -> None:
        """Wait for a message, then for more."""
        self._seekable.mark_finished()
        self._decoder.release_delivered()
        await self._something()
        if wait and self._decoder.buffered < most:
            with suppress(TimeoutError):  # return what is buffered
                async with asyncio.timeout(wait):
                    await self._enough(most)
            # It may have been paused meanwhile, or have sought.
            await self._something()

    async def _enough(self, most: int) -> None:
        while (
            self._decoder.buffered < most and not self._buffer.half_full and not self._buffer.over
        ):
            await self._buffer.wait(most - len(self._decoder.ready))

    # Seeking and pausing

    async def seek(self, to: int | StartAt) -> None:
        """Continue reading at another position, also in a task that waits for a message.

        From this call on nothing is delivered from the position before. Waits until the server has
        accepted, if reading has begun. A `stop` stays where it is, "latest" at the offset that it
        had. With a cursor, the stored position follows, down as well (but v1.9.0 servers recover
        the highest one after a restart); after a seek to the beginning it is stored with the first
        finished message, as servers store no position below offset 0. Cancelling abandons the wait;
        the seek takes effect all the same, unless the end of the log was still being looked up.

        Args:
            to: an offset, or any start.

        Raises:
            UsageError: it has ended.
            InvalidRequest: that is no start, or is behind the stop or, with a cursor, behind the
                end of the log.
            LiftbridgeError: the server did not accept; the subscription has ended.
        """
        self._check_not_ended()
        plan = self._seekable.plan_from(start_at(to, self.stream, self.partition))
        if self._durable is not None:
            await self._durable.check_target(plan)
            self._check_not_ended()
        self._move(plan)
        if self._state is SubscriptionState.READING:
            await self._accepted()

    def move(self, starts: Mapping[int, StartAt]) -> None:
        """Continue reading at another position, see `SubscriptionBase.move`."""
        for partition in partition_numbers(list(starts)):
            self._move(self._seekable.plan_from(starts[partition]))

    def _move(self, plan: ReadingPlan) -> None:
        before = self._seekable.seek(plan)
        if self._durable is not None:
            self._durable.sought(self.stream, self.partition)
        self._attach()
        before.drop()
        if self._state is SubscriptionState.READING:
            try:
                self._reader.begin()
            except ClientClosed:
                self._drop()
                raise
            finally:
                before.buffer.bell.ring()

    def pause(self) -> None:
        """Deliver nothing until `resume`, not even the end. May be called again.

        Messages are received until the buffer is full, which stops the server. A task that waits
        for a message keeps waiting.
        """
        self._paused = True
        self._attach()

    def resume(self) -> None:
        """Deliver messages again. Does nothing if it is not paused."""
        self._paused = False
        self._attach()
        self._wake()

    # Beginning and end

    def _readers(self) -> list[PartitionReader]:
        return [self._reader]

    async def _begin(self) -> None:
        if self._durable is not None and self._state is SubscriptionState.NEW:
            if not self._entered:
                raise self._outside()
            seekable = self._seekable
            await self._durable.set_starts(
                [(seekable, lambda: seekable.finished)], seekable.plan.timeout
            )
            self._check_not_closed()
            self._attach()
        if self._state is SubscriptionState.NEW:
            self._reader.begin()
            self._state = SubscriptionState.READING
        await self._accepted()

    async def _accepted(self) -> None:
        reader = self._reader
        await asyncio.shield(reader.started)
        if reader.buffer.over and not reader.decoder.buffered:
            error = reader.buffer.take_error()
            if error is not None:
                if reader is self._reader:
                    self._state = SubscriptionState.ENDED
                raise error

    def _mark_finished(self) -> None:
        self._seekable.mark_finished()

    def _wake(self) -> None:
        self._buffer.bell.ring()

    def _wrong_time(self, text: str) -> UsageError:
        return UsageError(text, stream=self.stream, partition=self.partition)
