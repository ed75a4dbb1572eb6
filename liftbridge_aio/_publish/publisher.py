"""Checks a message, finds its partition and waits for room in the window."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from asyncio import BaseEventLoop
from collections.abc import Mapping
from threading import get_ident
from typing import Final, NamedTuple

from liftbridge_aio._core.arguments import check_callable, check_text
from liftbridge_aio._core.message_check import (
    SERVER_OVERHEAD_BYTES,
    check_message,
    check_size,
    checked_policy,
)
from liftbridge_aio._core.status import CallFailure
from liftbridge_aio._runtime.window import Window
from liftbridge_aio.errors import (
    AckTimeout,
    ClientClosed,
    DuplicateCorrelationId,
    PublishNotSent,
    PublishOutcomeUnknown,
    PublishTimeout,
    RequestTimeout,
)
from liftbridge_aio.model import Ack, AckPolicy, OutgoingMessage, PublishOptions
from liftbridge_aio.net.network import Network
from liftbridge_aio.options import ClientOptions, timer_seconds
from liftbridge_aio.partitioner import by_key, choose_partition
from liftbridge_aio.wire.codec import encode_headers, frame_publish
from liftbridge_aio.wire.framing import PREFIX_BYTES

from .deadlines import DeadlineTimer
from .dispatcher import Dispatcher
from .in_flight_table import InFlightTable
from .message import PartitionRoute, PublishTerms

logger = logging.getLogger("liftbridge_aio.publisher")

_LEADER: Final = AckPolicy.LEADER


class PublisherStatistics(NamedTuple):
    """Figures of publishing."""

    in_flight: int
    """Messages that are not acked or failed yet."""
    in_flight_bytes: int
    waiting: int
    """Publishes that wait for room in the window."""
    acked: int
    failed: int
    stray_answers: int
    """Responses of servers that match no message."""


class Publisher:
    """Queues messages and returns the futures of their acks."""

    def __init__(self, network: Network, options: ClientOptions) -> None:
        self._network = network
        self._options = options
        self._loop = loop = asyncio.get_running_loop()
        # asyncio's own loops call the same function, one Python call further down.
        self._time = time.monotonic if type(loop).time is BaseEventLoop.time else loop.time
        self._thread = get_ident()
        self._window = Window(options.max_in_flight, options.max_in_flight_bytes)
        self._ack_timeout = timer_seconds(options.ack_timeout)
        plain = tuple(
            PublishTerms(policy, self._ack_timeout, self._ack_timeout) for policy in AckPolicy
        )
        self._table = InFlightTable(self._window, network.reporter)
        self._dispatcher = Dispatcher(network, self._table, plain)
        self._routes = self._dispatcher.routes
        self._deadlines = DeadlineTimer(self._table, self._dispatcher.expire)
        self._partitioner = options.partitioner
        self._publish_timeout = timer_seconds(options.publish_timeout)
        self._surely_sendable = options.max_message_bytes - SERVER_OVERHEAD_BYTES
        self._id_prefix = f"{secrets.token_hex(6)}-"
        self._id_count = 0
        self._closed = False
        self._usual_routes: dict[str, PartitionRoute] = {}
        """The routes of messages for which nothing chooses a partition, by stream."""
        self._arriving: set[asyncio.Future[None]] = set()
        """Publishes that wait for the number of partitions of their stream."""
        network.supervisor.spawn(self._deadlines.run, name="publish-sweep")

    def statistics(self) -> PublisherStatistics:
        """Return figures of this moment."""
        return PublisherStatistics(
            self._window.messages,
            self._window.bytes,
            self._window.waiting,
            self._table.acked,
            self._table.failed,
            sum(session.unmatched_responses for session in self._dispatcher.sessions),
        )

    @property
    def table(self) -> InFlightTable:
        """The messages that are not settled, and what became of the others."""
        return self._table

    # Taking a message

    async def submit(self, message: OutgoingMessage) -> asyncio.Future[Ack | None]:
        """Queue a message and return the future of its ack, once there is room in the window.

        Cancelling this leaves nothing behind; cancelling the future takes the message back if it
        is not written yet.

        Args:
            message: its `retry` does not count here.

        Raises:
            InvalidRequest: it cannot be sent like this.
            PublishTimeout: no room in time.
            StreamNotFound: the partition depends on a stream that no broker knows.
        """
        if self._closed:
            raise ClientClosed("the client is closed")
        self._thread = get_ident()  # whoever runs the loop of the client may have moved it
        now = self._time()
        policy = checked_policy(message.ack_policy)
        check_message(message, policy)
        ack_timeout, latest_write, settle_timeout = self._timeouts(message)
        send_by = now + latest_write
        route = self._dispatcher.route(message.stream, await self.partition_of(message))
        correlation_id = message.correlation_id
        if correlation_id is None:
            self._id_count += 1
            correlation_id = f"{self._id_prefix}{self._id_count}"
        else:
            check_text(correlation_id, "a correlation id")
        head, terms = route.plain[policy]
        expected_offset = message.expected_offset
        frame = frame_publish(
            head,
            bytes(message.value),
            None if message.key is None else bytes(message.key),
            None,
            None if expected_offset is None else int(expected_offset),
            correlation_id,
            encode_headers(message.headers) + encode_headers(message.own_headers),
        )
        size = len(frame)
        limit = self._options.max_message_bytes
        check_size(size - PREFIX_BYTES, limit, stream=route.stream, partition=route.partition)
        if not self._window.try_enter(size):
            await self._enter_window(size, send_by, route)
        if message.quiet or message.ack_timeout is not None or message.timeout is not None:
            terms = PublishTerms(policy, ack_timeout, settle_timeout, message.quiet)
        if correlation_id in self._table.unsettled:
            self._window.leave(size)
            raise DuplicateCorrelationId(
                f"a message with correlation id {correlation_id!r} is in flight",
                stream=route.stream,
                partition=route.partition,
            )
        self._deadlines.keep(
            ack_timeout if message.timeout is None else min(ack_timeout, latest_write)
        )
        pending = self._dispatcher.enqueue(
            route, terms, correlation_id, frame, send_by, expected_offset
        )
        partitioner = message.partitioner or self._partitioner
        if message.partition is None and message.key is None and partitioner is None:
            usual = self._usual_routes
            if route.stream not in usual:
                pending.add_done_callback(lambda _: self._warn_if_all_go_to_one(route.stream))
                usual[route.stream] = route
        return pending

    def _warn_if_all_go_to_one(self, stream: str) -> None:
        """Warn that messages without a key all go to partition 0 of several."""
        count = self._network.metadata.snapshot.partition_count(stream)
        if count is not None and count > 1:
            logger.warning(
                "messages without a key go to partition 0 of the stream %r, which has %d: set"
                " ClientOptions(partitioner=round_robin()), or give each a key or a partition",
                stream,
                count,
            )

    def submit_now(  # noqa: C901, PLR0912 - a call for a part of it would take longer than the part
        self,
        stream: str,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        options: PublishOptions,
        encoded: bytes = b"",
    ) -> asyncio.Future[Ack | None] | None:
        """Queue a message as `submit` does, in as few steps as can be.

        It takes no `OutgoingMessage`, which takes longer to make than to encode; `encoded` has
        further headers.

        Returns:
            The future of its ack; None where `submit` must take it, because something must be
            checked or awaited, because nothing was published to the partition yet, or because this
            is not the event loop of the client.
        """
        # Asking for the running loop costs a system call before Python 3.12.
        if get_ident() != self._thread or not self._loop.is_running():
            return None
        partition = expected_offset = None
        policy = _LEADER
        for name, given in options.items():
            if name == "partition" and type(given) is int:
                partition = given
            elif name == "ack_policy" and type(given) is AckPolicy:
                policy = given
            elif name == "expected_offset" and type(given) is int:
                expected_offset = given
            elif given is not None or name == "ack_policy":
                return None
        if expected_offset is not None and policy is AckPolicy.NONE:
            return None
        try:
            # Stream and partition were checked when the first message went there.
            if partition is not None:
                route = self._routes[stream, partition]
            elif key is None:
                route = self._usual_routes[stream]
            else:
                route = self._routes[stream, self._partition_by_key(stream, key)]
        except (KeyError, TypeError):
            return None
        head, terms = route.plain[policy]
        self._id_count = count = self._id_count + 1
        correlation_id = f"{self._id_prefix}{count}"
        frame = frame_publish(head, value, key, headers, expected_offset, correlation_id, encoded)
        size = len(frame)
        if not 0 < size <= self._surely_sendable or not self._window.try_enter(size):
            return None
        if self._ack_timeout < self._deadlines.shortest_timeout:
            self._deadlines.keep(self._ack_timeout)
        send_by = self._time() + self._publish_timeout
        return self._dispatcher.enqueue(
            route, terms, correlation_id, frame, send_by, expected_offset
        )

    def partition_now(self, stream: str, key: bytes | None, partition: int | None) -> int | None:
        """Return the partition of a message; None where `partition_of` must find it."""
        if partition is not None:
            return partition
        if key is None:
            return 0 if self._partitioner is None else None
        chosen = self._partition_by_key(stream, key)
        return None if chosen < 0 else chosen

    def _partition_by_key(self, stream: str, key: bytes) -> int:
        """Return the partition of a key; -1 where a partitioner or the servers must be asked."""
        if self._partitioner is not None or type(stream) is not str or type(key) is not bytes:
            return -1
        count = self._network.metadata.snapshot.partition_count(stream)
        return by_key(stream, key, b"", count) if count else -1

    def _timeouts(self, message: OutgoingMessage) -> tuple[float, float, float]:
        """Seconds from the write to the ack, to the latest write, and from then to the end."""
        timeout = message.timeout
        ack_timeout = (
            self._ack_timeout
            if message.ack_timeout is None
            else timer_seconds(message.ack_timeout, "ack_timeout")
        )
        if timeout is None:
            return ack_timeout, self._publish_timeout, ack_timeout
        return ack_timeout, timer_seconds(timeout, "timeout"), 0.0

    def seconds_for(self, message: OutgoingMessage) -> float:
        """Return the seconds that publishing a message may take as a whole."""
        _, latest_write, settle_timeout = self._timeouts(message)
        return latest_write + settle_timeout

    async def partition_of(self, message: OutgoingMessage) -> int:
        """Return its partition: as given, by a partitioner, the client's or the key, else 0.

        Cancelling abandons the request for metadata, where one is needed.

        Raises:
            StreamNotFound: it depends on a stream that no broker knows.
            PublishTimeout: the number of partitions did not arrive in time.
            InvalidRequest: the partitioner chose one that does not exist.
        """
        stream, key, partitioner = message.stream, message.key, message.partitioner
        if message.partition is not None:
            return message.partition
        if partitioner is not None:
            check_callable(partitioner, "a partitioner")
        chosen = partitioner or self._partitioner or (by_key if key is not None else None)
        if chosen is None:
            return 0
        count = self._network.metadata.snapshot.partition_count(stream)
        if count is None:
            arrival: asyncio.Future[None] = self._loop.create_future()
            self._arriving.add(arrival)
            try:
                _, limit, _ = self._timeouts(message)
                count = len((await self._network.metadata.stream(stream, limit)).partitions)
            except RequestTimeout as error:
                raise PublishTimeout(
                    f"the number of partitions was not received in time: {error.message}",
                    stream=stream,
                ) from error
            finally:
                self._arriving.remove(arrival)
                arrival.set_result(None)
        return choose_partition(chosen, stream, key, message.value, count)

    async def _enter_window(self, size: int, by: float, route: PartitionRoute) -> None:
        try:
            async with asyncio.timeout_at(by):
                await self._window.enter(size)
        except TimeoutError:
            raise PublishTimeout(
                f"no room in the window ({self._window.messages} messages in flight)",
                stream=route.stream,
                partition=route.partition,
            ) from None
        if self._closed:
            self._window.leave(size)
            raise PublishNotSent(
                "the client was closed before there was room for the message",
                stream=route.stream,
                partition=route.partition,
            )

    # Flushing and closing

    async def flush(self) -> None:
        """Wait until every publish so far is settled; see `Client.flush`."""
        await self._settle_all()
        for session in self._dispatcher.sessions:
            if session.unconfirmed:
                try:
                    async with asyncio.timeout(self._ack_timeout):
                        await session.flush()
                except TimeoutError as error:
                    raise AckTimeout(
                        f"{session.address} did not confirm what was sent with ack policy NONE"
                    ) from error
                except CallFailure as failure:
                    logger.debug("%r broke while it was flushed: %s", session, failure)
        self._table.raise_first_unseen()

    async def _settle_all(self) -> None:
        if self._arriving:
            await asyncio.wait(tuple(self._arriving))
        queued = self._window.queue()
        if queued:
            await asyncio.wait(queued)
        await self._table.drain()

    def refuse(self) -> None:
        """Refuse new messages."""
        self._closed = True
        self._routes = {}  # so that `submit_now` need not check for it
        self._usual_routes = {}

    async def close(self, timeout: float) -> None:
        """Refuse new messages, wait for what is in flight, fail the rest. Raises nothing for it.

        Cancelling stops the waiting; the rest is failed all the same.
        """
        self.refuse()
        self._table.keep_all_unseen()
        try:
            async with asyncio.timeout(timeout):
                await self._settle_all()
                for session in self._dispatcher.sessions:
                    if session.unconfirmed:
                        await session.flush()
        except TimeoutError:
            logger.warning("closing with %d publishes unsettled", len(self._table))
        except CallFailure as failure:
            logger.debug("a session broke while the client was closing: %s", failure)
        finally:
            self._fail_the_rest()
            self._dispatcher.release()

    def _fail_the_rest(self) -> None:
        for pending in self._table.all():
            if pending.session is not None:
                text = "the client was closed before the ack came"
                self._table.fail(pending, PublishOutcomeUnknown(text))
            else:
                text = "the client was closed before the message was written"
                self._table.fail(pending, PublishNotSent(text))
            if not pending.cancelled():
                # The warning above stands for all; asyncio would log each that nobody looks at.
                pending.exception()
