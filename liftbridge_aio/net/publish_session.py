"""One PublishAsync session with one broker: one task writes, one reads the acks.

A session knows correlation ids and bytes. Which partition goes over which session, how many
messages may be in flight and what an answer means is the publisher's business.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import secrets
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final, NoReturn, Protocol

import anyio

from liftbridge_aio.errors import ClientClosed, LiftbridgeError, MalformedData
from liftbridge_aio.model import Ack, AckPolicy
from liftbridge_aio.status import CallFailure, Code, Reach
from liftbridge_aio.telemetry import Retried
from liftbridge_aio.wire.codec import PublishReply, decode_publish_response, encode_publish_request
from liftbridge_aio.wire.rpc import PUBLISH_ASYNC

from .connection import Connection
from .exchange import PREFIX_BYTES
from .link import Purpose, StreamExchange

logger = logging.getLogger("liftbridge_aio.publisher")

_BATCH_MESSAGES: Final = 64
_BATCH_BYTES: Final = 64 * 1024
_MAX_WRITTEN_AHEAD: Final = 2048
"""Messages that may be written and not answered at once on one session. The rest of the window
waits unwritten: the time for an ack runs from the write, and a server that acks some thousand
messages a second must not be overrun by ten seconds' worth of them."""
_UNACKED_REMEMBERED: Final = 4096
"""How many messages with ack policy NONE are remembered, to name them when an error comes."""


@dataclass(slots=True, eq=False)
class PendingPublish:
    """A message between `publish` and its outcome."""

    future: asyncio.Future[Ack | None]
    stream: str
    partition: int
    correlation_id: str
    payload: bytes
    policy: AckPolicy
    ack_timeout: float
    """Seconds from the write."""
    send_by: float
    """Loop time until which it must be written."""
    settle_by: float
    """Loop time until which it must be settled, whatever happens."""
    expected_offset: int | None = None
    quiet: bool = False
    """Somebody else reports its failure, if it is the last word."""
    ack_by: float = 0.0
    """Loop time until which the ack must come; set by the write."""
    written: bool = False


class SessionOwner(Protocol):
    """To whom a session tells what happens to its messages."""

    def answered(self, pending: PendingPublish, reply: PublishReply) -> None:
        """Take the answer to a message."""

    def written(self, pending: PendingPublish) -> None:
        """Take note that a message with ack policy NONE was written."""

    def taken_back(self, pending: PendingPublish) -> None:
        """Take note that a message was cancelled before it was written."""

    def refused_late(self, stream: str, partition: int, reply: PublishReply) -> None:
        """Take the refusal of a message with ack policy NONE."""

    def session_lost(
        self,
        session: PublishSession,
        unknown: list[PendingPublish],
        unsent: list[PendingPublish],
        unproven: int,
        failure: CallFailure,
    ) -> None:
        """Take back what was written and not answered, and what was not written at all."""


class SessionState(enum.Enum):
    """Life of a session: from IDLE to READY and back as links come and go, until it has ENDED."""

    IDLE = "idle"
    CONNECTING = "connecting"
    READY = "ready"
    DOWN = "down"
    """The last attempt to connect failed."""
    ENDED = "ended"
    """Its task is over, for good; a new session has to take its place."""


@dataclass(slots=True)
class _Unacked:
    """What was written with ack policy NONE since the last proof that the server took it."""

    written: int = 0
    proven: int = 0
    recent: OrderedDict[str, tuple[str, int]] = field(default_factory=OrderedDict)

    @property
    def unproven(self) -> int:
        return self.written - self.proven

    def add(self, pending: PendingPublish) -> None:
        self.written += 1
        self.recent[pending.correlation_id] = (pending.stream, pending.partition)
        if len(self.recent) > _UNACKED_REMEMBERED:
            self.recent.popitem(last=False)


class PublishSession:
    """Sends messages to one address and matches the answers."""

    def __init__(self, address: str, connection: Connection, owner: SessionOwner) -> None:
        self.address = address
        self.state = SessionState.IDLE
        self.outbox: deque[PendingPublish] = deque()
        self.in_flight: dict[str, PendingPublish] = {}
        self.stray_answers = 0
        """Answers that fit no message: second ones (W9), or of another stream (W12)."""
        self._connection = connection
        self._owner = owner
        self._work = asyncio.Event()
        self._unacked = _Unacked()
        self._sending: list[PendingPublish] = []
        self._exchange: StreamExchange | None = None
        self._serving = anyio.CancelScope()
        self._failure = CallFailure(Code.UNAVAILABLE, "not connected", Reach.NOT_SENT)
        self._barriers: dict[str, asyncio.Future[None]] = {}
        self._barrier_marks: dict[str, int] = {}
        self._barrier_count = 0
        self._barrier_secret = secrets.token_hex(8)  # no user picks the same by accident
        self._attempts = 0

    def __repr__(self) -> str:
        """Show where it leads and what is on the way."""
        return (
            f"<PublishSession {self.address} {self.state.value}"
            f" outbox={len(self.outbox)} in_flight={len(self.in_flight)}>"
        )

    @property
    def unproven(self) -> int:
        """Messages with ack policy NONE that the server has not been seen to take."""
        return self._unacked.unproven

    def submit(self, pending: PendingPublish) -> None:
        """Queue a message for the writer."""
        self.outbox.append(pending)
        self._work.set()

    def forget(self, pending: PendingPublish) -> None:
        """Expect no answer to a message any more."""
        if self.in_flight.get(pending.correlation_id) is pending:
            self._leave(pending)

    def _leave(self, pending: PendingPublish) -> None:
        del self.in_flight[pending.correlation_id]
        if self.outbox and len(self.in_flight) <= _MAX_WRITTEN_AHEAD - _BATCH_MESSAGES:
            self._work.set()

    async def prove(self) -> None:
        """Wait until the server has taken everything written before, ack policy NONE included.

        A request that names no stream is refused, in its turn and by its correlation id: the
        server works through a session in order, so everything before it was taken. Half-closing
        would prove the same, but costs up to 5 s at times. Cancelling abandons the wait.

        Raises:
            CallFailure: the session broke before the answer came.
        """
        self._barrier_count += 1
        correlation_id = f"barrier-{self._barrier_secret}-{self._barrier_count}"
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._barriers[correlation_id] = done
        never = float("inf")
        payload = encode_publish_request(
            "",
            0,
            b"",
            key=None,
            headers=None,
            ack_policy=AckPolicy.LEADER,
            correlation_id=correlation_id,
            expected_offset=None,
        )
        ack: asyncio.Future[Ack | None] = asyncio.get_running_loop().create_future()
        self.submit(
            PendingPublish(
                ack, "", 0, correlation_id, payload, AckPolicy.LEADER, never, never, never
            )
        )
        try:
            await done
        finally:
            self._barriers.pop(correlation_id, None)
            self._barrier_marks.pop(correlation_id, None)
            ack.cancel()

    async def run(self) -> None:
        """Serve the outbox for ever, over one link after the other.

        Ends by being cancelled. Whatever ends it, its owner gets back what it holds.
        """
        try:
            while True:
                await self._work.wait()
                await self._recover(await self._serve_until_broken())
        except ClientClosed:
            logger.debug("%r ends with its client", self)
        finally:
            self.state = SessionState.ENDED
            running = self._connection.supervisor.running
            text = "the session's task was ended" if running else "the client was closed"
            self._give_up(CallFailure(Code.CANCELLED, text, Reach.UNKNOWN))

    async def _serve_until_broken(self) -> CallFailure:
        """Serve over one link; a fault of the client's own ends that, and not the session."""
        try:
            await self._serve()
        except CallFailure as failure:
            return failure
        except ClientClosed:
            raise
        except Exception as error:
            logger.exception("%r failed by a fault of the client", self)
            text = f"a fault of the client: {error!r}"
            broken = CallFailure(Code.INTERNAL, text, Reach.UNKNOWN)
            broken.__cause__ = error
            return broken

    async def _serve(self) -> NoReturn:
        self.state = SessionState.CONNECTING
        link = await self._connection.pool.get(self.address, Purpose.PUBLISH)
        self._failure = CallFailure(Code.UNAVAILABLE, "the session broke off", Reach.UNKNOWN)
        async with link.stream(PUBLISH_ASYNC) as exchange:
            self.state = SessionState.READY
            self._exchange = exchange
            with anyio.CancelScope() as self._serving:
                exchange.deliver(self)
                await self._write(exchange)
        raise self._failure

    async def _write(self, exchange: StreamExchange) -> NoReturn:
        while True:
            batch = self._next_batch()
            if batch:
                self._sending = [item for item in batch if item.policy is AckPolicy.NONE]
                before = exchange.attempted
                try:
                    await exchange.send([item.payload for item in batch])
                except BaseException:
                    self._not_written(batch[exchange.attempted - before :])
                    raise
                for item in self._sending:
                    self._unacked.add(item)
                    self._owner.written(item)
                self._sending = []
            else:
                self._work.clear()
                await self._work.wait()

    def _not_written(self, rest: list[PendingPublish]) -> None:
        """Put back what the connection broke before: it is certainly not stored."""
        for pending in reversed(rest):
            pending.written = False
            self.in_flight.pop(pending.correlation_id, None)
            self.outbox.appendleft(pending)
        self._sending = [item for item in self._sending if item.written]

    def _next_batch(self) -> list[PendingPublish]:
        now = asyncio.get_running_loop().time()
        batch: list[PendingPublish] = []
        size = 0
        unacked = self._unacked.written
        outbox = self.outbox
        room = min(_BATCH_MESSAGES, _MAX_WRITTEN_AHEAD - len(self.in_flight))
        while outbox and len(batch) < room and size < _BATCH_BYTES:
            pending = outbox.popleft()
            if pending.future.done():
                self._owner.taken_back(pending)
                continue
            pending.written = True
            pending.ack_by = now + pending.ack_timeout
            if pending.policy is AckPolicy.NONE:
                unacked += 1
            else:
                self.in_flight[pending.correlation_id] = pending
                if pending.correlation_id in self._barriers:
                    self._barrier_marks[pending.correlation_id] = unacked
            size += len(pending.payload)
            batch.append(pending)
        return batch

    # What comes from the server (`Receiver`)

    @property
    def full(self) -> bool:
        """Never: answers are taken in at once."""
        return False

    def received(self, messages: list[bytes]) -> None:
        """Match answers with what waits for them."""
        self._attempts = 0
        try:
            for message in messages:
                self._match(decode_publish_response(message))
        except MalformedData as error:
            self.ended(CallFailure(Code.INTERNAL, str(error), Reach.UNKNOWN))
        if self._exchange is not None:
            self._exchange.drained(sum(map(len, messages)) + PREFIX_BYTES * len(messages))

    def ended(self, failure: CallFailure) -> None:
        """End the serving over this link."""
        if failure.code is Code.OK:
            failure = CallFailure(Code.UNAVAILABLE, "the server ended the session", Reach.UNKNOWN)
        self._failure = failure
        self._serving.cancel()

    def _match(self, reply: PublishReply) -> None:
        pending = self.in_flight.get(reply.correlation_id)
        if pending is None:
            place = self._unacked.recent.get(reply.correlation_id)
            if place is not None and reply.error_code is not None:
                self._owner.refused_late(*place, reply)
            else:
                self.stray_answers += 1
        elif reply.correlation_id in self._barriers:
            del self.in_flight[reply.correlation_id]
            self._unacked.proven = self._barrier_marks[reply.correlation_id]
            barrier = self._barriers[reply.correlation_id]
            if not barrier.done():
                barrier.set_result(None)
        elif reply.ack is not None and reply.ack.stream != pending.stream:
            # Another stream on the same subject stored the message too (W12).
            self.stray_answers += 1
        else:
            self._leave(pending)
            self._owner.answered(pending, reply)

    async def _recover(self, failure: CallFailure) -> None:
        could_not_connect = self.state is SessionState.CONNECTING
        self.state = SessionState.DOWN if could_not_connect else SessionState.IDLE
        self._attempts += 1
        self._give_up(failure)
        delay = self._connection.router.delay(self._attempts)
        self._connection.reporter.retried(
            Retried(PUBLISH_ASYNC.name, self._attempts, delay, failure)
        )
        await asyncio.sleep(delay)
        if could_not_connect:
            await self._look_for_brokers()
        if not self.outbox:
            self._work.clear()

    async def _look_for_brokers(self) -> None:
        try:
            await self._connection.metadata.fetch(patient=False)
        except LiftbridgeError as error:
            logger.debug("metadata could not be refreshed: %s", error)

    def _give_up(self, failure: CallFailure) -> None:
        """Hand back what is here: what was written and not answered, and what was not written."""
        unknown = [item for item in (*self.in_flight.values(), *self._sending) if item.stream]
        unsent = [item for item in self.outbox if item.stream]
        self.in_flight.clear()
        self.outbox.clear()
        self._sending = []
        for barrier in self._barriers.values():
            if not barrier.done():
                barrier.set_exception(failure)
                barrier.exception()  # the waiting one may have gone
        unacked, self._unacked = self._unacked, _Unacked()
        self._owner.session_lost(self, unknown, unsent, unacked.unproven, failure)
