"""One response that consists of server-sent events: from the subscription to its last message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, TypedDict, Unpack

import anyio

from liftbridge_aio.batches import Batches
from liftbridge_aio.errors import (
    ClientClosed,
    InvalidRequest,
    LiftbridgeError,
    NotFound,
    PermissionDenied,
    StreamReset,
    UnsupportedByServer,
    UsageError,
)
from liftbridge_aio.integrations.server_sent_events import (
    END,
    HEARTBEAT,
    Event,
    as_text,
    failure,
    id_of,
    mark,
    offset_of,
    opening,
)
from liftbridge_aio.integrations.service import Service
from liftbridge_aio.model import EndReason, Message, StartAt, StopAt, StopPosition
from liftbridge_aio.options import Duration, timer_seconds
from liftbridge_aio.subscription import Subscription

logger = logging.getLogger("liftbridge_aio.integrations")

_NEW_ONLY: Final = StartAt.new_only()
_OK: Final = 200
_NOTHING_MORE: Final = 204
"""The status at which a browser does not come back."""
_AT_ONCE: Final = 32
"""Messages in one write, at most: enough that a write costs little beside them."""

Write = Callable[[bytes], Awaitable[object]]
"""Sends bytes to the browser, and waits while it takes no more."""
Begin = Callable[[int], Awaitable[Write]]
"""Begins the response with an HTTP status."""
Wait = Callable[[], Awaitable[object]]
"""Waits until something has happened."""


class Subscribing(TypedDict, total=False):
    """What is handed on to `Client.subscribe`, see there."""

    resubscribe_timeout: Duration | None
    resume: bool
    from_isr_replica: bool
    timeout: Duration | None


class EventStreamOptions(Subscribing, total=False):
    """What to read, and how to send it."""

    partition: int
    """Which of the stream's partitions; 0 if left out. A response has one partition."""
    start: StartAt
    """Where to begin if the browser does not say how far it is; left out: with what is new."""
    stop: StopAt | None
    """Where to end; left out: never."""
    to_event: Callable[[Message], Event | None]
    """Makes an event of a message; None leaves the message out. Left out: `as_text`."""
    heartbeat: Duration
    """Seconds of silence after which proxies are shown that the connection is in use: 15."""
    retry: Duration
    """Seconds until a browser that lost its connection connects again: 2."""


class EventStream:
    """Answers one request with the messages of a partition.

    The id of an event is the offset of its message. A browser sends the last one that it got when
    it comes back, and is given what follows.

    Args:
        service: what reads.
        stream: what is read.
        last_event_id: what the browser sent; None or empty: nothing.

    Raises:
        InvalidRequest: an option makes no sense.
    """

    def __init__(
        self,
        service: Service,
        stream: str,
        last_event_id: str | None,
        *,
        partition: int = 0,
        start: StartAt = _NEW_ONLY,
        stop: StopAt | None = None,
        to_event: Callable[[Message], Event | None] = as_text,
        heartbeat: Duration = 15.0,
        retry: Duration = 2.0,
        **subscribing: Unpack[Subscribing],
    ) -> None:
        self._service = service
        self._stream = stream
        self._partition = partition
        self._last_event_id = last_event_id or None
        self._start = start
        self._stop = stop
        self._to_event = to_event
        self._heartbeat = timer_seconds(heartbeat, "heartbeat")
        self._retry = timer_seconds(retry, "retry")
        self._subscribing = subscribing

    async def serve(self, begin: Begin, gone: Wait) -> None:
        """Send events until the reading ends, the browser is gone or the service stops.

        The subscription ends with that, whatever it was doing, and no task is left. Errors that
        will not pass are answered with a status at which a browser does not come back; others come
        as an event.

        Args:
            begin: begins the response.
            gone: returns when the browser is gone.

        Raises:
            UsageError: the program is wrong.
        """
        await _until_first(partial(self._serve, begin), gone, self._service.stopping.wait)

    async def _serve(self, begin: Begin) -> None:
        try:
            subscription = await self._subscribe()
        except LiftbridgeError as error:
            logger.warning("no events of %s: %s", self._stream, error)
            status = _lasting(error)
            write = await begin(status or _OK)
            if status is None:
                await write(opening(self._retry, None))
                await self._fail(write, error)
            return
        if subscription is None:
            await begin(_NOTHING_MORE)
            return
        async with aclosing(subscription):
            write = await begin(_OK)
            position = subscription.position
            await write(opening(self._retry, None if position is None else id_of(position - 1)))
            await self._send(subscription, write)

    async def _subscribe(self) -> Subscription | None:
        """Subscribe, and wait until the server has accepted; None: there is nothing to come."""
        start = self._start
        if self._last_event_id is not None:
            last = offset_of(self._last_event_id)
            if self._ended_by(last):
                return None
            await self._check(last)
            start = StartAt.offset(last + 1)
        subscription = self._service.client.subscribe(
            self._stream, self._partition, start, self._stop, **self._subscribing
        )
        await subscription.__aenter__()
        if subscription.end_reason is None or subscription.statistics().buffered:
            return subscription
        await subscription.aclose()
        return None

    def _ended_by(self, offset: int) -> bool:
        stop = self._stop
        return stop is not None and stop.position is StopPosition.OFFSET and offset >= stop.value

    async def _check(self, last: int) -> None:
        """Make sure that the log is, as far as can be seen, the one that the browser was reading.

        A log that was made anew begins at 0 again: what comes until it is as long as the old one
        was would be left out.
        """
        state = await self._service.client.fetch_partition_metadata(
            self._stream, self._partition, timeout=self._subscribing.get("timeout")
        )
        if last > state.newest_offset:
            text = "the log ends before the message that the browser got last"
            raise StreamReset(text, stream=self._stream, partition=self._partition, offset=last)

    async def _send(self, subscription: Subscription, write: Write) -> None:
        batches = subscription.batches(_AT_ONCE)
        while True:
            try:
                messages = await self._next(batches)
            except StopAsyncIteration:
                reason = subscription.end_reason
                if reason is not None and reason is not EndReason.CLOSED:
                    await write(Event(reason.value, END).encode())
                return
            except LiftbridgeError as error:
                logger.warning("the events of %s end: %s", self._stream, error)
                await self._fail(write, error)
                return
            if not messages:
                await write(HEARTBEAT)
            elif not await self._pass_on(messages, write):
                return

    async def _next(self, batches: Batches[Message]) -> list[Message]:
        """Return the next messages; none where none came for so long that a heartbeat is due."""
        try:
            async with asyncio.timeout(self._heartbeat):
                return await anext(batches)
        except TimeoutError as error:
            if isinstance(error, LiftbridgeError):
                raise
            return []

    async def _pass_on(self, messages: Sequence[Message], write: Write) -> bool:
        """Send messages; tell whether all of them could be made events."""
        encoded: list[bytes] = []
        failed: bytes | None = None
        left_out: str | None = None
        for message in messages:
            event_id = id_of(message.offset)
            try:
                event = self._to_event(message)
                if event is None:
                    left_out = event_id
                    continue
                encoded.append(event.encode(event_id))
            except Exception as error:
                where = f"{message.stream}/{message.partition} at offset {message.offset}"
                logger.exception("the message of %s could not be made an event", where)
                failed = failure(error, message.offset).encode()
                break
            left_out = None
        if left_out is not None:
            encoded.append(mark(left_out))
        if failed is not None:
            encoded.append(failed)
        await write(b"".join(encoded))
        return failed is None

    async def _fail(self, write: Write, error: LiftbridgeError) -> None:
        # After a reset offsets mean something else, so that the browser is to begin anew.
        event_id = "" if isinstance(error, StreamReset) else None
        await write(failure(error, error.offset).encode(event_id))


def _lasting(error: LiftbridgeError) -> int | None:
    """Return the HTTP status of an error that will not pass by itself; None if it may."""
    if isinstance(error, UsageError) and not isinstance(error, ClientClosed):
        raise error
    for kind, status in _STATUS.items():
        if isinstance(error, kind):
            return status
    return None


_STATUS: Final[dict[type[LiftbridgeError], int]] = {
    InvalidRequest: 400,
    PermissionDenied: 403,
    NotFound: 404,
    UnsupportedByServer: 501,
}


async def _until_first(work: Wait, *ends: Wait) -> None:
    """Do some work until it is done, or until one of `ends` is; leave no task behind."""
    failed: Exception | None = None
    async with anyio.create_task_group() as tasks:

        async def cancel_after(end: Wait) -> None:
            await end()
            tasks.cancel_scope.cancel()

        for end in ends:
            tasks.start_soon(cancel_after, end)
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - raised below as it is, not in a group
            failed = error
        tasks.cancel_scope.cancel()
    if failed is not None:
        raise failed
