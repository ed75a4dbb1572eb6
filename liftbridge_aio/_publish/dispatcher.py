"""Carries out what the queues of partitions decide: sends, retries and fails their messages.

A partition stays on one session while anything of it is in flight, because order holds only within
a session. What may be sent when is decided in `core.partition_queue`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Final

from liftbridge_aio._core.absence import Absence
from liftbridge_aio._core.status import CallFailure
from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.model import Ack
from liftbridge_aio.net.network import Network
from liftbridge_aio.wire.codec import PublishRefusal, publish_head

from . import failures
from .batches import AckBatch, first_and_last_offsets, stepped_back
from .core.partition_queue import Action, Confirm, Drop, Fail, QueueState, Retry, Send
from .in_flight_table import InFlightTable
from .message import PartitionRoute, PendingPublish, PublishTerms
from .refusals import PublishCode, publish_error, stream_unknown
from .session import PublishSession, SessionState
from .session_pool import SessionPool

logger = logging.getLogger("liftbridge_aio.publisher")

# On the way of every message; an enum takes ten times as long to look into as a module.
_OPEN: Final = QueueState.OPEN

_LATE_AFTER: Final = 0.75
"""Seconds after which a probe without an ack is late, so that the broker is asked about it."""


class Dispatcher:
    """Hands messages to sessions, and tells the queues of partitions what becomes of them.

    It alone changes routes, but for their queues and counts (`PartitionRoute`).
    """

    def __init__(
        self, network: Network, table: InFlightTable, plain: tuple[PublishTerms, ...]
    ) -> None:
        """Begin without routes; `plain` holds the terms of plain messages, by ack policy."""
        self._network = network
        self._table = table
        self._plain = plain
        self._loop = asyncio.get_running_loop()
        self._sessions = SessionPool(network, self._loop.time, self._new_session)
        self.routes: dict[tuple[str, int], PartitionRoute] = {}
        """Routes of partitions that were published to before, by stream and partition."""

    def _new_session(self, address: str) -> PublishSession:
        return PublishSession(address, self._network, self._table, self)

    @property
    def sessions(self) -> tuple[PublishSession, ...]:
        """The sessions, one per address."""
        return self._sessions.all

    def route(self, stream: str, partition: int) -> PartitionRoute:
        """Return the route of a partition."""
        route = self.routes.get((stream, partition))
        if route is None:
            plain = tuple(
                (publish_head(stream, partition, terms.policy), terms) for terms in self._plain
            )
            route = self.routes[stream, partition] = PartitionRoute(stream, partition, plain)
        return route

    def enqueue(
        self,
        route: PartitionRoute,
        terms: PublishTerms,
        correlation_id: str,
        frame: bytes,
        send_by: float,
        expected_offset: int | None,
    ) -> PendingPublish:
        """Take a message, and send it or let it wait. What raises leaves nothing behind."""
        session = route.session
        if route.unsettled == 0 or session is None:
            session = self._choose_session(route)
        pending = PendingPublish(loop=self._loop)  # its __init__ is not ours: that is in C
        pending.route = route
        pending.terms = terms
        pending.correlation_id = correlation_id
        pending.frame = frame
        pending.expected_offset = expected_offset
        pending.send_by = send_by
        pending.session = None
        self._table.unsettled[correlation_id] = pending
        route.unsettled += 1
        try:
            if route.queue.state is _OPEN:
                session.submit(pending)  # as the queue would have it, without asking it
            else:
                self._carry_out(route, route.queue.enqueued(pending))
        except BaseException:
            self._table.forget(pending)
            pending.cancel()  # whoever finds it in a queue passes over it
            raise
        return pending

    def _choose_session(self, route: PartitionRoute) -> PublishSession:
        """Choose a session for a partition of which nothing is in flight."""
        snapshot = self._network.router.snapshot
        session = route.session
        if (
            session is None
            or route.chosen_in is not snapshot
            or session.state is not SessionState.READY
        ):
            session = self._sessions.best(route)
            route.chosen_in = snapshot
            if session is not route.session:
                route.session = session
                self._carry_out(route, route.queue.session_lost())
        return session

    def _session_of(self, route: PartitionRoute) -> PublishSession:
        return route.session or self._choose_session(route)

    # Actions

    def _carry_out(
        self,
        route: PartitionRoute,
        actions: Iterable[Action[PendingPublish]],
        error: Callable[[], LiftbridgeError] | None = None,
    ) -> None:
        """Carry out actions; `error` makes the error of those that fail."""
        for action in actions:
            match action:
                case Send():
                    self._session_of(route).submit_all(action.messages)
                case Retry():
                    self._retry(route, action.message)
                case Confirm():
                    self._confirm(route, action.message)
                case Fail():
                    self._fail(action.messages, error)
                case Drop():
                    for pending in action.messages:
                        self._table.forget(pending)

    def _fail(
        self, messages: Iterable[PendingPublish], error: Callable[[], LiftbridgeError] | None
    ) -> None:
        if error is None:
            raise AssertionError("no error for messages that fail")
        for pending in messages:
            self._table.fail(pending, error())

    def _abandon(
        self,
        route: PartitionRoute,
        error: Callable[[], LiftbridgeError],
        returned: Iterable[PendingPublish] = (),
    ) -> None:
        route.absence = None
        route.retries = 0
        self._carry_out(route, route.queue.abandoned(returned), error)

    def _retry(self, route: PartitionRoute, probe: PendingPublish) -> None:
        """Send a probe again later; to the next broker, which may know what this one does not."""
        route.session = self._sessions.next_after(self._session_of(route), route)
        route.retries += 1
        delay = min(self._network.router.delay(route.retries), self._absence(route).remaining)
        self._network.supervisor.spawn(
            self._send_again, route, probe, delay, name=f"retry:{route.stream}"
        )

    async def _send_again(self, route: PartitionRoute, probe: PendingPublish, delay: float) -> None:
        await asyncio.sleep(delay)
        if route.queue.probe is not probe:
            return
        try:
            if probe.done():
                self.cancelled(probe)
            else:
                self._session_of(route).submit(probe)
        except Exception as error:
            logger.exception("a message to %s/%d was not resent", route.stream, route.partition)
            fault = error  # the name above ends with its block
            self._abandon(route, lambda: failures.client_fault(fault))

    def _confirm(self, route: PartitionRoute, probe: PendingPublish) -> None:
        session = probe.session
        if session is not None:
            self._network.supervisor.spawn(
                self._wait_until_accepted, route, probe, session, name=f"probe:{route.stream}"
            )

    async def _wait_until_accepted(
        self, route: PartitionRoute, probe: PendingPublish, session: PublishSession
    ) -> None:
        written_at = probe.written_at
        # If the session breaks, or the deadline passes, the queue gets an event for that.
        with suppress(CallFailure, TimeoutError):
            async with asyncio.timeout_at(probe.answer_by):
                await session.flush()
            if probe.session is session and probe.written_at == written_at:  # else it was refused
                self._carry_out(route, route.queue.was_accepted(probe))

    def _absence(self, route: PartitionRoute) -> Absence:
        if route.absence is None:
            route.absence = Absence(self._network.not_found_timeout)
        return route.absence

    # Events from sessions

    def acked(self, batch: AckBatch) -> None:
        """Take acks that say OK, whose messages are settled."""
        self._follow_offsets(batch)
        if all(route.queue.state is _OPEN for route in batch.routes):
            return
        for pending in batch.messages:
            route = pending.route
            if route.queue.state is not _OPEN:
                self._stream_known(route)
                self._carry_out(route, route.queue.acked(pending))

    def _follow_offsets(self, batch: AckBatch) -> None:
        """Request the metadata of a stream whose offsets step back.

        Such a stream was created again, perhaps with more partitions, or has lost the end of a log.
        """
        for route, (first, last) in first_and_last_offsets(batch).items():
            if first <= route.newest_offset and stepped_back(route, batch):
                route.newest_offset = -1
                self._network.metadata.refresh_in_background(route.stream)
            newest = max(first, last)
            if newest > route.newest_offset:
                route.newest_offset = newest
                route.newest_at = self._loop.time()

    def ack_failed(self, pending: PendingPublish, ack: Ack) -> None:
        """Take an ack that says that a message could not be stored."""
        text = f"the ack says {ack.ack_error.name}"
        self._refused_for_good(pending, publish_error(PublishCode.UNKNOWN, text))

    def refused(self, pending: PendingPublish, refusal: PublishRefusal) -> None:
        """Take the refusal of a message."""
        route = pending.route
        error = publish_error(refusal.code, refusal.text)
        if refusal.code == PublishCode.NOT_FOUND:
            # Deleted, or created anew with fewer partitions, perhaps.
            self._network.metadata.mark_missing(route.stream)
        if not stream_unknown(refusal.code, refusal.text):
            self._refused_for_good(pending, error)
        elif pending is route.queue.probe and self._is_gone(route):
            absence = self._absence(route)
            self._abandon(route, lambda: failures.no_such_stream(absence, refusal.text))
        else:
            self._carry_out(route, route.queue.stream_unknown(pending), lambda: error)

    def _refused_for_good(self, pending: PendingPublish, error: LiftbridgeError) -> None:
        route = pending.route
        self._stream_known(route)
        self._carry_out(route, route.queue.refused(pending), lambda: error)

    def _is_gone(self, route: PartitionRoute) -> bool:
        """Note that the route's broker does not know the stream; return True if it is gone."""
        absence = self._absence(route)
        address = self._session_of(route).address
        absence.denied(self._loop.time(), self._network.pool.incarnation(address))
        return absence.confirmed

    @staticmethod
    def _stream_known(route: PartitionRoute) -> None:
        route.absence = None
        route.retries = 0

    def cancelled(self, pending: PendingPublish) -> None:
        """Forget a message that was cancelled before it was written."""
        route = pending.route
        self._carry_out(route, route.queue.cancelled(pending))

    def refused_unacked(self, stream: str, partition: int, refusal: PublishRefusal) -> None:
        """Report the refusal of a message with ack policy NONE to the hook and to `flush`."""
        if refusal.code == PublishCode.NOT_FOUND:
            self._network.metadata.mark_missing(stream)
        error = publish_error(refusal.code, refusal.text).at(stream, partition)
        self._table.fail_unacked(stream, partition, refusal.correlation_id, error)

    def session_lost(
        self,
        session: PublishSession,
        unknown: Collection[PendingPublish],
        unsent: Iterable[PendingPublish],
        unconfirmed: int,
        failure: CallFailure,
    ) -> None:
        """Fail what was written and not acked, and let the rest begin again, in order.

        Nothing of these partitions is in flight any more, so they may go to another session; and
        wherever they go, it is not known whether that broker knows their streams.

        Args:
            session: the session, which holds nothing any more.
            unknown: messages that were written and not answered.
            unsent: messages that were not written, in order.
            unconfirmed: messages with ack policy NONE that the server may not have accepted.
            failure: what broke the session.
        """
        if unconfirmed:
            lost = failures.unacked_lost(session.address, unconfirmed, failure)
            self._table.fail_unacked("", 0, "", lost)
        for pending in unknown:
            self._table.fail(pending, failures.connection_lost(session.address, failure))
        if not self._network.supervisor.running:
            return  # the client is closing, and fails the rest itself
        self._sessions.remove_ended(session)
        failed = frozenset(unknown)
        returned: dict[PartitionRoute, list[PendingPublish]] = {}
        for pending in unsent:
            returned.setdefault(pending.route, []).append(pending)
        for route in self.routes.values():
            if route.session is session:
                self._begin_again(route, failed, returned.get(route, []))

    def _begin_again(
        self,
        route: PartitionRoute,
        failed: Collection[PendingPublish],
        returned: list[PendingPublish],
    ) -> None:
        route.session = self._sessions.best(route)
        if route.unsettled:
            self._absence(route).interrupt()
        insecure = self._sessions.tls_failure(route)
        if insecure is None:
            self._carry_out(route, route.queue.session_lost(failed, returned))
        else:
            self._abandon(route, lambda: failures.not_trusted(insecure), returned)

    def release(self) -> None:
        """Release sessions and messages: the futures that users keep hold their routes."""
        for route in self.routes.values():
            route.session = None
            route.queue.clear()

    # Deadlines

    def expire(self, now: float) -> None:
        """Fail the messages whose time is up, and forget those that were cancelled."""
        for pending in self._table.all():
            if pending.session is None and now < pending.send_by and not pending.done():
                continue  # as most of those that wait: there may be many
            try:
                self._check_deadline(pending, now)
            except Exception as error:
                logger.exception("the deadline of a publish could not be checked")
                try:
                    self._table.fail(pending, failures.client_fault(error))
                finally:
                    if not pending.done():
                        pending.set_exception(failures.client_fault(error))

    def _check_deadline(self, pending: PendingPublish, now: float) -> None:
        route = pending.route
        if pending.session is not None:
            if now >= pending.answer_by:
                pending.session.forget(pending)
                self._expired(pending, failures.no_ack())
            elif pending is route.queue.probe and now >= pending.written_at + _LATE_AFTER:
                self._carry_out(route, route.queue.late(pending))
        elif now >= pending.send_by or pending.done():
            down_by = None if route.session is None else route.session.down_by
            self._expired(pending, failures.not_written(route.absence, down_by))

    def _expired(self, pending: PendingPublish, error: LiftbridgeError) -> None:
        self._carry_out(pending.route, pending.route.queue.expired(pending), lambda: error)
