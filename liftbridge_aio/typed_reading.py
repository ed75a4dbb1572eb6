"""Messages from anywhere, turned into something else one by one, as they are read."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar, runtime_checkable

from .batches import Batches
from .errors import UsageError
from .model import Message
from .options import Duration, timer_seconds

ItemT_co = TypeVar("ItemT_co", covariant=True)
SourceT_co = TypeVar("SourceT_co", bound=AsyncIterable[Message], covariant=True)


@runtime_checkable
class _ReadInLists(Protocol):
    """A source that can be read in lists, as subscriptions can."""

    def batches(self, max: int, wait: Duration) -> AsyncIterator[list[Message]]:  # noqa: A002
        """Read lists of messages."""
        ...


class TypedReading(Generic[ItemT_co, SourceT_co]):
    """An async iterator over what the messages of a source stand for.

    Iterate it, inside `async with` or without. Entering and leaving this enters and leaves the
    source, where the source is a context manager; a source that was entered already is only
    iterated over. One task may read at a time.

    Made by `TypedStream.subscribe`, `TypedStream.read` and `Client.activity`.

    Args:
        source: a subscription, or any other async iterable of messages.
        convert: what a message stands for; None leaves it out. What it raises is raised in place
            of the message, and the next step goes on after it.
    """

    def __init__(self, source: SourceT_co, convert: Callable[[Message], ItemT_co | None]) -> None:
        self._source = source
        self._convert = convert
        self._left_out = 0
        # Of a list in which something raised: what is still to be raised and handed over.
        self._errors: deque[Exception] = deque()
        self._items: deque[ItemT_co] = deque()
        self._next: Callable[[], Awaitable[Message]] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._source!r} left_out={self._left_out}>"

    @property
    def source(self) -> SourceT_co:
        """Where the messages come from: a subscription has its position, statistics and more."""
        return self._source

    @property
    def left_out(self) -> int:
        """How many messages were read and not handed over."""
        return self._left_out

    async def __aenter__(self) -> Self:
        """Enter the source.

        Cancelling does to it what it does to the source.
        """
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
        """Leave the source; see `aclose`."""
        leave = getattr(self._source, "__aexit__", None)
        # A source that keeps a cursor must not take for finished what was not handed over.
        finished = exc_type is not None or not (self._errors or self._items)
        if leave is not None and (finished or not hasattr(self._source, "aclose")):
            await leave(exc_type, exc, traceback)
        else:
            await self.aclose()

    async def aclose(self) -> None:
        """Close the source, where it can be closed.

        Cancelling does to it what it does to the source.
        """
        self._errors.clear()
        self._items.clear()
        close = getattr(self._source, "aclose", None)
        if close is not None:
            await close()

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> ItemT_co:
        """Return what the next message stands for, waiting for it if need be.

        Cancelling loses no message: the next call returns it.

        Raises:
            StopAsyncIteration: the source ended.
            UndecodableMessage: the next message cannot be read; the next call goes on after it.
            LiftbridgeError: what the source raises.
        """
        if self._next is None:
            self._next = aiter(self._source).__anext__
        while True:
            if self._errors:
                raise self._errors.popleft()
            if self._items:
                return self._items.popleft()
            item = self._convert(await self._next())
            if item is not None:
                return item
            self._left_out += 1

    def batches(
        self,
        max: int = 1000,  # noqa: A002 - as where it is read from
        wait: Duration = 0.0,
    ) -> Batches[ItemT_co]:
        """Read lists, in order and never empty, instead of one by one.

        Where a message that cannot be read is an error, it is raised before the list that it would
        have been in, so that nothing of that list is taken for finished; the next step goes on
        with the rest of the list.

        Args:
            max: messages in a list, at most.
            wait: seconds to wait for more than one; 0 takes what is there.

        Raises:
            InvalidRequest: an argument makes no sense.
            UsageError: the source cannot be read in lists.
        """
        source: Any = self._source
        if not isinstance(source, _ReadInLists):
            text = f"{source!r} cannot be read in lists"
            raise UsageError(text)
        lists = source.batches(max, wait)

        async def take(most: int, _: float) -> list[ItemT_co]:
            while True:
                if self._errors:
                    raise self._errors.popleft()
                if self._items:
                    return [self._items.popleft() for _ in range(min(most, len(self._items)))]
                self._convert_list(await anext(lists))

        return Batches(take, max, timer_seconds(wait, "wait"))

    def _convert_list(self, messages: list[Message]) -> None:
        for message in messages:
            try:
                item = self._convert(message)
            except Exception as error:  # noqa: BLE001 - raised by the next step
                self._errors.append(error)
            else:
                if item is None:
                    self._left_out += 1
                else:
                    self._items.append(item)
