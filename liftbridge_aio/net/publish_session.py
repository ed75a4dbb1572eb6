"""One PublishAsync session with one broker: one task writes, one reads the acks.

A session knows correlation ids and bytes. Which partition goes over which session, how many
messages may be in flight and what an answer means is the publisher's business.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import math
import secrets
from collections.abc import Sequence
from typing import Final, NoReturn, cast

import anyio

from liftbridge_aio.errors import ClientClosed, LiftbridgeError, MalformedData
from liftbridge_aio.model import Ack, AckError, AckPolicy
from liftbridge_aio.status import CallFailure, Code, Reach
from liftbridge_aio.telemetry import Retried
from liftbridge_aio.wire.codec import (
    PublishRefusal,
    decode_acks,
    decode_publish_responses,
    encode_publish_request,
)
from liftbridge_aio.wire.framing import PREFIX_BYTES, framed
from liftbridge_aio.wire.rpc import PUBLISH_ASYNC

from .connection import Connection
from .lane_exchange import LaneExchange
from .link import Link, Purpose, StreamExchange
from .pending_publish import PendingPublish
from .publish_batches import are_usual, count_that_fit, messages_of
from .publish_proof import Barrier, Unacked
from .session_owner import SessionOwner

logger = logging.getLogger("liftbridge_aio.publisher")

_OK: Final = AckError.OK
_BATCH_MESSAGES: Final = 512
_BATCH_BYTES: Final = 256 * 1024
_WRITTEN_AT_ONCE: Final = 128
"""How many messages are not left to the writer, which gets its turn only when the program waits for
something."""
_MAX_WRITTEN_AHEAD: Final = 2048
"""Messages that may be written and not answered at once on one session. The rest of the window
waits unwritten: the time for an ack runs from the write, and a server that acks some thousand
messages a second must not be overrun by ten seconds' worth of them."""
_SILENCE: Final = 1.0
"""Seconds without a word on a link that is lost then, though answers are due: whoever is silent may
well accept the next connection and be silent again, so others are tried first."""


class SessionState(enum.Enum):
    """Life of a session: from IDLE to READY and back as links come and go, until it has ENDED."""

    IDLE = "idle"
    CONNECTING = "connecting"
    READY = "ready"
    DOWN = "down"
    """The last attempt to connect failed, nothing came from there any more, or two connections in a
    row broke before a message was answered."""
    ENDED = "ended"
    """Its task is over, for good; a new session has to take its place."""


class PublishSession:
    """Sends messages to one address and matches the answers."""

    def __init__(self, address: str, connection: Connection, owner: SessionOwner) -> None:
        self.address = address
        self.state = SessionState.IDLE
        self.down_since = -math.inf
        """Loop time at which it was last found to be down."""
        self.down_by: CallFailure | None = None
        """Why it is down."""
        self.outbox: list[PendingPublish | Barrier] = []
        self.in_flight = 0
        """Messages that are written and not answered."""
        self.stray_answers = 0
        """Answers that fit no message: second ones (W9), or of another stream (W12)."""
        self._connection = connection
        self._owner = owner
        self._work = asyncio.Event()
        self._unacked = Unacked()
        self._unsettled = owner.unsettled
        self._sending: list[PendingPublish] = []
        self._taking = False
        self._link: Link | None = None
        """None while there was none since the last attempt to connect."""
        self._asked = -math.inf
        """Loop time of the first message that was written since something came."""
        self._exchange: StreamExchange | None = None
        self._serving = anyio.CancelScope()
        self._failure = CallFailure(Code.UNAVAILABLE, "not connected", Reach.NOT_SENT)
        self._barriers: dict[str, Barrier] = {}
        self._barrier_count = 0
        self._barrier_secret = secrets.token_hex(8)  # no user picks the same by accident
        self._attempts = 0
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        """Show where it leads and what is on the way."""
        return (
            f"<PublishSession {self.address} {self.state.value}"
            f" outbox={len(self.outbox)} in_flight={self.in_flight}>"
        )

    @property
    def unproven(self) -> int:
        """Messages with ack policy NONE that the server has not been seen to take."""
        return self._unacked.unproven

    def submit(self, pending: PendingPublish) -> None:
        """Take a message: it is written at once if that helps, else by the writer.

        It helps where nothing else is on its way, and where so many wait that the server would
        otherwise be idle while the program goes on publishing.
        """
        outbox = self.outbox
        outbox.append(pending)
        waiting = len(outbox)
        if waiting == 1:
            if not self.in_flight:
                self._write_now()
            if outbox:
                self._work.set()  # and it stays set, or answers set it, until all is written
        elif not waiting % _WRITTEN_AT_ONCE:
            self._write_now()

    def _write_now(self) -> None:
        """Write what waits, as far as nothing has to be awaited for it."""
        exchange = self._exchange
        if self._taking or not isinstance(exchange, LaneExchange):
            return
        batch = self._next_batch(exchange.room)
        if batch and not exchange.send_now([item.frame for item in batch]):
            self._not_written(batch)
        if self._sending:
            self._settle_unacked()

    def forget(self, pending: PendingPublish) -> None:
        """Expect no answer to a message any more."""
        if pending.session is self:
            self._left(pending)
            self._go_on()

    def _go_on(self) -> None:
        """Let the writer go on if it waits for answers and enough of them have come."""
        if self.outbox and self.in_flight <= _MAX_WRITTEN_AHEAD - _BATCH_MESSAGES:
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
        request = encode_publish_request(
            "",
            0,
            b"",
            key=None,
            headers=None,
            ack_policy=AckPolicy.LEADER,
            correlation_id=correlation_id,
            expected_offset=None,
        )
        barrier = Barrier(correlation_id, framed(request), self._loop.create_future())
        self._barriers[correlation_id] = barrier
        self.outbox.append(barrier)
        self._work.set()
        try:
            await barrier.passed
        finally:
            del self._barriers[correlation_id]

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
        self._link = None
        self._link = link = await self._connection.pool.get(self.address, Purpose.PUBLISH)
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
                before = exchange.attempted
                try:
                    await exchange.send_framed([item.frame for item in batch])
                except BaseException:
                    self._not_written(batch[exchange.attempted - before :])
                    raise
                if self._sending:
                    self._settle_unacked()
            else:
                self._work.clear()
                await self._work.wait()

    def _next_batch(self, max_bytes: int | None = None) -> list[PendingPublish | Barrier]:
        """Take from the outbox what may be written now, marked as written.

        Args:
            max_bytes: the most that may be taken, prefixes included; None for a batch that may
                have to wait.
        """
        batch: list[PendingPublish | Barrier] = []
        room = min(_BATCH_MESSAGES, _MAX_WRITTEN_AHEAD - self.in_flight)
        while room > 0 and not batch:
            batch = self.outbox[:room]
            del batch[count_that_fit(batch, _BATCH_BYTES, max_bytes) :]
            if not batch:
                break
            del self.outbox[: len(batch)]
            now = self._loop.time()
            batch = self._marked(batch, now)
            if self._link is not None and self._asked <= self._link.last_received:
                self._asked = now
        return batch

    def _marked(
        self, items: list[PendingPublish | Barrier], now: float
    ) -> list[PendingPublish | Barrier]:
        """Mark as written what is left to be written: some may have been given up."""
        if are_usual(items):
            for item in cast("list[PendingPublish]", items):  # a barrier is not acked
                item.session = self
                item.written_at = now
            self.in_flight += len(items)
            return items
        return [item for item in items if self._mark(item, now)]

    def _tell_taken_back(self, pending: PendingPublish) -> None:
        # The owner may submit others, which must not be written before the batch is.
        self._taking = True
        try:
            self._owner.taken_back(pending)
        finally:
            self._taking = False

    def _mark(self, item: PendingPublish | Barrier, now: float) -> bool:
        if isinstance(item, Barrier):
            item.unacked_before = self._unacked.written + len(self._sending)
            return item.correlation_id in self._barriers
        if item.done():
            self._tell_taken_back(item)
            return False
        item.session = self
        item.written_at = now
        if item.terms.acked:
            self.in_flight += 1
        else:
            self._sending.append(item)
        return True

    def _settle_unacked(self) -> None:
        """Settle what was written with ack policy NONE."""
        sent, self._sending = self._sending, []
        for pending in sent:
            self._unacked.add(pending)
            self._owner.written(pending)

    def _not_written(self, rest: list[PendingPublish | Barrier]) -> None:
        """Put back what the connection broke before: it is certainly not stored."""
        for item in rest:
            if isinstance(item, PendingPublish):
                item.session = None
                if item.terms.acked:
                    self.in_flight -= 1
        self.outbox[:0] = rest
        self._sending = [item for item in self._sending if item.session is self]

    # What comes from the server (`Receiver`)

    @property
    def full(self) -> bool:
        """Never: answers are taken in at once."""
        return False

    def received(self, messages: list[bytes]) -> None:
        """Match answers with what waits for them."""
        self._attempts = 0
        acks = decode_acks(messages)
        acked = None if acks is None else messages_of(acks, self._unsettled, self)
        try:
            if acks is None:
                self._take_answers(decode_publish_responses(messages))
            elif acked is None:
                self._take_answers(acks)
            else:
                self._acked(acked, acks)
        except MalformedData as error:
            self.ended(CallFailure(Code.INTERNAL, str(error), Reach.UNKNOWN))
            return
        self._go_on()
        if self._exchange is not None:
            self._exchange.drained(sum(map(len, messages)) + PREFIX_BYTES * len(messages))

    def _take_answers(self, answers: Sequence[Ack | PublishRefusal]) -> None:
        unsettled = self._unsettled
        owner = self._owner
        acked: list[PendingPublish] = []
        acks: list[Ack] = []
        for answer in answers:
            pending = unsettled.get(answer.correlation_id)
            if pending is None or pending.session is not self:
                self._unexpected(answer)
            elif isinstance(answer, PublishRefusal):
                acked, acks = self._acked(acked, acks)  # what came before is told before
                self._left(pending)
                owner.refused(pending, answer)
            elif answer.stream != pending.lane.stream:
                # Another stream on the same subject stored the message too (W12).
                self.stray_answers += 1
            elif answer.ack_error is not _OK:
                acked, acks = self._acked(acked, acks)
                self._left(pending)
                owner.ack_failed(pending, answer)
            else:
                pending.session = None  # a second ack is unexpected
                acked.append(pending)
                acks.append(answer)
        self._acked(acked, acks)

    def _acked(
        self, messages: list[PendingPublish], acks: list[Ack]
    ) -> tuple[list[PendingPublish], list[Ack]]:
        """Tell of acks; returns lists for the next ones."""
        self.in_flight -= len(messages)
        self._owner.acked(messages, acks)
        return [], []

    def _left(self, pending: PendingPublish) -> None:
        pending.session = None
        if pending.terms.acked:
            self.in_flight -= 1

    def ended(self, failure: CallFailure) -> None:
        """End the serving over this link."""
        if failure.code is Code.OK:
            failure = CallFailure(Code.UNAVAILABLE, "the server ended the session", Reach.UNKNOWN)
        self._failure = failure
        self._serving.cancel()

    def _unexpected(self, answer: Ack | PublishRefusal) -> None:
        """Take an answer that no message waits for."""
        barrier = self._barriers.get(answer.correlation_id)
        place = self._unacked.recent.get(answer.correlation_id)
        if barrier is not None:
            self._unacked.proven = barrier.unacked_before
            if not barrier.passed.done():
                barrier.passed.set_result(None)
        elif place is not None and isinstance(answer, PublishRefusal):
            self._owner.refused_late(*place, answer)
        else:
            self.stray_answers += 1

    async def _recover(self, failure: CallFailure) -> None:
        now = self._loop.time()
        # Whoever accepts connections and drops them, as a proxy does whose server is dead, is down.
        fruitless = self._attempts > 0
        down = fruitless or self._link is None or self._owes_answers(self._link, now)
        self.state = SessionState.DOWN if down else SessionState.IDLE
        self.down_by = failure if down else None
        if down:
            self.down_since = now
        self._attempts += 1
        self._give_up(failure)
        delay = self._connection.router.delay(self._attempts)
        self._connection.reporter.retried(
            Retried(PUBLISH_ASYNC.name, self._attempts, delay, failure)
        )
        await asyncio.sleep(delay)
        if down:
            await self._look_for_brokers()
        if not self.outbox:
            self._work.clear()

    def _owes_answers(self, link: Link, now: float) -> bool:
        """Whether the broker was asked long ago and has said nothing since; else it was quiet."""
        return self._asked > link.last_received and now - self._asked >= _SILENCE

    async def _look_for_brokers(self) -> None:
        try:
            await self._connection.metadata.fetch(patient=False)
        except LiftbridgeError as error:
            logger.debug("metadata could not be refreshed: %s", error)

    def _give_up(self, failure: CallFailure) -> None:
        """Hand back what is here: what was written and not answered, and what was not written."""
        unknown = [item for item in self._unsettled.values() if item.session is self]
        unsent = [item for item in self.outbox if isinstance(item, PendingPublish)]
        self.in_flight = 0
        self.outbox.clear()
        self._sending = []
        for barrier in self._barriers.values():
            if not barrier.passed.done():
                barrier.passed.set_exception(failure)
                barrier.passed.exception()  # the waiting one may have gone
        unacked, self._unacked = self._unacked, Unacked()
        self._owner.session_lost(self, unknown, unsent, unacked.unproven, failure)
