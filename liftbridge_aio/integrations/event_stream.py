"""A response of server-sent events: from the subscription to its last message."""

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
from liftbridge_aio._core.foreign_cancellation import CALLBACK_ERRORS
from liftbridge_aio._subscribe.core.checkpoint import Checkpoint
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
    WrongType,
)
from liftbridge_aio.integrations.server_sent_events import (
    END,
    HEARTBEAT,
    Event,
    as_text,
    failure,
    id_of,
    mark,
    missed,
    opening,
    position_of,
)
from liftbridge_aio.integrations.service import Service
from liftbridge_aio.model import (
    EndReason,
    Message,
    StartAt,
    StartPosition,
    StopAt,
    StopPosition,
    StreamInfo,
)
from liftbridge_aio.options import Duration, timer_seconds

logger = logging.getLogger("liftbridge_aio.integrations")

_NEW_ONLY: Final = StartAt.new_only()
_OK: Final = 200
_LONGEST_RETRY: Final = 86_400.0  # seconds
_NO_CONTENT: Final = 204
"""The status after which a browser does not reconnect."""
_LOOKUP_RETRY: Final = 0.2
"""Seconds until a missing stream is looked up again, because it may be new."""
_LOOKUP_TIMEOUT: Final = 3.0
"""Seconds for lookups of a missing stream: 1.9.0 lists none for two seconds after a start."""
_MAX_BATCH: Final = 32
"""The maximum of messages in one write, which amortizes its cost."""

Readable = Subscription | MergedSubscription
"""A subscription to one partition or to several."""
Write = Callable[[bytes], Awaitable[object]]
"""Sends bytes to the browser, and waits for flow control."""
Begin = Callable[[int], Awaitable[Write]]
"""Starts the response with an HTTP status."""
Wait = Callable[[], Awaitable[object]]
"""Waits for an event."""


class Subscribing(TypedDict, total=False):
    """The arguments passed to `Client.subscribe`."""

    resubscribe_timeout: Duration | None
    unpause: bool
    from_isr_replica: bool
    timeout: Duration | None


class EventStreamOptions(Subscribing, total=False):
    """The options of an event stream."""

    partition: int | Collection[int] | None
    """The partition, several of them, or None for all; default: all."""
    start: StartAt
    """The start for a browser without a Last-Event-ID; default: new messages only."""
    stop: StopAt | None
    """The end; default: none."""
    to_event: Callable[[Message], Event | None]
    """Converts a message to an event, or to None to skip it; default `as_text`."""
    heartbeat: Duration
    """Seconds without an event after which a heartbeat is sent; default 15."""
    retry: Duration
    """Seconds after which a browser reconnects; default 2."""


class EventStream:
    """A response that sends messages as events.

    The id of an event encodes the position of the browser, which sends the last id when it
    reconnects and receives the messages after it: with one partition, the offset of the message.
    It also has the creation timestamp of the stream, because offsets mean nothing in another log.

    Args:
        stream: the stream to read.
        last_event_id: the Last-Event-ID of the browser; None or empty if it sent none.

    Raises:
        InvalidRequest: an option is invalid.
    """

    def __init__(
        self,
        stream: str,
        last_event_id: str | None,
        *,
        partition: int | Collection[int] | None = None,
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
        self._only: int | None = None
        """The partition, if only one is read: its number is not in the ids."""
        self._last_event_id = last_event_id or None
        self._start = start
        self._stop = stop
        self._to_event = to_event
        self._heartbeat = timer_seconds(heartbeat, "heartbeat")
        self._retry = timer_seconds(retry, "retry")
        if not self._heartbeat:
            raise InvalidRequest("heartbeat must be longer than 0 seconds")
        if self._retry > _LONGEST_RETRY:
            raise InvalidRequest(f"retry={retry!r} is too long: browsers would not reconnect")
        self._subscribing = subscribing
        self._offsets: dict[int, int] = {}
        """The position of the browser: the last offset that is behind it, by partition."""
        self._created = 0
        """The creation timestamp of the stream with these offsets; 0 if it is not known."""

    async def serve(self, service: Service, begin: Begin, gone: Wait) -> None:
        """Send events until the subscription ends, the browser disconnects or the service stops.

        The subscription is then closed, and no task is left. Permanent errors are answered with a
        status after which a browser does not reconnect; other errors are sent as an event.

        Args:
            service: the client, and its shutdown event.
            begin: starts the response.
            gone: returns when the browser has disconnected.

        Raises:
            UsageError: the client is used incorrectly.
        """
        self._client = service.client
        begun = False

        async def begin_once(status: int) -> Write:
            nonlocal begun
            begun = True
            return await begin(status)

        await _until_first(partial(self._serve, begin_once), gone, service.stopping.wait)
        if service.stopping.is_set() and not begun:
            write = await begin(_OK)  # with any other status the browser would not reconnect
            await write(opening(self._retry, None))

    async def _serve(self, begin: Begin) -> None:
        try:
            subscription = await self._subscribe()
        except LiftbridgeError as error:
            await self._refuse(begin, error)
            return
        if subscription is None:
            await begin(_NO_CONTENT)
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
        batches = subscription.batches(_MAX_BATCH)
        try:
            messages = await self._next(batches, 0)  # messages that are available, or the end
        except StopAsyncIteration:
            at_end = self._event_id
            if gaps := await self._missed(subscription):
                write = await begin(_OK)
                await write(opening(self._retry, at_end or None) + gaps)
                await self._end(subscription, write)
            else:
                await begin(_NO_CONTENT)
            return
        except LiftbridgeError as error:
            await self._refuse(begin, error)
            return
        write = await begin(_OK)
        await write(opening(self._retry, self._event_id or None))
        while not messages or await self._send_messages(subscription, messages, write):
            try:
                messages = await self._next(batches, self._heartbeat)
            except StopAsyncIteration:
                await self._end(subscription, write)
                return
            except LiftbridgeError as error:
                logger.warning("the events of %s end: %s", self._stream, error)
                await self._fail(write, error)
                return
            if not messages:
                await write(HEARTBEAT)

    async def _end(self, subscription: Readable, write: Write) -> None:
        reasons = set(_end_reasons(subscription))
        if EndReason.CLOSED not in reasons:
            text = ", ".join(sorted(reason.value for reason in reasons))
            await write(await self._missed(subscription) + Event(text, END).encode())

    # Subscribing

    async def _subscribe(self) -> Readable | None:
        """Subscribe and wait until the server accepts; return None if there is nothing to read."""
        start = self._start
        starts: dict[int, StartAt] = {}
        known = await self._known()
        if self._partition is None and len(known.partitions) == 1:
            [self._partition] = known.partitions
        partition = self._partition
        self._only = partition if isinstance(partition, int) else None
        if self._last_event_id is not None:
            self._offsets, self._created = position_of(self._last_event_id, self._only)
            starts = await self._starts(known)
            if not starts:
                return None
        subscription: Readable
        if isinstance(partition, int):
            subscription = self._client.subscribe(
                self._stream,
                partition=partition,
                start=starts.get(partition, start),
                stop=self._stop,
                **self._subscribing,
            )
        else:
            subscription = self._client.subscribe(
                self._stream,
                partition=list(starts) or partition,
                start=starts or start,
                stop=self._stop,
                **self._subscribing,
            )
        await subscription.__aenter__()
        checkpoints = _checkpoints(subscription)
        self._offsets |= {
            partition: checkpoint.value - 1
            for partition, checkpoint in checkpoints.items()
            if checkpoint.position is StartPosition.OFFSET
        }
        self._created = min(checkpoint.created for checkpoint in checkpoints.values())
        return subscription

    async def _known(self) -> StreamInfo:
        """Look up the stream: a subscription would retry for `not_found_timeout`.

        A stream that the client has seen before is looked up until it counts as deleted, because a
        browser that receives this status never reconnects.
        """
        for wait in (_LOOKUP_RETRY, None):
            metadata = await self._client.fetch_metadata([self._stream], timeout=self._timeout)
            if self._stream in metadata.streams:
                return metadata.streams[self._stream]
            if wait is not None:
                await asyncio.sleep(wait)
        limit = _LOOKUP_TIMEOUT
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
        return known.partitions if self._partition is None else self._partition

    async def _starts(self, known: StreamInfo) -> dict[int, StartAt]:
        """Return the start of each partition that is not at its end."""
        partitions, created = self._chosen_of(known), known.creation_timestamp
        if created and self._created not in {0, created}:
            raise StreamReset(
                f"the stream was deleted and created again since event {self._last_event_id}",
                stream=self._stream,
            )
        if not self._offsets.keys() <= set(partitions):
            raise StreamReset(
                f"Last-Event-ID names partitions that are not read here: {self._last_event_id!r}",
                stream=self._stream,
            )
        starts: dict[int, StartAt] = {}
        for partition in partitions:
            last = self._offsets.get(partition)
            if last is None:
                starts[partition] = self._start
            elif not self._ended_by(last):
                await self._check(partition, last)
                starts[partition] = Checkpoint(
                    StartPosition.OFFSET,
                    last + 1,
                    stream=self._stream,
                    partition=partition,
                    created=created,
                )
        return starts

    def _ended_by(self, offset: int) -> bool:
        stop = self._stop
        return stop is not None and stop.position is StopPosition.OFFSET and offset >= stop.value

    async def _check(self, partition: int, last: int) -> None:
        """Check that the log has the last message that the browser received.

        Messages would be skipped until a truncated log is as long as before. The same holds for a
        recreated log if the id has no creation timestamp.
        """
        state = await self._client.fetch_partition_metadata(
            self._stream, partition, timeout=self._timeout
        )
        if last > state.newest_offset:
            raise StreamReset(
                "the log ends before the last message that the browser received",
                stream=self._stream,
                partition=partition,
                offset=last,
            )

    @property
    def _event_id(self) -> str:
        return id_of(self._offsets, self._only, self._created)

    @property
    def _timeout(self) -> Duration | None:
        return self._subscribing.get("timeout")

    # Events

    async def _next(self, batches: Batches[Message], wait: float) -> list[Message]:
        """Return the next messages; none if none arrived within `wait` seconds."""
        try:
            async with asyncio.timeout(wait):
                return await anext(batches)
        except TimeoutError as error:
            if isinstance(error, LiftbridgeError):
                raise
            return []

    async def _missed(self, subscription: Readable, before: Message | None = None) -> bytes:
        """Encode the gaps of retention that the browser has not been told of, and move it past.

        Args:
            subscription: what is read.
            before: a message whose partition is meant, up to it; None: all that is known.
        """
        encoded: list[bytes] = []
        for partition, gaps in (await subscription.missed()).items():
            if before is not None and partition != before.partition:
                continue
            for gap in gaps:
                is_due = before is None or gap.stop <= before.offset
                if is_due and gap.start > self._offsets.get(partition, gap.start):
                    self._offsets[partition] = gap.stop - 1
                    event = missed(partition, gap)
                    encoded.append(event.encode(self._event_id))
        return b"".join(encoded)

    async def _send_messages(
        self, subscription: Readable, messages: Sequence[Message], write: Write
    ) -> bool:
        """Send messages; return False if one of them could not be converted to an event."""
        encoded: list[bytes] = []
        failed = left_out = False
        for message in messages:
            if message.offset > self._offsets.get(message.partition, message.offset) + 1:
                encoded.append(await self._missed(subscription, message))
            offsets = self._offsets | {message.partition: message.offset}
            try:
                event = self._to_event(message)
                if event is not None:
                    _check_event(event)
                    encoded.append(event.encode(id_of(offsets, self._only, self._created)))
            except CALLBACK_ERRORS as error:
                where = f"{message.stream}/{message.partition} at offset {message.offset}"
                logger.exception("the message of %s could not be converted to an event", where)
                failed_event = failure(error, message.partition, message.offset)
                encoded.append(failed_event.encode(self._event_id))
                failed = True
                break
            self._offsets = offsets
            left_out = event is None
        if left_out and not failed:
            encoded.append(mark(self._event_id))
        await write(b"".join(encoded))
        return not failed

    async def _fail(self, write: Write, error: LiftbridgeError) -> None:
        failed_event = failure(error, error.partition, error.offset)
        if isinstance(error, StreamReset):
            # Offsets have a new meaning from now on, so the browser must start again.
            if error.partition is None:
                self._offsets.clear()
            else:
                self._offsets.pop(error.partition, None)
            await write(failed_event.encode(self._event_id))
        else:
            await write(failed_event.encode())


def _check_event(event: object) -> None:
    """Check the result of `to_event`, which is not None.

    Raises:
        WrongType: it is no event.
    """
    if not isinstance(event, Event):
        raise WrongType(f"to_event must return an Event or None, not {type(event).__name__}")


def _checkpoints(subscription: Readable) -> dict[int, Checkpoint]:
    if isinstance(subscription, Subscription):
        return {subscription.partition: subscription.checkpoint()}
    return subscription.checkpoint()


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
    """Run `work` until it or one of `ends` is done; leave no task behind."""
    failed: Exception | None = None
    async with anyio.create_task_group() as tasks:

        async def cancel_after(end: Wait) -> None:
            await end()
            tasks.cancel_scope.cancel()

        for end in ends:
            tasks.start_soon(cancel_after, end)
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - raised below, outside the exception group
            failed = error
        tasks.cancel_scope.cancel()
    if failed is not None:
        raise failed
