"""A partition of Liftbridge that is followed from where its state is known, and written with care.

Whoever writes says which offset the message must get, so of several gateways that write at the same
time one succeeds, and the others read what it wrote and decide again.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import uuid
from collections.abc import Callable, Mapping
from typing import Final

from liftbridge_aio._client.client import Client
from liftbridge_aio._runtime.supervisor import Child, Supervisor
from liftbridge_aio._subscribe.committed_state import committed_state
from liftbridge_aio.durable_streams.core.native import NativeView
from liftbridge_aio.errors import (
    IncorrectOffset,
    LiftbridgeError,
    PublishOutcomeUnknown,
    RequestTimeout,
    StreamReset,
)
from liftbridge_aio.model import AckPolicy, PartitionInfo, StartAt
from liftbridge_aio.options import timer_seconds
from liftbridge_aio.retry import Backoff

logger = logging.getLogger("liftbridge_aio.durable_streams")

Apply = Callable[[int, bytes, bytes, Mapping[str, bytes], int], None]
"""Takes a message: its offset, key, value, headers and timestamp."""

_ID: Final = "ds-id"
"""Header that makes each message unique, so that an attempt to store it is recognised."""
_PLACE: Final = "ds-place"
"""Header of a message with further headers: the stream and the offset for which it was written.

At another place somebody has forwarded the headers, and they say nothing about that log.
"""
_PROCESS: Final = uuid.uuid4().bytes[:8]
_numbers: Final = itertools.count()
_BACKOFF: Final = Backoff(initial=0.05, maximum=1.0)


class FollowedLog:
    """A partition and its next offset.

    Args:
        client: reads and writes.
        supervisor: owns the task that follows.
        stream: Liftbridge's name.
        apply: takes each message, in order.
        partition: its number.
        view: makes what is applied of the messages, for logs that are not the gateway's own, and so
            are not written, and not resumed when they are paused; None: they are applied as they
            are.
    """

    # State, changed only in the event loop: `next_offset` by `_take` and by `catch_up`, `_child`
    # and `_failure` by `follow` and the task that it starts.

    def __init__(
        self,
        client: Client,
        supervisor: Supervisor,
        stream: str,
        apply: Apply,
        *,
        partition: int = 0,
        view: Callable[[], NativeView] | None = None,
    ) -> None:
        self.stream = stream
        self.partition = partition
        self.next_offset = 0
        """The offset of the next message that is applied."""
        self.unread = 0
        """Messages appended since somebody read it or waited; whoever appends and reads counts."""
        self.lock = asyncio.Lock()
        """Held from a decision until what was decided is stored."""
        self._client = client
        self._supervisor = supervisor
        self._apply = apply
        self._view = view
        self._child: Child | None = None
        self._failure: LiftbridgeError | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._awaited: bytes | None = None
        """The id of the message that is being stored; None once it is known to be."""

    # Following

    async def open(self) -> None:
        """Follow the log, and wait until all is applied that it holds. Cancelling ends the wait.

        Raises:
            LiftbridgeError: it could not be read in time.
        """
        if self._child is not None and self._child.done:
            self._child = None
        if self._child is None:
            await self._skip_removed()
            await self.catch_up()

    async def holds(self, offset: int) -> bool:
        """Return True if everything before an offset is or was in the log.

        Cancelling abandons the call.

        Raises:
            LiftbridgeError: no server answered.
        """
        return offset <= (await self._info()).newest_offset + 1

    async def newest_time(self) -> float:
        """Return when its newest message was stored, by the server's clock; 0.0 if it has none.

        Cancelling ends the reading.

        Raises:
            LiftbridgeError: it could not be read.
        """
        await self._committed()
        found = await self._client.last(self.stream, n=1, partition=self.partition, unpause=True)
        return found[-1].timestamp / 1e9 if found else 0.0

    async def open_at_end(self) -> None:
        """Follow the log from its end on. Cancelling ends the wait."""
        self.next_offset = (await self._info()).high_watermark + 1
        self.follow()

    async def _skip_removed(self) -> None:
        """Begin where the log begins, if retention has removed messages."""
        info = await self._info()
        if info.high_watermark >= self.next_offset:
            oldest = await self._client.oldest_offset(self.stream, self.partition)
            self.next_offset = max(self.next_offset, oldest)

    async def _info(self) -> PartitionInfo:
        return await self._client.fetch_partition_metadata(self.stream, self.partition)

    @property
    def failed(self) -> bool:
        """True if it can be followed no more, as it was deleted or created again."""
        return self._failure is not None

    def check(self) -> None:
        """Refuse to go on if it can be followed no more.

        Raises:
            LiftbridgeError: it cannot.
        """
        if self._failure is not None:
            raise self._failure

    def follow(self) -> None:
        """Follow the log from the next offset on, if that is not done yet."""
        if self._child is None or self._child.done:
            self._failure = None
            self._child = self._supervisor.spawn(self._follow, name=f"follow:{self.stream}")

    async def _follow(self) -> None:
        view = None if self._view is None else self._view()
        try:
            subscription = self._client.subscribe(
                self.stream,
                partition=self.partition,
                start=StartAt.offset(self.next_offset),
                unpause=view is None,
                committed=False if view is None else view.reads,
            )
            async with subscription:
                async for batch in subscription.batches():
                    before = self.next_offset
                    if view is not None:
                        for position, value in view.show(batch):
                            self._take(position, b"", value, {}, 0)
                    elif batch[-1].offset >= before:  # else all were applied when they were acked
                        for each in batch:
                            self._take(
                                each.offset, each.key, each.value, each.headers, each.timestamp
                            )
                    if self.next_offset != before:
                        self.wake()
        except LiftbridgeError as error:
            self._failure = error
            logger.info("the log %s is followed no more: %s", self.stream, error)
        finally:
            self.wake()

    def _take(
        self, offset: int, key: bytes, value: bytes, headers: Mapping[str, bytes], timestamp: int
    ) -> None:
        if offset < self.next_offset:
            return  # applied when it was acked
        if self._awaited is not None and headers.get(_ID) == self._awaited:
            self._awaited = None
        self.next_offset = offset + 1
        if headers.get(_PLACE, own := self._place(offset)) != own:
            headers = {}
        self._apply(offset, key, value, headers, timestamp)

    def _place(self, offset: int) -> bytes:
        return f"{self.stream}/{offset}".encode()

    def wake(self) -> None:
        """Wake whoever waits for messages."""
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, waiter: asyncio.Future[None]) -> None:
        """Wait for a future, which is done once messages were applied, or anybody ends it before.

        Cancelling ends the wait.

        Raises:
            LiftbridgeError: the log cannot be followed.
        """
        if self._failure is not None:
            raise self._failure
        self.unread = 0
        if self._child is None:
            self.follow()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    async def changed(self) -> None:
        """Wait until messages were applied. Cancelling ends the wait.

        Raises:
            LiftbridgeError: the log cannot be followed.
        """
        await self.wait(asyncio.get_running_loop().create_future())
        if self._failure is not None:
            raise self._failure

    async def catch_up(self) -> None:
        """Wait until everything is applied that is committed now. Cancelling ends the wait.

        Raises:
            LiftbridgeError: the log could not be read in time.
        """
        self.follow()
        try:
            async with asyncio.timeout(timer_seconds(self._client.options.call_timeout)):
                info = await self._committed()
                while self.next_offset <= info.high_watermark:
                    await self.changed()
        except TimeoutError as error:
            if isinstance(error, LiftbridgeError):
                raise
            raise RequestTimeout(
                f"the log {self.stream} could not be read in time", stream=self.stream
            ) from None

    async def _committed(self) -> PartitionInfo:
        """Return the state of the partition once all that is stored is committed."""
        return await committed_state(
            self._info,
            lambda offset: self._client.publish(
                self.stream, b"", ack_policy=AckPolicy.ALL, expected_offset=offset
            ),
        )

    @property
    def paused(self) -> bool:
        """True if it is not followed now, so that what other gateways store is not known."""
        return self._child is None

    def pause(self) -> None:
        """Follow it no more until somebody waits for messages, or `resume` is called."""
        if self._child is not None:
            self._child.cancel()
            self._child = None

    async def resume(self) -> None:
        """Follow it again, and wait until all is applied that it holds. Cancelling ends the wait.

        Raises:
            StreamReset: servers have lost messages that were applied; the log has failed.
            LiftbridgeError: it could not be read in time.
        """
        newest = (await self._info()).newest_offset
        if newest < self.next_offset - 1:
            raise self._lost(newest)
        await self.catch_up()

    def close(self) -> None:
        """Follow it no more."""
        if self._child is not None:
            self._child.cancel()

    # Writing

    async def append(
        self, value: bytes, headers: Mapping[str, bytes], key: bytes | None = None
    ) -> None:
        """Store a message at the next offset and apply it. Call it with the lock held.

        Cancelling leaves it open if it is stored; if so, it is applied as the log is followed.

        Args:
            value: the message.
            headers: its headers.
            key: its key.

        Raises:
            IncorrectOffset: another message was stored there, which is applied now: decide again.
            StreamReset: servers have lost messages that were applied; the log has failed.
            PublishOutcomeUnknown: it may be stored.
            LiftbridgeError: it is not stored.
        """
        offset, attempt = self.next_offset, 0
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 2 * timer_seconds(self._client.options.ack_timeout)
        self._awaited = identity = b"%b%x" % (_PROCESS, next(_numbers))
        if headers:
            headers = {**headers, _PLACE: self._place(offset)}
        headers = {**headers, _ID: identity}
        while self._awaited is not None:
            try:
                ack = await self._client.publish(
                    self.stream,
                    value,
                    key,
                    headers,
                    ack_policy=AckPolicy.ALL,
                    expected_offset=offset,
                )
            except IncorrectOffset:
                await self._pass(offset)
                if self._awaited is not None:
                    raise
            except PublishOutcomeUnknown:
                if loop.time() > deadline:
                    raise
                await asyncio.sleep(_BACKOFF.delay(attempt, random.random()))  # noqa: S311 - jitter
                attempt += 1
            else:
                self._awaited = None
                if self.next_offset <= offset:  # else it came back before its ack
                    self._take(offset, key or b"", value, headers, ack.reception_timestamp)
                    self.wake()

    async def _pass(self, offset: int) -> None:
        """Apply what stands at an offset, unless it is gone again.

        Raises:
            StreamReset: the log ends before what was applied.
            LiftbridgeError: the log could not be read in time.
        """
        while self.next_offset <= offset:
            newest = (await self._committed()).newest_offset
            if newest < offset - 1:
                raise self._lost(newest)
            if newest < offset:
                return
            await self.catch_up()

    def _lost(self, newest: int) -> StreamReset:
        """Follow a log no more that ends before what was applied."""
        text = f"the log {self.stream} has lost messages from offset {newest + 1} on"
        self._failure = error = StreamReset(text, stream=self.stream, offset=newest + 1)
        self.close()
        self.wake()
        return error
