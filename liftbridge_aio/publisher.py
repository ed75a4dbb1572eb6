"""Publishing: checks a message, finds its partition and session, and settles its future.

Order per partition rests on two rules. A partition stays on one session while anything of it is
in flight. And until a broker has answered for a partition, one message goes alone and the others
wait behind it: right after a stream is created a broker may not know it yet, and a message that
has to be sent again must not be overtaken.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import secrets
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from .errors import (
    AckTimeout,
    ClientClosed,
    DuplicateCorrelationId,
    InvalidRequest,
    LiftbridgeError,
    MessageTooLarge,
    PublishError,
    PublishNotSent,
    PublishOutcomeUnknown,
    PublishTimeout,
    StreamNotFound,
)
from .model import RESERVED_HEADERS, Ack, AckError, AckPolicy, Partitioner
from .net.connection import Connection
from .net.publish_session import PendingPublish, PublishSession, SessionState
from .options import ClientOptions, Duration, seconds
from .partitioner import by_key
from .publish_status import publish_error, stream_unknown
from .publish_window import PublishWindow
from .session_choice import choose_broker
from .status import CallFailure
from .telemetry import PublishFailed
from .wire.codec import PublishReply, encode_publish_request

logger = logging.getLogger("liftbridge_aio.publisher")

_SERVER_OVERHEAD_BYTES: Final = 256
"""Room for what the server adds before it compares with its limit: subject, inbox, frame."""
_SLOWEST_SWEEP: Final = 0.25
_QUICKEST_SWEEP: Final = 0.01
_UNSEEN_REMEMBERED: Final = 1024


class LaneState(enum.Enum):
    """What is known of a partition on its session."""

    UNPROVEN = "unproven"
    """No answer yet; the next message goes alone."""
    PROVING = "proving"
    """One message is on its way alone, the others wait."""
    OPEN = "open"
    """The broker knows the partition: messages flow."""


@dataclass(slots=True, eq=False)
class _Lane:
    """One partition on its way through one session."""

    stream: str
    partition: int
    session: PublishSession | None = None
    state: LaneState = LaneState.UNPROVEN
    unsettled: int = 0
    head: PendingPublish | None = None
    """The message that goes alone."""
    returned: deque[PendingPublish] = field(default_factory=deque)
    """Sent once and not known there; they go before the queue."""
    queue: deque[PendingPublish] = field(default_factory=deque)
    unknown_since: float | None = None
    tries: int = 0


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
        self._window = PublishWindow(options.max_in_flight, options.max_in_flight_bytes)
        self._sessions: dict[str, PublishSession] = {}
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._unsettled: dict[str, PendingPublish] = {}
        self._unseen: deque[asyncio.Future[Ack | None]] = deque(maxlen=_UNSEEN_REMEMBERED)
        self._ack_timeout = seconds(options.ack_timeout)
        self._publish_timeout = seconds(options.publish_timeout)
        self._id_prefix = secrets.token_hex(8)
        self._id_count = 0
        self._sweeping = asyncio.Event()
        self._sweep_interval = _SLOWEST_SWEEP
        self._closed = False
        self._acked = 0
        self._failed = 0
        connection.supervisor.spawn(self._sweep, name="publish-sweep")

    def statistics(self) -> PublisherStatistics:
        """Return figures of this moment."""
        return PublisherStatistics(
            self._window.messages,
            self._window.bytes,
            self._window.waiting,
            self._acked,
            self._failed,
            sum(session.stray_answers for session in self._sessions.values()),
        )

    # Taking a message

    async def submit(
        self,
        stream: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
        partitioner: Partitioner | None = None,
        ack_policy: AckPolicy = AckPolicy.LEADER,
        ack_timeout: Duration | None = None,
        expected_offset: int | None = None,
        correlation_id: str | None = None,
        timeout: Duration | None = None,
    ) -> asyncio.Future[Ack | None]:
        """Register a message and return the future of its outcome.

        Returns once there is room in the window. Cancelling this leaves nothing behind;
        cancelling the future takes the message back if it is not written yet.

        Raises:
            InvalidRequest: it cannot be sent like this.
            PublishTimeout: no room in time.
            StreamNotFound: the partition depends on a stream that no broker knows.
        """
        self._check_open()
        _check(stream, value, key, headers, partition, ack_policy, expected_offset)
        now = self._loop.time()
        wait = self._publish_timeout
        patience = self._ack_timeout if ack_timeout is None else seconds(ack_timeout, "ack_timeout")
        settle_by = now + wait + patience
        if timeout is not None:
            settle_by = now + seconds(timeout, "timeout")
        send_by = min(now + wait, settle_by) if timeout is None else settle_by
        if partition is None:
            partition = await self._choose(stream, key, value, partitioner, send_by)
        if correlation_id is None:
            self._id_count += 1
            correlation_id = f"{self._id_prefix}{self._id_count:x}"
        payload = encode_publish_request(
            stream,
            partition,
            value,
            key=key,
            headers=headers,
            ack_policy=ack_policy,
            correlation_id=correlation_id,
            expected_offset=expected_offset,
        )
        if len(payload) + _SERVER_OVERHEAD_BYTES > self._options.max_message_bytes:
            text = (
                f"a message of {len(payload)} bytes, with {_SERVER_OVERHEAD_BYTES} for what the"
                f" server adds, exceeds max_message_bytes ({self._options.max_message_bytes})"
            )
            raise MessageTooLarge(text, stream=stream, partition=partition)
        if not self._window.try_enter(len(payload)):
            await self._enter_window(len(payload), send_by, stream, partition)
        pending = PendingPublish(
            self._loop.create_future(),
            stream,
            partition,
            correlation_id,
            payload,
            ack_policy,
            patience,
            send_by,
            settle_by,
        )
        if correlation_id in self._unsettled:
            self._window.leave(len(payload))
            text = f"a message with correlation id {correlation_id!r} is in flight"
            raise DuplicateCorrelationId(text, stream=stream, partition=partition)
        self._unsettled[correlation_id] = pending
        self._hasten_sweep(min(patience, settle_by - now))
        self._enqueue(pending)
        return pending.future

    def _check_open(self) -> None:
        if self._closed:
            text = "the client is closed"
            raise ClientClosed(text)

    async def _choose(
        self,
        stream: str,
        key: bytes | None,
        value: bytes,
        partitioner: Partitioner | None,
        send_by: float,
    ) -> int:
        """Pick the partition: by the partitioner given, the client's, the key, else 0."""
        chosen = partitioner or self._options.partitioner or (by_key if key is not None else None)
        if chosen is None:
            return 0
        count = self._connection.metadata.snapshot.partition_count(stream)
        if count is None:
            try:
                async with asyncio.timeout_at(send_by):
                    count = len((await self._connection.metadata.stream(stream)).partitions)
            except TimeoutError:
                text = "the number of partitions could not be learnt in time"
                raise PublishTimeout(text, stream=stream) from None
        partition = chosen(stream, key, value, count)
        if not 0 <= partition < count:
            text = f"the partitioner chose partition {partition} of {count}"
            raise InvalidRequest(text, stream=stream)
        return partition

    async def _enter_window(self, size: int, by: float, stream: str, partition: int) -> None:
        try:
            async with asyncio.timeout_at(by):
                await self._window.enter(size)
        except TimeoutError:
            text = f"no room in the window ({self._window.messages} messages in flight)"
            raise PublishTimeout(text, stream=stream, partition=partition) from None
        if self._closed:
            self._window.leave(size)
            self._check_open()

    # Lanes

    def _enqueue(self, pending: PendingPublish) -> None:
        lane = self._lane(pending)
        if lane.unsettled == 0 or lane.session is None:
            self._choose_session(lane)
        lane.unsettled += 1
        if lane.state is LaneState.OPEN:
            self._session_of(lane).submit(pending)
        elif lane.state is LaneState.UNPROVEN:
            self._send_head(lane, pending)
        else:
            lane.queue.append(pending)

    def _lane(self, pending: PendingPublish) -> _Lane:
        key = (pending.stream, pending.partition)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(pending.stream, pending.partition)
        return lane

    def _choose_session(self, lane: _Lane) -> None:
        session = self._best_session(lane)
        if session is not lane.session:
            lane.session = session
            lane.state = LaneState.UNPROVEN

    def _best_session(self, lane: _Lane) -> PublishSession:
        """Rank the brokers for the lane; the first that is not known to be down wins."""
        router = self._connection.router
        brokers = router.snapshot.brokers
        ranked = choose_broker(lane.stream, lane.partition, brokers)
        addresses = [router.address_of(brokers[broker]) for broker in ranked]
        addresses += [address for address in router.addresses() if address not in addresses]
        for address in addresses:
            session = self._sessions.get(address)
            if session is None or session.state is not SessionState.DOWN:
                return self._session(address)
        return self._session(addresses[0])

    def _session(self, address: str) -> PublishSession:
        session = self._sessions.get(address)
        if session is None:
            session = PublishSession(address, self._connection, self)
            self._sessions[address] = session
            self._connection.supervisor.spawn(session.run, name=f"publish-session:{address}")
        return session

    def _session_of(self, lane: _Lane) -> PublishSession:
        if lane.session is None:
            self._choose_session(lane)
        assert lane.session is not None  # noqa: S101 - chosen above
        return lane.session

    def _send_head(self, lane: _Lane, pending: PendingPublish) -> None:
        if pending.policy is not AckPolicy.NONE:
            # Without an ack nothing would be proven.
            lane.head = pending
            lane.state = LaneState.PROVING
        self._session_of(lane).submit(pending)

    def _advance(self, lane: _Lane) -> None:
        """Send what waits: everything once the lane is open, else one message."""
        while lane.returned or lane.queue:
            if lane.state is LaneState.PROVING:
                return
            pending = lane.returned.popleft() if lane.returned else lane.queue.popleft()
            if pending.future.done():
                self._settled(pending)
            elif lane.state is LaneState.OPEN:
                self._session_of(lane).submit(pending)
            else:
                self._send_head(lane, pending)

    # What sessions tell

    def answered(self, pending: PendingPublish, reply: PublishReply) -> None:
        """Take the answer to a message."""
        lane = self._lanes[pending.stream, pending.partition]
        code = reply.error_code
        if code is not None and stream_unknown(code, reply.error_text):
            self._stream_unknown(lane, pending, reply)
            return
        if lane.head is pending:
            lane.head = None
            lane.state = LaneState.OPEN
        lane.unknown_since = None
        lane.tries = 0
        if reply.ack is not None and reply.ack.ack_error is AckError.OK:
            self._succeed(pending, reply.ack)
        else:
            text = reply.error_text or "the ack carries an error"
            self._fail(pending, publish_error(code or 0, text))
        if lane.returned or lane.queue:
            self._advance(lane)

    def _stream_unknown(self, lane: _Lane, pending: PendingPublish, reply: PublishReply) -> None:
        now = self._loop.time()
        if lane.unknown_since is None:
            lane.unknown_since = now
        if lane.head is None:
            lane.head = pending
        elif lane.head is not pending:
            lane.returned.append(pending)
            return
        lane.state = LaneState.PROVING
        lane.tries += 1
        delay = self._connection.router.delay(lane.tries)
        if now + delay - lane.unknown_since > self._connection.not_found_timeout:
            text = f"no such stream, asked for {now - lane.unknown_since:.1f} s: {reply.error_text}"
            self._abandon(lane, text)
        else:
            self._connection.supervisor.spawn(
                self._send_again, lane, pending, delay, name=f"retry:{lane.stream}"
            )

    async def _send_again(self, lane: _Lane, pending: PendingPublish, delay: float) -> None:
        await asyncio.sleep(delay)
        if lane.head is not pending:
            return
        if pending.future.done():
            self._head_gone(lane, pending)
        else:
            pending.written = False
            self._session_of(lane).submit(pending)

    def _abandon(self, lane: _Lane, text: str) -> None:
        doomed = [lane.head] if lane.head is not None else []
        doomed += [*lane.returned, *lane.queue]
        lane.returned.clear()
        lane.queue.clear()
        lane.head = None
        lane.state = LaneState.UNPROVEN
        lane.unknown_since = None
        lane.tries = 0
        for pending in doomed:
            self._fail(pending, StreamNotFound(text))

    def _head_gone(self, lane: _Lane, pending: PendingPublish) -> None:
        """Drop a head that its publisher has given up, and let the next one try."""
        lane.head = None
        lane.state = LaneState.UNPROVEN
        self._settled(pending)
        self._advance(lane)

    def written(self, pending: PendingPublish) -> None:
        """Settle a message with ack policy NONE: written is all there is to know."""
        self._settled(pending)
        if not pending.future.done():
            pending.future.set_result(None)

    def taken_back(self, pending: PendingPublish) -> None:
        """Forget a message that was cancelled before it was written."""
        lane = self._lanes.get((pending.stream, pending.partition))
        if lane is None:
            return  # a barrier
        if lane.head is pending:
            self._head_gone(lane, pending)
        else:
            self._settled(pending)

    def refused_late(self, stream: str, partition: int, reply: PublishReply) -> None:
        """Report the refusal of a message with ack policy NONE to the hook and to `flush`."""
        error = publish_error(reply.error_code or 0, reply.error_text).at(stream, partition)
        self._report(stream, partition, reply.correlation_id, error)
        self._keep_unseen(error)

    def session_lost(
        self, session: PublishSession, unknown: list[PendingPublish], failure: CallFailure
    ) -> None:
        """Fail what was written and not answered: its outcome is unknown."""
        if session.unproven:
            text = (
                f"{session.unproven} messages with ack policy NONE were written to"
                f" {session.address} before the link broke: {failure.text}"
            )
            self._keep_unseen(PublishOutcomeUnknown(text))
        for pending in unknown:
            lane = self._lanes[pending.stream, pending.partition]
            if lane.head is pending:
                lane.head = None
            text = f"the link to {session.address} broke before the ack came: {failure.text}"
            error = PublishOutcomeUnknown(text)
            error.__cause__ = failure
            self._fail(pending, error)
        for lane in self._lanes.values():
            if lane.session is session and lane.state is not LaneState.OPEN and lane.head is None:
                lane.state = LaneState.UNPROVEN
                self._advance(lane)

    def unreachable(self, session: PublishSession, unsent: list[PendingPublish]) -> None:
        """Move what was not written to sessions with other brokers, in order."""
        moving = [lane for lane in self._lanes.values() if lane.session is session]
        for lane in moving:
            lane.session = self._best_session(lane)
            lane.state = LaneState.UNPROVEN
            lane.head = None
            lane.queue = deque(item for item in lane.queue if not item.future.done())
        waiting = {id(lane): deque[PendingPublish]() for lane in moving}
        for pending in unsent:
            waiting[id(self._lanes[pending.stream, pending.partition])].append(pending)
        for lane in moving:
            lane.returned.extendleft(reversed(waiting[id(lane)]))
            self._advance(lane)

    # Outcomes

    def _succeed(self, pending: PendingPublish, ack: Ack) -> None:
        self._acked += 1
        self._settled(pending)
        if not pending.future.done():
            pending.future.set_result(ack)
        published = self._connection.reporter.published
        if published is not None:
            published(ack)

    def _fail(self, pending: PendingPublish, error: LiftbridgeError) -> None:
        self._settled(pending)
        error.at(pending.stream, pending.partition)
        if isinstance(error, PublishError):
            error.correlation_id = pending.correlation_id
        future = pending.future
        if future.done():
            return
        self._report(pending.stream, pending.partition, pending.correlation_id, error)
        future.set_exception(error)
        self._unseen.append(future)

    def _report(
        self, stream: str, partition: int, correlation_id: str, error: LiftbridgeError
    ) -> None:
        self._failed += 1
        self._connection.reporter.publish_failed(
            PublishFailed(stream, partition, correlation_id, error)
        )

    def _keep_unseen(self, error: LiftbridgeError) -> None:
        future: asyncio.Future[Ack | None] = self._loop.create_future()
        future.set_exception(error)
        self._unseen.append(future)

    def _settled(self, pending: PendingPublish) -> None:
        """Give back the room of a message, once; its remains may still stand in a queue."""
        if self._unsettled.get(pending.correlation_id) is pending:
            del self._unsettled[pending.correlation_id]
            self._lanes[pending.stream, pending.partition].unsettled -= 1
            self._window.leave(len(pending.payload))

    # Deadlines

    def _hasten_sweep(self, patience: float) -> None:
        self._sweep_interval = min(self._sweep_interval, max(patience / 5, _QUICKEST_SWEEP))
        if not self._sweeping.is_set():
            self._sweeping.set()

    async def _sweep(self) -> None:
        """Look for messages whose time is up: one look for all, instead of a timer each."""
        while True:
            await self._sweeping.wait()
            await asyncio.sleep(self._sweep_interval)
            now = self._loop.time()
            for pending in list(self._unsettled.values()):
                if pending.written:
                    if now >= min(pending.ack_by, pending.settle_by):
                        self._ack_missing(pending)
                elif now >= pending.send_by or pending.future.done():
                    self._not_written(pending)
            if not self._unsettled:
                self._sweep_interval = _SLOWEST_SWEEP
                self._sweeping.clear()

    def _ack_missing(self, pending: PendingPublish) -> None:
        lane = self._lanes[pending.stream, pending.partition]
        session = lane.session
        if session is not None:
            session.in_flight.pop(pending.correlation_id, None)
        text = "no ack came in time; the leader may be gone or the partition read-only"
        self._fail(pending, AckTimeout(text))
        if lane.head is pending:
            lane.head = None
            lane.state = LaneState.UNPROVEN
            self._advance(lane)

    def _not_written(self, pending: PendingPublish) -> None:
        lane = self._lanes[pending.stream, pending.partition]
        text = "no server could be reached in time"
        self._fail(pending, PublishTimeout(text))
        if lane.head is pending:
            lane.head = None
            lane.state = LaneState.UNPROVEN
            self._advance(lane)

    # Flushing and closing

    async def flush(self) -> None:
        """Wait until every publish so far is settled; see `Client.flush`."""
        await self._settle_all()
        for session in list(self._sessions.values()):
            if session.unproven:
                try:
                    async with asyncio.timeout(self._ack_timeout):
                        await session.prove()
                except TimeoutError as error:
                    text = f"{session.address} did not confirm what was sent with ack policy NONE"
                    raise AckTimeout(text) from error
                except CallFailure as failure:
                    logger.debug("%r broke while it was flushed: %s", session, failure)
        self._raise_unseen()

    async def _settle_all(self) -> None:
        queued = self._window.queue()
        if queued:
            await asyncio.wait(queued)
        futures = [pending.future for pending in self._unsettled.values()]
        if futures:
            await asyncio.wait(futures)

    def _raise_unseen(self) -> None:
        while self._unseen:
            future = self._unseen.popleft()
            # True until somebody has looked at the exception.
            if getattr(future, "_log_traceback", False):
                error = future.exception()
                if error is not None:
                    self._forget_unseen()
                    raise error

    def _forget_unseen(self) -> None:
        self._unseen.clear()

    async def close(self, timeout: float) -> None:
        """Refuse new messages, wait for what is in flight, fail the rest. Raises nothing for it.

        Cancelling stops the waiting; the rest is failed all the same.
        """
        self._closed = True
        try:
            async with asyncio.timeout(timeout):
                await self._settle_all()
                for session in list(self._sessions.values()):
                    if session.unproven:
                        await session.prove()
        except TimeoutError:
            logger.warning("closing with %d publishes unsettled", len(self._unsettled))
        except CallFailure as failure:
            logger.debug("a session broke while the client was closing: %s", failure)
        finally:
            self._fail_the_rest()

    def _fail_the_rest(self) -> None:
        for pending in list(self._unsettled.values()):
            if pending.written:
                text = "the client was closed before the ack came"
                self._fail(pending, PublishOutcomeUnknown(text))
            else:
                text = "the client was closed before the message was written"
                self._fail(pending, PublishNotSent(text))


def _is_bytes(value: object) -> bool:
    return isinstance(value, bytes)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _check(
    stream: str,
    value: bytes,
    key: bytes | None,
    headers: Mapping[str, bytes] | None,
    partition: int | None,
    ack_policy: AckPolicy,
    expected_offset: int | None,
) -> None:
    problem = None
    if not stream:
        problem = "a stream name must not be empty"
    elif not _is_bytes(value):
        problem = f"a value is bytes, not {type(value).__name__}; encode it first"
    elif key is not None and not _is_bytes(key):
        problem = f"a key is bytes, not {type(key).__name__}; encode it first"
    elif partition is not None and not 0 <= partition < 2**31:
        problem = f"a partition is a number from 0 up, not {partition}"
    elif expected_offset is not None and not 0 <= expected_offset < 2**63:
        problem = f"an expected offset is a number from 0 up, not {expected_offset}"
    elif expected_offset is not None and ack_policy is AckPolicy.NONE:
        problem = "without an ack nobody learns whether the expected offset was the right one"
    elif headers:
        problem = _header_problem(headers)
    if problem is not None:
        raise InvalidRequest(problem, stream=stream or None, partition=partition)


def _header_problem(headers: Mapping[str, bytes]) -> str | None:
    for name, content in headers.items():
        if not _is_text(name) or not _is_bytes(content):
            return f"headers map names to bytes, not {name!r} to {type(content).__name__}"
        if name in RESERVED_HEADERS:
            return f"the server writes the header {name!r} into every message itself (W5)"
    return None
