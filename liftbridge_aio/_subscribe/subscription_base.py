"""Base of subscriptions: lists of messages, entering and leaving."""

from __future__ import annotations

import asyncio
import enum
import warnings
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Generic, Literal, Protocol, Self, TypeVar, overload

from liftbridge_aio._core.arguments import INT64_MAX, about, check_flags, check_whole_number
from liftbridge_aio._runtime.supervisor import wait_despite_cancellation
from liftbridge_aio.errors import ClientClosed, LiftbridgeError, UsageError
from liftbridge_aio.model import EndReason, Message, StartAt
from liftbridge_aio.options import Duration, timer_seconds
from liftbridge_aio.wire.raw_message import RawMessage

from .partition_reader import PartitionReader

if TYPE_CHECKING:
    from .position_store import PositionStore

T = TypeVar("T")

BATCH_SIZE: Final = 1000
"""Messages in a list of `batches`, at most, if nobody has said."""


class TakeAs(Protocol):
    """Takes a list of converted messages."""

    def __call__(
        self, most: int, wait: float, convert: Callable[[Message], T | None], /
    ) -> Awaitable[list[T]]:
        """Return a list; see `MessageBatches.converted`."""


class Batches(Generic[T]):
    """An async iterator of lists that are never empty; made by `Subscription.batches`."""

    def __init__(
        self, take: Callable[[int, float], Awaitable[list[T]]], most: int, wait: float
    ) -> None:
        self._take = take
        self._most = most
        self._wait = wait

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> list[T]:
        """Return the next list; wait for messages if none are buffered.

        Cancelling loses no message: the next call returns it.

        Raises:
            StopAsyncIteration: an orderly end of the subscription.
            ConcurrentRead: another task is waiting already.
            LiftbridgeError: any other end. Each error is raised once.
        """
        return await self._take(self._most, self._wait)


class MessageBatches(Batches[Message]):
    """Lists of messages, which can be converted as they are taken."""

    def __init__(
        self,
        take: Callable[[int, float], Awaitable[list[Message]]],
        take_as: TakeAs,
        most: int,
        wait: float,
    ) -> None:
        super().__init__(take, most, wait)
        self._take_as = take_as

    def converted(self, convert: Callable[[Message], T | None]) -> Batches[T]:
        """Return lists of the results of `convert`, without None.

        Messages are converted before they are taken, so none is taken without being delivered. If
        `convert` raises, the list ends before that message; the next step takes that message and
        raises the error.
        """

        async def take(most: int, wait: float) -> list[T]:
            return await self._take_as(most, wait, convert)

        return Batches(take, self._most, self._wait)


class MessageSource(ABC):
    """Base of what can be read in lists: subscriptions and members of consumer groups."""

    _where: tuple[str | None, int | None] = None, None
    """The stream and partition that errors name."""

    @abstractmethod
    async def _take(self, most: int, wait: float) -> list[Message]:
        """Return up to `most` messages, at least one; see `batches`."""

    @abstractmethod
    async def _take_as(
        self, most: int, wait: float, convert: Callable[[Message], T | None]
    ) -> list[T]:
        """Return the results of `convert`; see `MessageBatches.converted`."""

    @abstractmethod
    async def _take_raw(self, most: int, wait: float) -> list[RawMessage]:
        """Return up to `most` messages undecoded, at least one."""

    @overload
    def batches(
        self, max_size: int = ..., wait: Duration = ..., *, raw: Literal[False] = False
    ) -> Batches[Message]: ...

    @overload
    def batches(
        self, max_size: int = ..., wait: Duration = ..., *, raw: Literal[True]
    ) -> Batches[RawMessage]: ...

    @overload
    def batches(
        self, max_size: int = ..., wait: Duration = ..., *, raw: bool
    ) -> Batches[Message] | Batches[RawMessage]: ...

    def batches(
        self,
        max_size: int = BATCH_SIZE,
        wait: Duration = 0.0,
        *,
        raw: bool = False,
    ) -> Batches[Message] | Batches[RawMessage]:
        """Read lists of messages, in order and never empty, instead of one by one.

        A list is returned as soon as `max_size` messages are buffered, or `wait` seconds after its
        first one was, or as soon as so many are buffered that the server might have to stop. If
        several partitions are read, a list may hold messages of each, in the order of that
        partition. A list is finished when the next one is requested. Iterating over messages and
        over batches may take turns.

        Args:
            max_size: messages in a list, at most.
            wait: seconds to wait for more than one; 0 takes what is there.
            raw: gives each message as a `RawMessage`: only offset and timestamp are decoded, the
                rest stays encoded. A hook's `delivered` is not called for these.

        Raises:
            InvalidRequest: an argument makes no sense.
        """
        with about(*self._where):
            check_flags(raw=raw)
        seconds = self._checked_wait(max_size, wait)
        if raw:
            return Batches(self._take_raw, max_size, seconds)
        return MessageBatches(self._take, self._take_as, max_size, seconds)

    def _checked_wait(self, most: int, wait: Duration) -> float:
        """Check the size of a batch and the wait for it; return the wait in seconds.

        Raises:
            InvalidRequest: one of them makes no sense.
        """
        with about(*self._where):
            check_whole_number(most, "max_size", 1, INT64_MAX)
            return timer_seconds(wait, "wait")


class SubscriptionState(enum.Enum):
    """State of a subscription."""

    NEW = "new"
    READING = "reading"
    ENDED = "ended"


class SubscriptionBase(MessageSource):
    """Base of subscriptions: entering, leaving, closing and being dropped.

    Args:
        close_timeout: seconds that closing may wait, for tasks and for the cursor each.
        durable: stores the positions; None stores none.
    """

    stream: str

    def __init__(self, close_timeout: float, durable: PositionStore | None) -> None:
        self._close_timeout = close_timeout
        self._durable = durable
        self._state = SubscriptionState.NEW
        self._entered = False
        self._loop = asyncio.get_running_loop()

    @property
    def state(self) -> SubscriptionState:
        """The state: new, reading or ended."""
        return self._state

    @property
    def position_store(self) -> PositionStore | None:
        """The store of its positions, if there is one."""
        return self._durable

    # Implemented by each kind

    @abstractmethod
    def move(self, starts: Mapping[int, StartAt]) -> None:
        """Continue reading at other positions, and wait for nothing: for what stores positions.

        What a server says to it is found by the next step. Not after the end.

        Args:
            starts: where to, by partition.

        Raises:
            ClientClosed: the client is not running.
        """

    async def missed(self) -> dict[int, tuple[range, ...]]:
        """Return the last gaps in each partition that retention has left before it was read.

        Waits up to some seconds until it is known what has left a gap. Cancelling abandons the
        wait.
        """
        return {reader.plan.partition: await reader.missed.gaps() for reader in self._readers()}

    @abstractmethod
    def _readers(self) -> list[PartitionReader]:
        """Return the current readers."""

    @abstractmethod
    async def _begin(self) -> None:
        """Begin to read, and wait until the server has accepted."""

    @abstractmethod
    def _mark_finished(self) -> None:
        """Count everything that was delivered as finished."""

    @abstractmethod
    def _wake(self) -> None:
        """Wake a task that waits for a message."""

    # Entering and leaving

    async def __aenter__(self) -> Self:
        """Subscribe and wait until the server has accepted.

        Cancelling ends the subscription.

        Raises:
            StreamNotFound: no broker knows the stream.
            PartitionNotFound: the stream has no such partition.
            StreamReset: the log ends before its cursor, so it is another log.
            CursorsUnavailable: the server stores no cursors, and this subscription has one.
            ClientClosed: the client or this subscription was closed meanwhile.
            LiftbridgeError: it was not accepted, or no server answered.
        """
        if self._state is SubscriptionState.ENDED:
            raise self._wrong_time("a subscription can be read once; make a new one")
        self._entered = True
        try:
            await self._begin()
            if self._durable is not None:
                await self._durable.begin()
            if any(
                not reader.accepted and reader.buffer.reason is EndReason.CLOSED
                for reader in self._readers()
            ):
                raise self._closed_too_early()
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
        """End the subscription; see `aclose`.

        With a cursor, everything that was delivered counts as finished unless the block raised. In
        that case an error of the last commit is reported to the hook and not raised.
        """
        if exc_type is None:
            self._mark_finished()
        error = await self._close()
        if error is not None and exc_type is None:
            raise error

    async def aclose(self) -> None:
        """End the subscription and discard what is buffered. May be called again, from any task.

        A cursor is stored a last time; the message or list that was delivered last does not count
        as finished. Cancelling does not prevent the end; each wait is bounded by close_timeout.

        Raises:
            LiftbridgeError: the cursor could not be stored.
        """
        error = await self._close()
        if error is not None:
            raise error

    async def commit(self) -> None:
        """Store the cursor now. Cancelling abandons the wait.

        Everything that was delivered is finished, except the last message or list, which counts
        once the next one is requested.

        Raises:
            UsageError: it has no cursor.
            LiftbridgeError: it could not be stored; the next commit retries.
        """
        if self._durable is None:
            raise self._wrong_time("this subscription has no cursor; subscribe with cursor=")
        await self._durable.commit()

    async def _close(self) -> LiftbridgeError | None:
        self._entered = False
        self._state = SubscriptionState.ENDED
        readers = self._readers()
        for reader in readers:
            reader.drop()
        self._wake()
        error: LiftbridgeError | None = None
        try:
            if self._durable is not None:
                error = await self._durable.close(self._close_timeout)
        finally:
            await wait_despite_cancellation(_all_closed(readers), self._close_timeout)
        return error

    def _drop(self) -> None:
        self._state = SubscriptionState.ENDED
        for reader in self._readers():
            reader.drop()
        if self._durable is not None:
            self._durable.stop()
        self._wake()

    def _check_not_closed(self) -> None:
        if self._state is SubscriptionState.ENDED:
            raise self._closed_too_early()

    def _closed_too_early(self) -> ClientClosed:
        text = "closed before the server had accepted the subscription"
        return ClientClosed(text, stream=self.stream)

    def _outside(self) -> UsageError:
        return self._wrong_time("a subscription that stores positions is read inside `async with`")

    def _check_not_ended(self) -> None:
        if self._state is SubscriptionState.ENDED:
            raise self._wrong_time("a subscription that has ended cannot seek; make a new one")

    def _wrong_time(self, text: str) -> UsageError:
        return UsageError(text, stream=self.stream)

    def __del__(self) -> None:
        if getattr(self, "_loop", None) is None:
            return
        if self._entered:
            warnings.warn(f"{self!r} was entered but never left", ResourceWarning, stacklevel=2)
        if self._state is SubscriptionState.NEW or self._loop.is_closed():
            return
        # The garbage collector may run in any thread.
        for reader in self._readers():
            if reader.buffer.held_bytes or not reader.buffer.ended:
                self._loop.call_soon_threadsafe(reader.drop)
        if self._durable is not None:
            self._loop.call_soon_threadsafe(self._durable.stop)


async def _all_closed(readers: list[PartitionReader]) -> None:
    for reader in readers:
        await reader.wait_closed()
