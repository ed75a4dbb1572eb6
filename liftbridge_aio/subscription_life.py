"""How subscriptions begin and end: what those to one partition and to many have in common."""

from __future__ import annotations

import asyncio
import enum
import warnings
from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING, Self

from .errors import ClientClosed, LiftbridgeError, UsageError
from .model import EndReason
from .net.supervisor import wait_despite_cancellation
from .reading import Reading

if TYPE_CHECKING:
    from .durable_reading import DurableReading


class SubscriptionState(enum.Enum):
    """Life of a subscription."""

    NEW = "new"
    READING = "reading"
    ENDED = "ended"


class SubscriptionLife(ABC):
    """Base of subscriptions: entering, leaving, closing and being dropped.

    Args:
        close_timeout: seconds that closing may wait, for tasks and for the cursor each.
        durable: keeps a cursor where the reader is; None keeps none.
    """

    stream: str

    def __init__(self, close_timeout: float, durable: DurableReading | None) -> None:
        self._close_timeout = close_timeout
        self._durable = durable
        self._state = SubscriptionState.NEW
        self._entered = False
        self._loop = asyncio.get_running_loop()

    @property
    def state(self) -> SubscriptionState:
        """Whether it has started or ended."""
        return self._state

    # What each kind does in its own way

    @abstractmethod
    def _readings(self) -> list[Reading]:
        """Return the readings that there are."""

    @abstractmethod
    async def _begin(self) -> None:
        """Begin to read, and wait until the server has accepted."""

    @abstractmethod
    def _put_down(self) -> None:
        """Take note that the reader is done with everything that was handed out."""

    @abstractmethod
    def _wake(self) -> None:
        """Have the reader look again."""

    # Life

    async def __aenter__(self) -> Self:
        """Subscribe and wait until the server has accepted.

        Cancelling ends the subscription.

        Raises:
            StreamNotFound: no broker knows the stream.
            PartitionNotFound: the stream has no such partition.
            StreamReset: the log ends before its cursor: it is not the one that was read.
            CursorsUnavailable: the server keeps no cursors, and there is one to be kept.
            ClientClosed: the client, or this, was closed meanwhile.
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
                not reading.accepted and reading.feed.reason is EndReason.CLOSED
                for reading in self._readings()
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

        Where a cursor is kept, what was handed out counts as finished unless an exception comes
        through here. Then an error of storing is told to the hook and not raised.
        """
        if exc_type is None:
            self._put_down()
        error = await self._close()
        if error is not None and exc_type is None:
            raise error

    async def aclose(self) -> None:
        """End the subscription and drop what is buffered. May be called again, from any task.

        Where a cursor is kept, it is stored a last time; what the reader has in hand is not
        finished. Cancelling does not keep it from ending; each wait is bounded by close_timeout.

        Raises:
            LiftbridgeError: the cursor could not be stored.
        """
        error = await self._close()
        if error is not None:
            raise error

    async def commit(self) -> None:
        """Store now how far the reader is done. Cancelling abandons the wait.

        Done is what was handed out, but for the last message or list, which counts once the next
        one is asked for.

        Raises:
            UsageError: it keeps no cursor.
            LiftbridgeError: it could not be stored; it is tried again by and by.
        """
        if self._durable is None:
            raise self._wrong_time("this subscription keeps no cursor; subscribe with cursor=")
        await self._durable.commit()

    async def _close(self) -> LiftbridgeError | None:
        self._entered = False
        self._state = SubscriptionState.ENDED
        readings = self._readings()
        for reading in readings:
            reading.drop()
        self._wake()
        error: LiftbridgeError | None = None
        try:
            if self._durable is not None:
                error = await self._durable.close(self._close_timeout)
        finally:
            await wait_despite_cancellation(_all_closed(readings), self._close_timeout)
        return error

    def _drop(self) -> None:
        self._state = SubscriptionState.ENDED
        for reading in self._readings():
            reading.drop()
        if self._durable is not None:
            self._durable.stop()
        self._wake()

    def _check_not_closed(self) -> None:
        if self._state is SubscriptionState.ENDED:
            raise self._closed_too_early()

    def _closed_too_early(self) -> ClientClosed:
        text = "closed before the server had accepted the subscription"
        return ClientClosed(text, stream=self.stream)

    def _check_not_ended(self) -> None:
        if self._state is SubscriptionState.ENDED:
            raise self._wrong_time("a subscription that has ended cannot be sent elsewhere")

    def _wrong_time(self, text: str) -> UsageError:
        return UsageError(text, stream=self.stream)

    def __del__(self) -> None:
        if getattr(self, "_loop", None) is None:
            return
        if self._entered:
            warnings.warn(f"{self!r} was entered but never left", ResourceWarning, stacklevel=2)
        if self._state is SubscriptionState.NEW or self._loop.is_closed():
            return
        # The collector may run in any thread.
        for reading in self._readings():
            if reading.feed.held_bytes or not reading.feed.ended:
                self._loop.call_soon_threadsafe(reading.drop)
        if self._durable is not None:
            self._loop.call_soon_threadsafe(self._durable.stop)


async def _all_closed(readings: list[Reading]) -> None:
    for reading in readings:
        await reading.wait_closed()
