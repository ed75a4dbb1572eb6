"""The handle of a subscription: an async iterator and an async context manager."""

from __future__ import annotations

import asyncio
import enum
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from .errors import ClientClosed, UsageError
from .model import EndReason, Message
from .net.supervisor import wait_despite_cancellation
from .reading import Reading

if TYPE_CHECKING:
    from .net.connection import Connection
    from .net.supervisor import Child
    from .read_budget import ReadBudget
    from .reading_plan import ReadingPlan


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
    """Messages that wait here to be read."""
    buffered_bytes: int
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
        self._connection = connection
        self._close_timeout = close_timeout
        self._reading = Reading(plan, connection, budget)
        self._feed = self._reading.feed
        self._delivered_hook = connection.reporter.delivered
        self._delivered = 0
        self._state = SubscriptionState.NEW
        self._child: Child | None = None
        self._entered = False
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        """Show what is read, how far, and how it is."""
        last = self._reading.position.last
        return (
            f"<Subscription {self.stream}/{self.partition} {self._state.value}"
            f" last_offset={last} buffered={len(self._feed.messages)}>"
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
        """The last offset that came from the server; None before the first."""
        return self._reading.position.last

    def statistics(self) -> SubscriptionStatistics:
        """Return figures of this moment."""
        feed = self._feed
        return SubscriptionStatistics(
            self._delivered,
            len(feed.messages),
            feed.buffered_bytes,
            self._reading.resubscriptions,
            self._reading.dropped,
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
        feed = self._feed
        while not feed.messages:
            if self._state is SubscriptionState.NEW:
                await self._start()
                continue
            if feed.ended:
                self._state = SubscriptionState.ENDED
                error = feed.take_error()
                if error is not None:
                    raise error
                raise StopAsyncIteration
            await feed.wait()
        message = feed.pop()
        self._delivered += 1
        if self._delivered_hook is not None:
            self._delivered_hook(message)
        return message

    async def aclose(self) -> None:
        """End the subscription and drop what is buffered. May be called again, from any task.

        Cancelling does not keep it from ending; the wait is bounded by close_timeout.
        """
        self._entered = False
        self._drop()
        child = self._child
        if child is not None:
            await wait_despite_cancellation(child.wait(), self._close_timeout)

    async def _start(self) -> None:
        if self._state is SubscriptionState.NEW:
            self._state = SubscriptionState.READING
            name = f"subscription:{self.stream}:{self.partition}"
            self._child = self._connection.supervisor.spawn(self._reading.run, name=name)
        await asyncio.shield(self._reading.started)
        if self._feed.ended and not self._feed.messages:
            error = self._feed.take_error()
            if error is not None:
                self._state = SubscriptionState.ENDED
                raise error

    def _drop(self) -> None:
        self._state = SubscriptionState.ENDED
        self._feed.end(EndReason.CLOSED)
        self._feed.discard()
        if self._child is not None:
            self._child.cancel()

    def __del__(self) -> None:
        child = getattr(self, "_child", None)
        if child is None:
            return
        if self._entered:
            warnings.warn(f"{self!r} was entered but never left", ResourceWarning, stacklevel=2)
        if not child.done and not self._loop.is_closed():
            # The collector may run in any thread.
            self._loop.call_soon_threadsafe(child.cancel)
