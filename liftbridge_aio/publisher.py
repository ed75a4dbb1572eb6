"""Publishing: checks a message, finds its partition and room for it, and keeps its deadlines."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections.abc import Mapping
from threading import get_ident
from typing import Final, NamedTuple

from .arguments import about, check_callable, check_text, check_type
from .errors import (
    AckTimeout,
    ClientClosed,
    DuplicateCorrelationId,
    InvalidRequest,
    LiftbridgeError,
    PublishNotSent,
    PublishOutcomeUnknown,
    PublishTimeout,
)
from .model import Ack, AckPolicy, Partitioner
from .net.connection import Connection
from .net.pending_publish import PendingPublish, PublishLane, PublishLaneState, PublishTerms
from .options import ClientOptions, Duration, timer_seconds
from .partitioner import by_key
from .publish_check import SERVER_OVERHEAD_BYTES, check_message, check_size, checked_policy
from .publish_lanes import PublishLanes
from .publish_outcomes import PublishOutcomes
from .publish_window import PublishWindow
from .status import CallFailure
from .wire.codec import encode_publish_request, frame_keyed_request, frame_publish_request
from .wire.framing import framed

logger = logging.getLogger("liftbridge_aio.publisher")

_SWEEPS_A_WAIT: Final = 5
"""How often messages are looked at within the shortest time that one of them may wait."""
_SLOWEST_SWEEP: Final = 0.25
_QUICKEST_SWEEP: Final = 0.01

_OPEN: Final = PublishLaneState.OPEN


class PublisherStatistics(NamedTuple):
    """Figures of publishing."""

    in_flight: int
    """Messages that are not settled."""
    in_flight_bytes: int
    waiting: int
    """Publishes that wait for room."""
    acked: int
    failed: int
    stray_answers: int
    """Answers of servers that fit no message."""


class Publisher:
    """Takes messages, hands them to sessions, settles their futures."""

    def __init__(self, connection: Connection, options: ClientOptions) -> None:
        self._connection = connection
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._window = PublishWindow(options.max_in_flight, options.max_in_flight_bytes)
        self._ack_timeout = timer_seconds(options.ack_timeout)
        plain = tuple(
            PublishTerms(policy, self._ack_timeout, self._ack_timeout) for policy in AckPolicy
        )
        self._lanes = PublishLanes(connection, self._window, plain)
        self._known = self._lanes.known
        self._outcomes = self._lanes.outcomes
        self._unsettled = self._outcomes.unsettled
        self._partitioner = options.partitioner
        self._usual_partition = 0 if options.partitioner is None else None
        self._publish_timeout = timer_seconds(options.publish_timeout)
        self._surely_sendable = options.max_message_bytes - SERVER_OVERHEAD_BYTES
        self._id_prefix = f"{secrets.token_hex(6)}-"
        self._id_count = 0
        self._sweeping = asyncio.Event()
        self._shortest_wait = math.inf
        self._closed = False
        self._arriving: set[asyncio.Future[None]] = set()
        """Publishes that ask for the number of partitions before they can be registered."""
        connection.supervisor.spawn(self._sweep, name="publish-sweep")

    def statistics(self) -> PublisherStatistics:
        """Return figures of this moment."""
        return PublisherStatistics(
            self._window.messages,
            self._window.bytes,
            self._window.waiting,
            self._outcomes.acked,
            self._outcomes.failed,
            sum(session.stray_answers for session in self._lanes.sessions),
        )

    @property
    def outcomes(self) -> PublishOutcomes:
        """What is not settled, and what became of the rest."""
        return self._outcomes

    # Taking a message

    async def submit(
        self,
        stream: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
        partitioner: Partitioner | None = None,
        ack_policy: AckPolicy = AckPolicy.LEADER,
        ack_timeout: Duration | None = None,
        expected_offset: int | None = None,
        correlation_id: str | None = None,
        timeout: Duration | None = None,
        *,
        quiet: bool = False,
    ) -> asyncio.Future[Ack | None]:
        """Register a message and return the future of its outcome.

        Returns once there is room in the window. Cancelling this leaves nothing behind;
        cancelling the future takes the message back if it is not written yet.

        Raises:
            InvalidRequest: it cannot be sent like this.
            PublishTimeout: no room in time.
            StreamNotFound: the partition depends on a stream that no broker knows.
        """
        if self._closed:
            text = "the client is closed"
            raise ClientClosed(text)
        self._thread = get_ident()  # whoever runs the loop of the client may have moved it
        now = self._loop.time()
        ack_policy = checked_policy(ack_policy)
        check_message(stream, value, key, headers, partition, ack_policy, expected_offset)
        patience, latest_write, settle_timeout = self._timeouts(ack_timeout, timeout)
        send_by = now + latest_write
        if partition is None:
            partition = await self.partition_of(
                stream,
                value,
                key=key,
                partition=partition,
                partitioner=partitioner,
                timeout=timeout,
            )
        lane = self._lanes.lane(stream, partition)
        if correlation_id is None:
            self._id_count += 1
            correlation_id = f"{self._id_prefix}{self._id_count}"
        else:
            check_text(correlation_id, "a correlation id")
        payload = encode_publish_request(
            stream,
            lane.partition,
            value,
            key=key,
            headers=headers,
            ack_policy=ack_policy,
            correlation_id=correlation_id,
            expected_offset=expected_offset,
        )
        limit = self._options.max_message_bytes
        check_size(len(payload), limit, stream=stream, partition=lane.partition)
        frame = framed(payload)
        size = len(frame)
        if not self._window.try_enter(size):
            await self._enter_window(size, send_by, lane)
        terms = PublishTerms(ack_policy, patience, settle_timeout, expected_offset, quiet)
        pending = PendingPublish.of(self._loop, lane, terms, correlation_id, frame, send_by)
        if correlation_id in self._unsettled:
            self._window.leave(size)
            text = f"a message with correlation id {correlation_id!r} is in flight"
            raise DuplicateCorrelationId(text, stream=stream, partition=lane.partition)
        self._register(pending, patience if timeout is None else min(patience, latest_write))
        return pending

    def submit_plain(
        self,
        stream: str,
        value: bytes,
        key: bytes | None,
        partition: int | None,
        ack_policy: AckPolicy,
    ) -> asyncio.Future[Ack | None] | None:
        """Register a message of value and key, as most are: in as few steps as can be.

        Returns:
            The future of its outcome; None where `submit` has to look at it, because something has
            to be awaited, because nothing was published to the partition yet, or because this is
            not the event loop of the client.
        """
        loop = self._loop
        # Asking for the running loop costs a system call before Python 3.12.
        if get_ident() != self._thread or not loop.is_running():
            return None
        if type(value) is not bytes or type(ack_policy) is not AckPolicy:
            return None
        if key is not None and type(key) is not bytes:
            return None
        if partition is None:
            partition = self._usual_partition if key is None else self._partition_by(key, stream)
        elif type(partition) is not int:
            return None
        try:
            # Stream and partition were checked when the first message went there.
            lane = self._known[stream, partition]  # type: ignore[index] # None is not found
        except (KeyError, TypeError):
            return None
        head, terms = lane.plain[ack_policy]
        self._id_count = count = self._id_count + 1
        correlation_id = f"{self._id_prefix}{count}"
        if key:
            frame = frame_keyed_request(head, value, key, correlation_id)
        else:
            frame = frame_publish_request(head, value, correlation_id)
        size = len(frame)
        if size > self._surely_sendable or not self._window.try_enter(size):
            return None
        pending = PendingPublish(loop=loop)  # as `PendingPublish.of` does it, without the call
        pending.lane = lane
        pending.terms = terms
        pending.correlation_id = correlation_id
        pending.frame = frame
        pending.send_by = loop.time() + self._publish_timeout
        pending.session = None
        session = lane.session
        if (
            lane.unsettled
            and lane.state is _OPEN
            and session is not None
            and self._ack_timeout >= self._shortest_wait
        ):
            # As `_register`, where there is nothing to decide.
            self._unsettled[correlation_id] = pending
            lane.unsettled += 1
            session.submit(pending)
        else:
            self._register(pending, self._ack_timeout)
        return pending

    def _partition_by(self, key: bytes, stream: str) -> int | None:
        """Pick the partition of a key as far as that needs no question to a server."""
        if self._partitioner is not None or type(stream) is not str:
            return None
        count = self._connection.metadata.snapshot.partition_count(stream)
        return by_key(stream, key, b"", count) if count else None

    def _register(self, pending: PendingPublish, wait: float) -> None:
        """Take in a message that may wait for `wait` seconds, and send it on its way."""
        self._unsettled[pending.correlation_id] = pending
        if wait < self._shortest_wait:
            self._hasten_sweep(wait)
        try:
            self._lanes.enqueue(pending)
        except BaseException:
            self._outcomes.forget(pending)
            pending.cancel()  # whoever finds it in a queue passes over it
            raise

    def _timeouts(
        self, ack_timeout: Duration | None, timeout: Duration | None
    ) -> tuple[float, float, float]:
        """Seconds from the write to the ack, to the latest write, and from then to the end."""
        patience = (
            self._ack_timeout if ack_timeout is None else timer_seconds(ack_timeout, "ack_timeout")
        )
        if timeout is None:
            return patience, self._publish_timeout, patience
        return patience, timer_seconds(timeout, "timeout"), 0.0

    def seconds_for(self, timeout: Duration | None, ack_timeout: Duration | None) -> float:
        """Return the seconds that a publish may take as a whole."""
        if timeout is not None:
            return timer_seconds(timeout, "timeout")
        if ack_timeout is None:
            return self._publish_timeout + self._ack_timeout
        return self._publish_timeout + timer_seconds(ack_timeout, "ack_timeout")

    async def partition_of(
        self,
        stream: str,
        value: bytes,
        *,
        key: bytes | None,
        partition: int | None,
        partitioner: Partitioner | None,
        timeout: Duration | None,
    ) -> int:
        """Pick the partition: as given, by a partitioner, the client's or the key, else 0.

        Cancelling abandons the question for metadata, where one is needed.

        Raises:
            StreamNotFound: it depends on a stream that no broker knows.
            PublishTimeout: it could not be learnt in time.
            InvalidRequest: the partitioner chose one that there is not.
        """
        if partition is not None:
            return partition
        if partitioner is not None:
            check_callable(partitioner, "a partitioner")
        chosen = partitioner or self._partitioner or (by_key if key is not None else None)
        if chosen is None:
            return 0
        count = self._connection.metadata.snapshot.partition_count(stream)
        if count is None:
            limit = self._publish_timeout if timeout is None else timer_seconds(timeout, "timeout")
            arrival: asyncio.Future[None] = self._loop.create_future()
            self._arriving.add(arrival)
            try:
                async with asyncio.timeout(limit):
                    count = len((await self._connection.metadata.stream(stream)).partitions)
            except TimeoutError as error:
                if isinstance(error, LiftbridgeError):
                    raise
                text = "the number of partitions could not be learnt in time"
                raise PublishTimeout(text, stream=stream) from None
            finally:
                self._arriving.remove(arrival)
                arrival.set_result(None)
        partition = chosen(stream, key, value, count)
        with about(stream):
            check_type(partition, int, "a partitioner returns a partition")
            if not 0 <= partition < count:
                text = f"the partitioner chose partition {partition} of {count}"
                raise InvalidRequest(text)
        return partition

    async def _enter_window(self, size: int, by: float, lane: PublishLane) -> None:
        try:
            async with asyncio.timeout_at(by):
                await self._window.enter(size)
        except TimeoutError:
            text = f"no room in the window ({self._window.messages} messages in flight)"
            raise PublishTimeout(text, stream=lane.stream, partition=lane.partition) from None
        if self._closed:
            self._window.leave(size)
            text = "the client was closed before there was room for the message"
            raise PublishNotSent(text, stream=lane.stream, partition=lane.partition)

    # Deadlines

    def _hasten_sweep(self, wait: float) -> None:
        """Look often enough for a message that may wait for `wait` seconds."""
        self._shortest_wait = min(self._shortest_wait, wait)
        self._sweeping.set()

    async def _sweep(self) -> None:
        """Look for messages whose time is up: one look for all, instead of a timer each."""
        while True:
            await self._sweeping.wait()
            wait = min(self._shortest_wait / _SWEEPS_A_WAIT, _SLOWEST_SWEEP)
            await asyncio.sleep(max(wait, _QUICKEST_SWEEP))
            self._lanes.expire(self._loop.time())
            if not self._unsettled:
                self._shortest_wait = math.inf
                self._sweeping.clear()

    # Flushing and closing

    async def flush(self) -> None:
        """Wait until every publish so far is settled; see `Client.flush`."""
        await self._settle_all()
        for session in self._lanes.sessions:
            if session.unproven:
                try:
                    async with asyncio.timeout(self._ack_timeout):
                        await session.prove()
                except TimeoutError as error:
                    text = f"{session.address} did not confirm what was sent with ack policy NONE"
                    raise AckTimeout(text) from error
                except CallFailure as failure:
                    logger.debug("%r broke while it was flushed: %s", session, failure)
        self._outcomes.raise_first_unseen()

    async def _settle_all(self) -> None:
        if self._arriving:
            await asyncio.wait(tuple(self._arriving))
        queued = self._window.queue()
        if queued:
            await asyncio.wait(queued)
        await self._outcomes.drain()

    async def close(self, timeout: float) -> None:
        """Refuse new messages, wait for what is in flight, fail the rest. Raises nothing for it.

        Cancelling stops the waiting; the rest is failed all the same.
        """
        self._closed = True
        self._known = {}  # so that `submit_plain` need not look whether it is closed
        self._outcomes.keep_all_unseen()
        try:
            async with asyncio.timeout(timeout):
                await self._settle_all()
                for session in self._lanes.sessions:
                    if session.unproven:
                        await session.prove()
        except TimeoutError:
            logger.warning("closing with %d publishes unsettled", len(self._outcomes))
        except CallFailure as failure:
            logger.debug("a session broke while the client was closing: %s", failure)
        finally:
            self._fail_the_rest()
            self._lanes.let_go()

    def _fail_the_rest(self) -> None:
        for pending in list(self._unsettled.values()):
            if pending.session is not None:
                text = "the client was closed before the ack came"
                self._outcomes.fail(pending, PublishOutcomeUnknown(text))
            else:
                text = "the client was closed before the message was written"
                self._outcomes.fail(pending, PublishNotSent(text))
            if not pending.cancelled():
                # The warning above stands for all; asyncio would log each that nobody looks at.
                pending.exception()
