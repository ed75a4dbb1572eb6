"""One PublishAsync session with one broker: one task writes, acks come by callback.

A session knows correlation ids and bytes. Which partition goes over which session is the
dispatcher's business. There is one task per session, and so one per broker, whatever the number of
partitions: acks of a session come as one sequence of bytes, so more readers would only wait for
each other, and the order of each partition would have to be restored.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import math
import secrets
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, NoReturn, cast

import anyio

from liftbridge_aio._core.status import CallFailure, Code, Reach
from liftbridge_aio.errors import ClientClosed, LiftbridgeError, MalformedData
from liftbridge_aio.model import Ack, AckError, AckPolicy
from liftbridge_aio.net.broker_connection import BrokerConnection, Purpose, StreamCall
from liftbridge_aio.net.fast_call import FastCall
from liftbridge_aio.net.network import Network
from liftbridge_aio.telemetry import Retried
from liftbridge_aio.wire.codec import (
    PublishRefusal,
    decode_acks,
    decode_publish_responses,
    frame_publish,
    publish_head,
)
from liftbridge_aio.wire.framing import PREFIX_BYTES
from liftbridge_aio.wire.rpc import PUBLISH_ASYNC

from .batches import AckBatch, are_usual, batch_of, count_that_fit, frames_of, match_acks
from .flush_marker import FlushMarker, UnackedMessages
from .in_flight_table import InFlightTable
from .message import PendingPublish

if TYPE_CHECKING:
    from .dispatcher import Dispatcher

logger = logging.getLogger("liftbridge_aio.publisher")

_OK: Final = AckError.OK
_BATCH_MESSAGES: Final = 512
_BATCH_BYTES: Final = 256 * 1024
_MAX_UNWRITTEN: Final = 128
"""Messages that wait before a publish writes them, instead of the writer, which runs only when the
program waits for something."""
_MAX_WRITTEN_AHEAD: Final = 2048
"""Messages that may be written and not acked at once on one session. The rest of the window waits
unwritten: the timeout of an ack begins with the write, and a server that acks some thousand
messages a second must not be sent ten seconds' worth of them."""
_SILENCE: Final = 1.0
"""Seconds without data, though acks are due, after which a server whose connection breaks counts as
down: it may accept the next connection and be silent again, so other servers are tried first."""


class SessionState(enum.Enum):
    """State of a session: IDLE to READY and back with each connection, until it has ENDED."""

    IDLE = "idle"
    CONNECTING = "connecting"
    READY = "ready"
    DOWN = "down"
    """The last attempt to connect failed, the server was silent, or two connections in a row broke
    before a message was answered."""
    ENDED = "ended"
    """Its task is over; a new session has to take its place."""


class PublishSession:
    """Sends messages to one address and matches the responses.

    It alone changes its outbox and the count of what is in flight on it, and sets `session` and
    `written_at` of messages. Acks are settled in the in-flight table; what concerns the order of a
    partition goes to the dispatcher.
    """

    def __init__(
        self, address: str, network: Network, table: InFlightTable, dispatcher: Dispatcher
    ) -> None:
        self.address = address
        self.state = SessionState.IDLE
        self.down_since = -math.inf
        """Loop time at which it was last found to be down."""
        self.down_by: CallFailure | None = None
        """The reason why it is down."""
        self.outbox: list[PendingPublish | FlushMarker] = []
        self.in_flight = 0
        """Messages that are written and not answered."""
        self.unmatched_responses = 0
        """Responses that match no message: second ones of a message, or acks of another stream on
        the same subject."""
        self._network = network
        self._table = table
        self._dispatcher = dispatcher
        self._work = asyncio.Event()
        self._unacked = UnackedMessages()
        self._unsettled = table.unsettled
        self._sending: list[PendingPublish] = []
        self._taking = False
        self._link: BrokerConnection | None = None
        """None if the last attempt to connect failed or has not ended."""
        self._asked = -math.inf
        """Loop time of the first write since data came last."""
        self._exchange: StreamCall | None = None
        self._serving: anyio.CancelScope | None = None
        """Made by the task: where there is none, as in callbacks, anyio cannot make one."""
        self._failure = CallFailure(Code.UNAVAILABLE, "not connected", Reach.NOT_SENT)
        self._markers: dict[str, FlushMarker] = {}
        self._marker_count = 0
        self._marker_prefix = f"flush-{secrets.token_hex(8)}-"  # no user picks the same by accident
        self._attempts = 0
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        """Show the address and what is in flight."""
        return (
            f"<PublishSession {self.address} {self.state.value}"
            f" outbox={len(self.outbox)} in_flight={self.in_flight}>"
        )

    @property
    def unconfirmed(self) -> int:
        """Messages with ack policy NONE that the server has not been seen to accept."""
        return self._unacked.unconfirmed

    def submit(self, pending: PendingPublish) -> None:
        """Write a message, at once or by the writer, together with others.

        At once if nothing else is in flight, or if so many wait that the server would be idle
        while the program goes on publishing.
        """
        outbox = self.outbox
        outbox.append(pending)
        waiting = len(outbox)
        if waiting == 1:
            try:
                if not self.in_flight:
                    self._write_now()
            finally:
                if outbox:
                    self._work.set()  # and it stays set, or acks set it, until all is written
        elif not waiting % _MAX_UNWRITTEN:
            self._write_now()

    def submit_all(self, messages: Collection[PendingPublish]) -> None:
        """Write messages, as `submit` does each of them."""
        unwritten = len(self.outbox)
        self.outbox.extend(messages)
        try:
            if not (unwritten or self.in_flight) or len(self.outbox) >= _MAX_UNWRITTEN:
                self._write_now()
        finally:
            if self.outbox:
                self._work.set()

    def _write_now(self) -> None:
        """Write what waits, as far as nothing has to be awaited for it."""
        exchange = self._exchange
        if self._taking or not isinstance(exchange, FastCall):
            return
        batch = self._next_batch(exchange.writable_bytes)
        if batch and not exchange.send_now(frames_of(batch)):
            self._not_written(batch)
        if self._sending:
            self._settle_unacked()

    def forget(self, pending: PendingPublish) -> None:
        """Expect no response to a message any more."""
        if pending.session is self:
            self._left(pending)
            self._go_on()

    def _go_on(self) -> None:
        """Wake the writer if it waits for acks and enough of them have come."""
        if self.outbox and self.in_flight <= _MAX_WRITTEN_AHEAD - _BATCH_MESSAGES:
            self._work.set()

    async def flush(self) -> None:
        """Wait until the server has accepted everything written before, ack policy NONE included.

        A flush marker, a request without a stream, is refused in its turn and by its correlation
        id. The server handles a session in order, so it has accepted everything before the marker.
        Half-closing would show the same, but takes up to 5 s at times. Cancelling abandons the
        wait.

        Raises:
            CallFailure: the session broke before the response came.
        """
        self._marker_count += 1
        correlation_id = f"{self._marker_prefix}{self._marker_count}"
        head = publish_head("", 0, AckPolicy.LEADER)
        frame = frame_publish(head, b"", None, None, None, correlation_id)
        marker = FlushMarker(correlation_id, frame, self._loop.create_future())
        self._markers[correlation_id] = marker
        self.outbox.append(marker)
        self._work.set()
        try:
            await marker.answered
        finally:
            del self._markers[correlation_id]

    async def run(self) -> None:
        """Serve the outbox until cancelled, over one connection after the other.

        Whatever ends it, the dispatcher gets back what it holds.
        """
        try:
            while True:
                await self._work.wait()
                await self._recover(await self._serve_until_broken())
        except ClientClosed:
            logger.debug("%r ends with its client", self)
        finally:
            self.state = SessionState.ENDED
            running = self._network.supervisor.running
            text = "the session's task was ended" if running else "the client was closed"
            self._give_up(CallFailure(Code.CANCELLED, text, Reach.UNKNOWN))

    async def _serve_until_broken(self) -> CallFailure:
        """Serve over one connection; a fault of the client ends that and not the session."""
        try:
            await self._serve()
        except CallFailure as failure:
            return failure
        except ClientClosed:
            raise
        except Exception as error:
            logger.exception("%r failed by a fault of the client", self)
            return _fault(error)

    async def _serve(self) -> NoReturn:
        self.state = SessionState.CONNECTING
        self._link = None
        self._link = link = await self._network.pool.get(self.address, Purpose.PUBLISH)
        self._failure = CallFailure(Code.UNAVAILABLE, "the session broke off", Reach.UNKNOWN)
        async with link.stream(PUBLISH_ASYNC) as exchange:
            self.state = SessionState.READY
            self._exchange = exchange
            with anyio.CancelScope() as self._serving:
                exchange.deliver(self)
                await self._write(exchange)
        raise self._failure

    async def _write(self, exchange: StreamCall) -> NoReturn:
        while True:
            batch = self._next_batch()
            if batch:
                before = exchange.attempted
                try:
                    await exchange.send_framed(frames_of(batch))
                except BaseException:
                    self._not_written(batch[exchange.attempted - before :])
                    raise
                if self._sending:
                    self._settle_unacked()
            else:
                self._work.clear()
                await self._work.wait()

    def _next_batch(self, max_bytes: int | None = None) -> list[PendingPublish | FlushMarker]:
        """Remove from the outbox what may be written now, marked as written.

        Args:
            max_bytes: the most that may be taken, prefixes included; None for a batch that may
                have to wait.
        """
        batch: list[PendingPublish | FlushMarker] = []
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
        self, items: list[PendingPublish | FlushMarker], now: float
    ) -> list[PendingPublish | FlushMarker]:
        """Mark as written what is left to be written: some may have been cancelled."""
        if are_usual(items):
            for item in cast("list[PendingPublish]", items):  # a flush marker is not acked
                item.session = self
                item.written_at = now
            self.in_flight += len(items)
            return items
        return [item for item in items if self._mark(item, now)]

    def _notify_cancelled(self, pending: PendingPublish) -> None:
        # The dispatcher may submit others, which must not be written before the batch is.
        self._taking = True
        try:
            self._dispatcher.cancelled(pending)
        finally:
            self._taking = False

    def _mark(self, item: PendingPublish | FlushMarker, now: float) -> bool:
        if isinstance(item, FlushMarker):
            item.unacked_before = self._unacked.written + len(self._sending)
            return item.correlation_id in self._markers
        if item.done():
            self._notify_cancelled(item)
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
            self._table.succeed_without_ack(pending)

    def _not_written(self, rest: list[PendingPublish | FlushMarker]) -> None:
        """Put back what the connection broke before: it is not stored."""
        for item in rest:
            if isinstance(item, PendingPublish):
                item.session = None
                if item.terms.acked:
                    self.in_flight -= 1
        self.outbox[:0] = rest
        self._sending = [item for item in self._sending if item.session is self]

    # What comes from the server (`Receiver`)

    @property
    def at_capacity(self) -> bool:
        """Always False: responses are handled at once."""
        return False

    def received(self, messages: list[bytes]) -> None:
        """Match responses to messages, and settle those that are acked."""
        self._attempts = 0
        acks = decode_acks(messages)
        batch = None if acks is None else match_acks(acks, self._unsettled, self)
        try:
            if acks is None:
                self._match_one_by_one(decode_publish_responses(messages))
            elif batch is None:
                self._match_one_by_one(acks)
            else:
                self._settle(batch)
        except MalformedData as error:
            self.ended(CallFailure(Code.INTERNAL, str(error), Reach.UNKNOWN))
            return
        self._go_on()
        if self._exchange is not None:
            self._exchange.consumed(sum(map(len, messages)) + PREFIX_BYTES * len(messages))

    def _match_one_by_one(self, responses: Sequence[Ack | PublishRefusal]) -> None:
        acked: list[PendingPublish] = []
        acks: list[Ack] = []

        def settle() -> None:
            if acked:
                self._settle(batch_of(acked.copy(), acks.copy()))
                acked.clear()
                acks.clear()

        for response in responses:
            pending = self._unsettled.get(response.correlation_id)
            if pending is None or pending.session is not self:
                self._unmatched(response)
            elif isinstance(response, PublishRefusal):
                settle()  # what came before is handled before
                self._left(pending)
                self._dispatcher.refused(pending, response)
            elif response.stream != pending.route.stream:
                # Another stream on the same subject has stored the message too.
                self.unmatched_responses += 1
            elif response.ack_error is not _OK:
                settle()
                self._left(pending)
                self._dispatcher.ack_failed(pending, response)
            else:
                pending.session = None  # a second ack matches nothing
                acked.append(pending)
                acks.append(response)
        settle()

    def _settle(self, batch: AckBatch) -> None:
        self.in_flight -= len(batch.messages)
        try:
            self._table.succeed(batch)
            self._dispatcher.acked(batch)
        except Exception:
            for pending in batch.messages:
                pending.session = self  # else those that are not settled would pass as not sent
            raise

    def _left(self, pending: PendingPublish) -> None:
        pending.session = None
        if pending.terms.acked:
            self.in_flight -= 1

    def ended(self, failure: CallFailure) -> None:
        """End the service of this connection."""
        if failure.code is Code.OK:
            failure = CallFailure(Code.UNAVAILABLE, "the server ended the session", Reach.UNKNOWN)
        self._failure = failure
        if self._serving is not None:
            self._serving.cancel()

    def broken(self, error: Exception) -> None:
        """End the service of this connection because of a fault of the client."""
        self.ended(_fault(error))

    def _unmatched(self, response: Ack | PublishRefusal) -> None:
        """Handle a response that matches no message in flight."""
        marker = self._markers.get(response.correlation_id)
        place = self._unacked.recent.get(response.correlation_id)
        if marker is not None:
            self._unacked.confirmed = marker.unacked_before
            if not marker.answered.done():
                marker.answered.set_result(None)
        elif place is not None and isinstance(response, PublishRefusal):
            self._dispatcher.refused_unacked(*place, response)
        else:
            self.unmatched_responses += 1

    async def _recover(self, failure: CallFailure) -> None:
        now = self._loop.time()
        # What accepts connections and drops them is down, as a proxy whose server is dead.
        fruitless = self._attempts > 0
        foreign = failure.unusable is not None
        down = foreign or fruitless or self._link is None or self._owes_acks(self._link, now)
        self.state = SessionState.DOWN if down else SessionState.IDLE
        self.down_by = failure if down else None
        if down:
            self.down_since = now
        self._attempts += 1
        self._give_up(failure)
        delay = self._network.router.delay(self._attempts)
        self._network.reporter.retried(Retried(PUBLISH_ASYNC.name, self._attempts, delay, failure))
        await asyncio.sleep(delay)
        if down:
            await self._look_for_brokers()
        if not self.outbox:
            self._work.clear()

    def _owes_acks(self, link: BrokerConnection, now: float) -> bool:
        """Return True if acks have been due for a while and nothing was received."""
        return self._asked > link.last_received and now - self._asked >= _SILENCE

    async def _look_for_brokers(self) -> None:
        try:
            await self._network.metadata.fetch(retry=False)
        except LiftbridgeError as error:
            logger.debug("metadata could not be refreshed: %s", error)

    def _give_up(self, failure: CallFailure) -> None:
        """Return everything to the dispatcher: what was written and not acked, and the rest."""
        unknown = [item for item in self._unsettled.values() if item.session is self]
        unsent = [item for item in self.outbox if isinstance(item, PendingPublish)]
        if failure.reach is Reach.NOT_SENT:
            for item in unknown:
                item.session = None  # whoever took it is no Liftbridge server
            unknown, unsent = [], unknown + unsent
        self.in_flight = 0
        self.outbox.clear()
        self._sending = []
        for marker in self._markers.values():
            if not marker.answered.done():
                marker.answered.set_exception(failure)
                marker.answered.exception()  # its waiter may have been cancelled
        unacked, self._unacked = self._unacked, UnackedMessages()
        self._dispatcher.session_lost(self, unknown, unsent, unacked.unconfirmed, failure)


def _fault(error: Exception) -> CallFailure:
    failure = CallFailure(Code.INTERNAL, f"a fault of the client: {error!r}", Reach.UNKNOWN)
    failure.__cause__ = error
    return failure
