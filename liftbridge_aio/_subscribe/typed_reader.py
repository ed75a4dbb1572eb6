"""Converts messages of any source, one by one, as they are read."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from liftbridge_aio.errors import UsageError
from liftbridge_aio.model import Message
from liftbridge_aio.options import Duration

from .subscription_base import BATCH_SIZE, Batches, MessageBatches

ItemT_co = TypeVar("ItemT_co", covariant=True)
SourceT_co = TypeVar("SourceT_co", bound=AsyncIterable[Message], covariant=True)


class TypedReader(Generic[ItemT_co, SourceT_co]):
    """An async iterator over the converted messages of a source.

    Iterate it, inside `async with` or without. Entering and leaving this enters and leaves the
    source, if the source is a context manager; do not enter it if the source was entered
    already. One task may read at a time.

    Made by `TypedStream.subscribe`, `TypedStream.read` and `Client.activity`.

    Args:
        source: a subscription, or any other async iterable of messages.
        convert: called for each message; None leaves it out. An exception is raised in place of the
            message, and the next step continues after it.
    """

    def __init__(self, source: SourceT_co, convert: Callable[[Message], ItemT_co | None]) -> None:
        self._source = source
        self._convert = convert
        self._left_out = 0
        self._next: Callable[[], Awaitable[Message]] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._source!r} left_out={self._left_out}>"

    @property
    def source(self) -> SourceT_co:
        """The source of the messages: a subscription has its position, statistics and more."""
        return self._source

    @property
    def left_out(self) -> int:
        """Number of messages that were read and left out."""
        return self._left_out

    async def __aenter__(self) -> Self:
        """Enter the source; see its documentation for cancelling."""
        enter = getattr(self._source, "__aenter__", None)
        if enter is not None:
            await enter()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the source; close it if it is no context manager."""
        leave = getattr(self._source, "__aexit__", None)
        if leave is not None:
            await leave(exc_type, exc, traceback)
        else:
            await self.aclose()

    async def aclose(self) -> None:
        """Close the source, if it can be closed; see its documentation for cancelling."""
        close = getattr(self._source, "aclose", None)
        if close is not None:
            await close()

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> ItemT_co:
        """Return the next item; wait for a message if none is buffered.

        Cancelling loses no message: the next call returns it.

        Raises:
            StopAsyncIteration: the source ended.
            UndecodableMessage: the message cannot be decoded; the next call continues after it.
            LiftbridgeError: what the source raises.
        """
        if self._next is None:
            self._next = aiter(self._source).__anext__
        while True:
            item = self._converted(await self._next())
            if item is not None:
                return item

    def batches(
        self,
        max_size: int = BATCH_SIZE,
        wait: Duration = 0.0,
    ) -> Batches[ItemT_co]:
        """Read lists, in order and never empty, instead of one by one.

        A list ends before a message that cannot be decoded; the next step raises its error, and the
        one after that continues behind it. If the source has a cursor, messages whose errors were
        raised count as delivered.

        Args:
            max_size: messages in a list, at most.
            wait: seconds to wait for more than one; 0 takes what is buffered.

        Raises:
            InvalidRequest: an argument makes no sense.
            UsageError: the source cannot be read in lists.
        """
        source: Any = self._source
        lists = source.batches(max_size, wait) if hasattr(source, "batches") else None
        if not isinstance(lists, MessageBatches):
            raise UsageError(f"{source!r} cannot be read in lists")
        return lists.converted(self._converted)

    def _converted(self, message: Message) -> ItemT_co | None:
        item = self._convert(message)
        if item is None:
            self._left_out += 1
        return item
