"""A stream's own log, as the gateway holds it: its state, and its newest messages."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from liftbridge_aio._client.client import Client
from liftbridge_aio._runtime.supervisor import Supervisor
from liftbridge_aio.durable_streams.core.native import NativeView
from liftbridge_aio.durable_streams.core.stream_log import Append, Outcome, StreamLog
from liftbridge_aio.errors import IncorrectOffset
from liftbridge_aio.model import StartAt, StopAt
from liftbridge_aio.transactions.errors import TransactionTruncated

from .followed_log import FollowedLog

_MOST_UNREAD: Final = 50
"""Messages that are appended until a log is not followed, if nobody reads it: to take each of them
a second time costs a fifth of an append, and to follow it again costs as much as a few."""


class Chunk(NamedTuple):
    """Messages in a row."""

    values: list[bytes]
    next_offset: int
    """Liftbridge's offset behind the last of them."""


class Found(NamedTuple):
    """Messages of a stream, and where the next ones are."""

    values: list[bytes]
    position: int
    """Behind the messages."""
    at_tail: bool
    """There are no more now."""
    closed: bool
    """There will be no more."""


class Shared(NamedTuple):
    """Messages that were read for one reader, as events for all that are at the same place."""

    found: Found
    events: bytes
    read_at: float
    """By the event loop's clock."""


class Saved(NamedTuple):
    """The place up to which a snapshot covers a stream."""

    next_offset: int
    writes: int


class Removed(Exception):
    """Retention has removed the message at an offset."""


class HostedStream:
    """A log that is followed, with its newest messages.

    Args:
        client: reads and writes.
        supervisor: owns the task that follows.
        name: Liftbridge's name.
        max_cached_bytes: the most bytes of values that are kept.
        partition: its number.
        view: makes what readers see of messages, for logs that are not the gateway's own; None:
            they see the values.
        snapshot: returns the newest snapshot of its state; None if there is none.
    """

    # State, changed only in the event loop: all but `used` by `_apply`, `_evict`.

    def __init__(
        self,
        client: Client,
        supervisor: Supervisor,
        name: str,
        max_cached_bytes: int,
        *,
        partition: int = 0,
        view: Callable[..., NativeView] | None = None,
        snapshot: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        self.log = FollowedLog(
            client, supervisor, name, self._apply, partition=partition, view=view
        )
        self.state = StreamLog()
        self.readers = 0
        """Requests that are using it."""
        self.used = 0.0
        """When the last request ended, by the event loop's clock."""
        self.shared: dict[tuple[int, str | None], Shared] = {}
        """Events for readers, by their position and their cursor, until a message is applied."""
        self._client = client
        self._view = view
        self._snapshot = snapshot
        self.saved = Saved(0, 0)
        """The place up to which the newest snapshot covers it."""
        self._max_cached_bytes = max_cached_bytes
        self._opening = asyncio.Lock()
        self._open = False
        self._offsets: list[int] = []
        self._values: list[bytes] = []
        self._cached_bytes = 0
        self._cached_from: int | None = None
        """The offset from which on all messages are cached; None before the first one."""

    async def open(self, *, new: bool = False, to_append: bool = False) -> None:
        """Follow the log; return when its state is known. Cancelling ends the wait.

        Args:
            new: True if its state is known already, as it was just created here.
            to_append: True if it need not be the present state, as `append` makes sure.

        Raises:
            LiftbridgeError: it could not be read.
        """
        if new:
            self._open = True
        elif not self._open:
            async with self._opening:
                if not self._open:
                    if self._view is None:
                        await self._restore()
                        await self.log.open()
                    else:
                        await self.log.open_at_end()
                    if self.state.next_offset < self.log.next_offset:
                        # It begins at the end, or everything is removed.
                        self.state.next_offset = self.state.tail = self.log.next_offset
                    self._open = True
        if to_append:
            return
        self.log.unread = 0
        if self.log.paused and not new:
            await self.log.resume()
        else:
            self.log.follow()

    async def _restore(self) -> None:
        """Begin with the newest snapshot, unless servers have lost what it is of."""
        snapshot = self._snapshot()
        if snapshot is None or self.log.next_offset:
            return
        state = StreamLog.from_snapshot(snapshot)
        if await self.log.holds(state.next_offset):
            self.state, self.log.next_offset = state, state.next_offset
            self.saved = Saved(state.next_offset, 0)

    @property
    def owned(self) -> bool:
        """True if it is the gateway's own log, and open."""
        return self._view is None and self._open

    def _apply(
        self, offset: int, _: bytes, value: bytes, headers: Mapping[str, bytes], __: int
    ) -> None:
        self.state.apply(offset, value, headers)
        self.shared.clear()
        if self._cached_from is None:
            self._cached_from = offset
        self._offsets.append(offset)
        self._values.append(value)
        self._cached_bytes += len(value)
        if self._cached_bytes > self._max_cached_bytes:
            self._evict()

    def _evict(self) -> None:
        """Remove the older half, and more if it is the smaller one."""
        count = 0
        while self._cached_bytes > self._max_cached_bytes // 2 and count < len(self._values):
            self._cached_bytes -= len(self._values[count])
            count += 1
        self._cached_from = self._offsets[count - 1] + 1
        del self._offsets[:count], self._values[:count]

    async def append(
        self, append: Append, *, type_matches: bool = True, expected: int | None = None
    ) -> Outcome:
        """Store an append, unless the state of the stream refuses it.

        Cancelling leaves it open if it is stored.

        Args:
            append: the append.
            type_matches: False if its content type is not the stream's.
            expected: where the tail must be; None: anywhere.

        Raises:
            PublishOutcomeUnknown: it may be stored.
            LiftbridgeError: it is not stored.
        """
        async with self.log.lock:
            while True:
                outcome = self.state.judge(append, type_matches=type_matches)
                if outcome.stored and expected is not None and expected != self.state.tail:
                    outcome = Outcome(412, stored=False, text="the tail is not where If-Match says")
                if not outcome.stored:
                    if not self.log.paused:
                        return outcome
                    await self.log.resume()
                    continue
                try:
                    await self.log.append(append.value, append.headers())
                except IncorrectOffset:
                    continue
                self.log.unread += 1
                if self.log.unread > _MOST_UNREAD:
                    self.log.pause()
                return outcome

    async def read(self, offset: int, limit: int | None, most: int, *, first: bool) -> Chunk:
        """Return messages from an offset on. Cancelling ends the read.

        Args:
            offset: Liftbridge's.
            limit: the offset at which to stop; None: the tail.
            most: bytes after which to stop; at least one message is returned.
            first: True to begin with the oldest message if that is a later one.

        Raises:
            Removed: the message is gone.
            LiftbridgeError: they could not be read.
        """
        end = self.state.tail if limit is None else min(limit, self.state.tail)
        if offset >= end:
            return Chunk([], end if limit is None else limit)
        if self._cached_from is None or offset < self._cached_from:
            return await self._read_log(offset, end, most, first=first)
        values, size = [], 0
        for index in range(bisect_left(self._offsets, offset), len(self._offsets)):
            if self._offsets[index] >= end or size >= most:
                end = min(end, self._offsets[index])
                break
            if value := self._values[index]:
                values.append(value)
                size += len(value)
        return Chunk(values, end)

    async def _read_log(self, offset: int, end: int, most: int, *, first: bool) -> Chunk:
        stop = min(end, self._cached_from or end) - 1
        oldest = await self._client.oldest_offset(self.log.stream, self.log.partition)
        if oldest > offset:
            if not first:
                raise Removed
            offset = oldest
        if offset > stop:
            return Chunk([], offset)
        view = None if self._view is None else self._view(skip_truncated=first)
        reading = self._client.read(
            self.log.stream,
            start=StartAt.offset(offset),
            stop=StopAt.offset(stop),
            partition=self.log.partition,
            unpause=view is None,
            committed=False if view is None else view.reads,
        )
        values: list[bytes] = []
        size = 0
        try:
            async with reading:
                async for batch in reading.batches():
                    found: Iterable[tuple[int, bytes]]
                    if view is None:
                        found = ((each.offset, each.value) for each in batch)
                    else:
                        found = view.show(batch)
                    for last, value in found:
                        if value:
                            values.append(value)
                            size += len(value)
                        if size >= most or last >= stop:
                            return Chunk(values, last + 1)
        except TransactionTruncated:
            raise Removed from None
        return Chunk(values, stop + 1)
