"""One response that consists of server-sent events: from the subscription to its last message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, TypedDict, Unpack

import anyio

from liftbridge_aio._client.client import Client
from liftbridge_aio._core.arguments import INT32_MAX, check_whole_number
from liftbridge_aio._subscribe.merged_subscription import MergedSubscription
from liftbridge_aio._subscribe.subscription import Subscription
from liftbridge_aio._subscribe.subscription_base import Batches
from liftbridge_aio.errors import (
    ClientClosed,
    InvalidRequest,
    LiftbridgeError,
    NotFound,
    PermissionDenied,
    StreamNotFound,
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
    offsets_of,
    opening,
)
from liftbridge_aio.integrations.service import Service
from liftbridge_aio.model import (
    AllPartitions,
    EndReason,
    Message,
    StartAt,
    StopAt,
    StopPosition,
    StreamInfo,
)
from liftbridge_aio.options import Duration, timer_seconds

logger = logging.getLogger("liftbridge_aio.integrations")

_NEW_ONLY: Final = StartAt.new_only()
_OK: Final = 200
_LONGEST_RETRY: Final = 86_400.0  # seconds
_NOTHING_MORE: Final = 204
"""The status at which a browser does not come back."""
_SECOND_LOOK: Final = 0.2
"""Seconds until a stream that is not there is asked for again: it may be new."""
_CONFIRMED_WITHIN: Final = 3.0
"""Seconds in which the leader may still know it: 1.9.0 knows no stream for two after a start."""
_AT_ONCE: Final = 32
"""Messages in one write, at most: enough that a write costs little beside them."""

Readable = Subscription | MergedSubscription
"""One partition, or several as one."""
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

    partition: int | AllPartitions | Collection[int]
    """Which of the stream's partitions: one, several or `ALL_PARTITIONS`; 0 if left out."""
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
    """Answers one request with messages.

    The id of an event says how far the browser is; it sends the last one when it comes back, and
    is given what follows. With one partition the id is the offset of the message.

    Args:
        stream: what is read.
        last_event_id: what the browser sent; None or empty: nothing.

    Raises:
        InvalidRequest: an option is invalid.
    """

    def __init__(
        self,
        stream: str,
        last_event_id: str | None,
        *,
        partition: int | AllPartitions | Collection[int] = 0,
        start: StartAt = _NEW_ONLY,
        stop: StopAt | None = None,
        to_event: Callable[[Message], Event | None] = as_text,
        heartbeat: Duration = 15.0,
        retry: Duration = 2.0,
        **subscribing: Unpack[Subscribing],
    ) -> None:
        if isinstance(partition, int):
            check_whole_number(partition, "a partition", 0, INT32_MAX)
        self._client: Client
        self._stream = stream
        self._partition = partition
        self._only = partition if isinstance(partition, int) else None
        self._last_event_id = last_event_id or None
        self._start = start
        self._stop = stop
        self._to_event = to_event
        self._heartbeat = timer_seconds(heartbeat, "heartbeat")
        self._retry = timer_seconds(retry, "retry")
        if not self._heartbeat:
            raise InvalidRequest("heartbeat must be longer than 0 seconds")
        if self._retry > _LONGEST_RETRY:
            text = f"a browser that comes back after retry={retry!r} seconds never does"
            raise InvalidRequest(text)
        self._subscribing = subscribing
        self._offsets: dict[int, int] = {}

    async def serve(self, service: Service, begin: Begin, gone: Wait) -> None:
        """Send events until the reading ends, the browser is gone or the service stops.

        The subscription ends with that, whatever it was doing, and no task is left. Errors that
        will not pass are answered with a status at which a browser does not come back; others come
        as an event.

        Args:
            service: what reads, and when it stops.
            begin: begins the response.
            gone: returns when the browser is gone.

        Raises:
            UsageError: the program is wrong.
        """
        self._client = service.client
        begun = False

        async def begin_once(status: int) -> Write:
            nonlocal begun
            begun = True
            return await begin(status)

        await _until_first(partial(self._serve, begin_once), gone, service.stopping.wait)
        if service.stopping.is_set() and not begun:
            write = await begin(_OK)  # at any other status the browser would not come back
            await write(opening(self._retry, None))

    async def _serve(self, begin: Begin) -> None:
        try:
            subscription = await self._subscribe()
        except LiftbridgeError as error:
            await self._refuse(begin, error)
            return
        if subscription is None:
            await begin(_NOTHING_MORE)
            return
        async with aclosing(subscription):
            await self._send(subscription, begin)

    async def _refuse(self, begin: Begin, error: LiftbridgeError) -> None:
        status = _lasting(error)
        level = logging.WARNING if status is None else logging.INFO
        logger.log(level, "no events of %s: %s", self._stream, error)
        write = await begin(status or _OK)
        if status is None:
            await write(opening(self._retry, None))
            await self._fail(write, error)

    async def _send(self, subscription: Readable, begin: Begin) -> None:
        batches = subscription.batches(_AT_ONCE)
        try:
            messages = await self._next(batches, 0)  # what is there already, or that it is over
        except StopAsyncIteration:
            await begin(_NOTHING_MORE)
            return
        except LiftbridgeError as error:
            await self._refuse(begin, error)
            return
        write = await begin(_OK)
        await write(opening(self._retry, id_of(self._offsets, self._only) or None))
        while not messages or await self._pass_on(messages, write):
            try:
                messages = await self._next(batches, self._heartbeat)
            except StopAsyncIteration:
                reasons = set(_end_reasons(subscription))
                if EndReason.CLOSED not in reasons:
                    told = ", ".join(sorted(reason.value for reason in reasons))
                    await write(Event(told, END).encode())
                return
            except LiftbridgeError as error:
                logger.warning("the events of %s end: %s", self._stream, error)
                await self._fail(write, error)
                return
            if not messages:
                await write(HEARTBEAT)

    # Subscribing

    async def _subscribe(self) -> Readable | None:
        """Subscribe, and wait until the server has accepted; None: there is nothing to come."""
        partition, start = self._partition, self._start
        starts: dict[int, StartAt] = {}
        if self._last_event_id is not None:
            self._offsets = offsets_of(self._last_event_id, self._only)
        known = await self._known()
        if self._last_event_id is not None:
            starts = await self._starts(self._chosen_of(known))
            if not starts:
                return None
        subscription: Readable
        if isinstance(partition, int):
            subscription = self._client.subscribe(
                self._stream,
                partition,
                starts.get(partition, start),
                self._stop,
                **self._subscribing,
            )
        else:
            subscription = self._client.subscribe(
                self._stream,
                list(starts) or partition,
                starts or start,
                self._stop,
                **self._subscribing,
            )
        await subscription.__aenter__()
        self._offsets |= {
            partition: position - 1
            for partition, position in _positions(subscription).items()
            if position is not None
        }
        return subscription

    async def _known(self) -> StreamInfo:
        """Ask for the stream: a subscription would look for it as long as not_found_timeout.

        One that the client has known is looked for until it counts as gone: a browser that is told
        so never asks again.
        """
        for wait in (_SECOND_LOOK, None):
            metadata = await self._client.fetch_metadata([self._stream], timeout=self._timeout)
            if self._stream in metadata.streams:
                return metadata.streams[self._stream]
            if wait is not None:
                await asyncio.sleep(wait)
        limit = _CONFIRMED_WITHIN
        if self._timeout is not None:
            limit = min(limit, timer_seconds(self._timeout))
        await self._client.fetch_partition_metadata(self._stream, 0, timeout=limit)
        known = self._client.metadata.streams.get(self._stream)
        if known is None:
            raise StreamNotFound("no such stream", stream=self._stream)
        return known

    def _chosen_of(self, known: StreamInfo) -> Collection[int]:
        if isinstance(self._partition, int):
            return [self._partition]
        return known.partitions if isinstance(self._partition, AllPartitions) else self._partition

    async def _starts(self, partitions: Collection[int]) -> dict[int, StartAt]:
        """Find where to go on in each partition that is not at its end."""
        if not self._offsets.keys() <= set(partitions):
            text = f"Last-Event-ID names partitions that are not read here: {self._last_event_id!r}"
            raise InvalidRequest(text, stream=self._stream)
        starts: dict[int, StartAt] = {}
        for partition in partitions:
            last = self._offsets.get(partition)
            if last is None:
                starts[partition] = self._start
            elif not self._ended_by(last):
                await self._check(partition, last)
                starts[partition] = StartAt.offset(last + 1)
        return starts

    def _ended_by(self, offset: int) -> bool:
        stop = self._stop
        return stop is not None and stop.position is StopPosition.OFFSET and offset >= stop.value

    async def _check(self, partition: int, last: int) -> None:
        """Make sure that the log is, as far as can be seen, the one that the browser was reading.

        A log that was made anew begins at 0 again: what comes until it is as long as the old one
        was would be left out.
        """
        state = await self._client.fetch_partition_metadata(
            self._stream, partition, timeout=self._timeout
        )
        if last > state.newest_offset:
            text = "the log ends before the message that the browser got last"
            raise StreamReset(text, stream=self._stream, partition=partition, offset=last)

    @property
    def _timeout(self) -> Duration | None:
        return self._subscribing.get("timeout")

    # Events

    async def _next(self, batches: Batches[Message], wait: float) -> list[Message]:
        """Return the next messages; none where none came within `wait` seconds."""
        try:
            async with asyncio.timeout(wait):
                return await anext(batches)
        except TimeoutError as error:
            if isinstance(error, LiftbridgeError):
                raise
            return []

    async def _pass_on(self, messages: Sequence[Message], write: Write) -> bool:
        """Send messages; tell whether all of them could be made events."""
        encoded: list[bytes] = []
        failed = left_out = False
        for message in messages:
            offsets = self._offsets | {message.partition: message.offset}
            try:
                event = self._to_event(message)
                if event is not None:
                    encoded.append(event.encode(id_of(offsets, self._only)))
            except Exception as error:
                where = f"{message.stream}/{message.partition} at offset {message.offset}"
                logger.exception("the message of %s could not be made an event", where)
                told = failure(error, message.partition, message.offset)
                encoded.append(told.encode(id_of(self._offsets, self._only)))
                failed = True
                break
            self._offsets = offsets
            left_out = event is None
        if left_out and not failed:
            encoded.append(mark(id_of(self._offsets, self._only)))
        await write(b"".join(encoded))
        return not failed

    async def _fail(self, write: Write, error: LiftbridgeError) -> None:
        told = failure(error, error.partition, error.offset)
        if isinstance(error, StreamReset) and error.partition is not None:
            # Offsets mean something else from now on: there the browser is to begin anew.
            self._offsets.pop(error.partition, None)
            await write(told.encode(id_of(self._offsets, self._only)))
        else:
            await write(told.encode())


def _positions(subscription: Readable) -> dict[int, int | None]:
    if isinstance(subscription, Subscription):
        return {subscription.partition: subscription.position}
    return subscription.positions


def _end_reasons(subscription: Readable) -> Iterable[EndReason]:
    if isinstance(subscription, Subscription):
        return [] if subscription.end_reason is None else [subscription.end_reason]
    return subscription.end_reasons.values()


def _lasting(error: LiftbridgeError) -> int | None:
    """Return the HTTP status of an error that a retry will not resolve; None if it may."""
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
