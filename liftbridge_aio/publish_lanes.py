"""Order per partition: which session a partition uses, and who must wait for whom.

Two rules keep the order. A partition stays on one session while anything of it is in flight. And
until a broker has answered for a partition, one message goes alone and the others wait behind it:
right after a stream is created a broker may not know it yet, and a message that has to be sent
again must not be overtaken. Where that one's ack is long in coming, as without a leader, the next
one goes alone too, as soon as the broker has shown that it took the first one in.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from operator import attrgetter
from typing import Final

from .errors import (
    AckTimeout,
    LiftbridgeError,
    PublishNotSent,
    PublishOutcomeUnknown,
    PublishTimeout,
    StreamNotFound,
)
from .model import Ack
from .net.connection import Connection
from .net.pending_publish import PendingPublish, PublishLane, PublishLaneState, PublishTerms
from .net.publish_batches import lanes_of
from .net.publish_session import PublishSession, SessionState
from .publish_outcomes import PublishOutcomes
from .publish_status import PublishCode, publish_error, stream_unknown
from .publish_window import PublishWindow
from .session_choice import choose_broker
from .status import CallFailure, error_from
from .wire.codec import PublishRefusal, publish_head
from .wire.rpc import PUBLISH_ASYNC

# On the way of every message; an enum takes ten times as long to look into as a module.
_OPEN: Final = PublishLaneState.OPEN

_HELD: Final = (PublishLaneState.PROVING, PublishLaneState.ASKING)

_DOWN_FOR: Final = 30.0
"""Seconds after which a broker that was down is tried like any other."""
_HEAD_START: Final = 0.75
"""Seconds for the ack of a message that goes alone, before it is asked whether the next may go."""


class PublishLanes:
    """Hands messages to sessions, and takes what sessions tell (`SessionOwner`)."""

    def __init__(
        self,
        connection: Connection,
        window: PublishWindow,
        plain: tuple[PublishTerms, ...],
    ) -> None:
        """Begin without lanes; `plain` holds the terms of plain messages, by ack policy."""
        self.outcomes = PublishOutcomes(window, connection.reporter)
        self._connection = connection
        self._plain = plain
        self._loop = asyncio.get_running_loop()
        self._sessions: dict[str, PublishSession] = {}
        self.known: dict[tuple[str, int], PublishLane] = {}
        """Where something was published to before, by stream and partition."""

    @property
    def sessions(self) -> tuple[PublishSession, ...]:
        """One for each address that was ever needed, in the place of those that have ended."""
        return tuple(self._sessions.values())

    @property
    def unsettled(self) -> Mapping[str, PendingPublish]:
        """The messages whose outcome is open; see `SessionOwner`."""
        return self.outcomes.unsettled

    def lane(self, stream: str, partition: int) -> PublishLane:
        """The lane of a partition."""
        lane = self.known.get((stream, partition))
        if lane is None:
            plain = tuple(
                (publish_head(stream, partition, terms.policy), terms) for terms in self._plain
            )
            lane = self.known[stream, partition] = PublishLane(stream, partition, plain)
        return lane

    def enqueue(self, pending: PendingPublish) -> None:
        """Send a message, or let it wait for its turn."""
        lane = pending.lane
        session = lane.session
        if lane.unsettled == 0 or session is None:
            session = self._choose_session(lane)
        lane.unsettled += 1
        if lane.state is _OPEN:
            session.submit(pending)
        elif lane.state is PublishLaneState.UNPROVEN:
            self._send_head(lane, pending)
        else:
            lane.queue.append(pending)

    def _choose_session(self, lane: PublishLane) -> PublishSession:
        """Choose a session for a lane of which nothing is in flight."""
        snapshot = self._connection.router.snapshot
        session = lane.session
        if (
            session is None
            or lane.chosen_in is not snapshot
            or session.state is not SessionState.READY
        ):
            session = self._best_session(lane)
            lane.chosen_in = snapshot
            if session is not lane.session:
                lane.session = session
                lane.state = PublishLaneState.UNPROVEN
        return session

    def _best_session(self, lane: PublishLane) -> PublishSession:
        """Rank the brokers for the lane; the first that is not known to be down wins.

        If all are, it is the one that was found to be so the longest ago.
        """
        addresses = self._ranked_addresses(lane)
        for address in addresses:
            if not self._is_down(address):
                return self._session(address)
        return min(map(self._session, addresses), key=attrgetter("down_since"))

    def _next_session(self, lane: PublishLane) -> PublishSession:
        """The session of the broker that ranks next to the lane's, of those not known to be down.

        After the last comes the first again.
        """
        session = self._session_of(lane)
        addresses = [each for each in self._ranked_addresses(lane) if not self._is_down(each)]
        if session.address not in addresses:
            return self._best_session(lane)
        at = addresses.index(session.address)
        return self._session(addresses[(at + 1) % len(addresses)])

    def _ranked_addresses(self, lane: PublishLane) -> list[str]:
        router = self._connection.router
        brokers = router.snapshot.brokers
        ranked = choose_broker(lane.stream, lane.partition, brokers)
        addresses = [router.address_of(brokers[broker]) for broker in ranked]
        return [*addresses, *(each for each in router.addresses() if each not in addresses)]

    def _is_down(self, address: str) -> bool:
        session = self._sessions.get(address)
        return (
            session is not None
            and session.state is SessionState.DOWN
            and self._loop.time() < session.down_since + _DOWN_FOR
        )

    def _session(self, address: str) -> PublishSession:
        session = self._sessions.get(address)
        if session is None:
            session = PublishSession(address, self._connection, self)
            self._sessions[address] = session
            self._connection.supervisor.spawn(session.run, name=f"publish-session:{address}")
        return session

    def _session_of(self, lane: PublishLane) -> PublishSession:
        return lane.session or self._choose_session(lane)

    def _send_head(self, lane: PublishLane, pending: PendingPublish) -> None:
        if pending.terms.acked:
            # Without an ack nothing would be proven.
            lane.head = pending
            lane.state = PublishLaneState.PROVING
        self._session_of(lane).submit(pending)

    def _advance(self, lane: PublishLane) -> None:
        """Send what waits: everything once the lane is open, else one message."""
        while lane.returned or lane.queue:
            if lane.state in _HELD:
                return
            pending = lane.returned.popleft() if lane.returned else lane.queue.popleft()
            if pending.done():
                self.outcomes.forget(pending)
            elif lane.state is _OPEN:
                self._session_of(lane).submit(pending)
            else:
                self._send_head(lane, pending)

    # What sessions tell

    def acked(self, messages: list[PendingPublish], acks: list[Ack]) -> None:
        """Take acks that say OK, each with its message."""
        self.outcomes.succeed(messages, acks)
        held_up = {
            lane
            for lane in lanes_of(messages)
            if lane.state is not _OPEN or lane.queue or lane.returned
        }
        if held_up:
            for pending in messages:
                if pending.lane in held_up:
                    self._proven(pending.lane, pending)

    def ack_failed(self, pending: PendingPublish, ack: Ack) -> None:
        """Take an ack that says that a message could not be stored."""
        text = f"the ack says {ack.ack_error.name}"
        self.outcomes.fail(pending, publish_error(PublishCode.UNKNOWN, text))
        self._proven(pending.lane, pending)

    def refused(self, pending: PendingPublish, refusal: PublishRefusal) -> None:
        """Take the refusal of a message."""
        lane = pending.lane
        if stream_unknown(refusal.code, refusal.text):
            self._stream_unknown(lane, pending, refusal)
            return
        if refusal.code == PublishCode.NOT_FOUND:
            # Created anew with fewer partitions, perhaps.
            self._connection.metadata.forget(lane.stream)
        self.outcomes.fail(pending, publish_error(refusal.code, refusal.text))
        self._proven(lane, pending)

    def _proven(self, lane: PublishLane, pending: PendingPublish) -> None:
        """Take note that the broker knows the partition, and send what waited for that."""
        head = lane.head
        if head is pending or (
            # Unless the head was refused meanwhile, and is to be sent again.
            pending in lane.unanswered and (head is None or head.session is lane.session)
        ):
            lane.head = None
            lane.unanswered.clear()
            lane.state = _OPEN
        lane.unknown_since = None
        lane.tries = 0
        self._advance(lane)

    def _stream_unknown(
        self, lane: PublishLane, pending: PendingPublish, refusal: PublishRefusal
    ) -> None:
        self._connection.metadata.forget(lane.stream)
        if lane.head is not pending:
            # The broker knew the stream, so it was deleted. Sent again, the message could be
            # overtaken by those behind it, should the stream be created anew.
            if lane.state is _OPEN:
                lane.state = PublishLaneState.UNPROVEN
            self.outcomes.fail(pending, publish_error(PublishCode.NOT_FOUND, refusal.text))
            return
        lane.state = PublishLaneState.PROVING
        lane.unanswered.clear()
        now = self._loop.time()
        if lane.unknown_since is None:
            lane.unknown_since = now
        lane.tries += 1
        delay = self._connection.router.delay(lane.tries)
        if now + delay - lane.unknown_since > self._connection.not_found_timeout:
            text = f"no such stream, asked for {now - lane.unknown_since:.1f} s: {refusal.text}"
            self._abandon(lane, lambda: StreamNotFound(text))
        else:
            # One that has just been restarted may not know what the others do.
            lane.session = self._next_session(lane)
            self._connection.supervisor.spawn(
                self._send_again, lane, pending, delay, name=f"retry:{lane.stream}"
            )

    async def _send_again(self, lane: PublishLane, pending: PendingPublish, delay: float) -> None:
        await asyncio.sleep(delay)
        if lane.head is not pending:
            return
        if pending.done():
            self._head_gone(lane, pending)
        else:
            self._session_of(lane).submit(pending)

    def _abandon(self, lane: PublishLane, error: Callable[[], LiftbridgeError]) -> None:
        doomed = [lane.head] if lane.head is not None else []
        doomed += [*lane.returned, *lane.queue]
        lane.returned.clear()
        lane.queue.clear()
        lane.head = None
        lane.state = PublishLaneState.UNPROVEN
        lane.unknown_since = None
        lane.tries = 0
        for pending in doomed:
            self.outcomes.fail(pending, error())

    def _head_gone(self, lane: PublishLane, pending: PendingPublish) -> None:
        """Drop a head that its publisher has given up, and let the next one try."""
        lane.head = None
        lane.state = PublishLaneState.UNPROVEN
        self.outcomes.forget(pending)
        self._advance(lane)

    def written(self, pending: PendingPublish) -> None:
        """Settle a message with ack policy NONE: written is all there is to know."""
        self.outcomes.succeed_without_ack(pending)

    async def _let_next_go(
        self, lane: PublishLane, head: PendingPublish, session: PublishSession
    ) -> None:
        """Let the next message of a lane go when the broker has taken in the head, if not acked it.

        It will not be refused then, so it need not be sent again, and nothing can overtake it.
        """
        written_at = head.written_at
        # If the session breaks its owner hears of that, and the sweep sees to a head without ack.
        with suppress(CallFailure, TimeoutError):
            async with asyncio.timeout_at(head.answer_by):
                await session.prove()
            same = head.session is session and head.written_at == written_at  # not refused
            if lane.head is head and same:
                lane.unanswered.add(head)
                lane.head = None
                lane.state = PublishLaneState.UNPROVEN
                self._advance(lane)

    def taken_back(self, pending: PendingPublish) -> None:
        """Forget a message that was cancelled before it was written."""
        lane = pending.lane
        if lane.head is pending:
            self._head_gone(lane, pending)
        else:
            self.outcomes.forget(pending)

    def refused_late(self, stream: str, partition: int, refusal: PublishRefusal) -> None:
        """Report the refusal of a message with ack policy NONE to the hook and to `flush`."""
        error = publish_error(refusal.code, refusal.text).at(stream, partition)
        self.outcomes.fail_unasked(stream, partition, refusal.correlation_id, error)

    def session_lost(
        self,
        session: PublishSession,
        unknown: list[PendingPublish],
        unsent: list[PendingPublish],
        unproven: int,
        failure: CallFailure,
    ) -> None:
        """Fail what was written and not answered, and let the rest begin again, in order.

        Nothing of these partitions is in flight any more, so they may go to another session; and
        wherever they go, it is not known whether that broker knows them.
        """
        if unproven:
            text = (
                f"{unproven} messages with ack policy NONE were written to"
                f" {session.address} before the link broke: {failure.text}"
            )
            self.outcomes.fail_unasked("", 0, "", PublishOutcomeUnknown(text))
        for pending in unknown:
            lane = pending.lane
            if lane.head is pending:
                lane.head = None
            text = f"the link to {session.address} broke before the ack came: {failure.text}"
            error = PublishOutcomeUnknown(text)
            error.__cause__ = failure
            self.outcomes.fail(pending, error)
        if not self._connection.supervisor.running:
            return  # the client is closing, and fails the rest itself
        if session.state is SessionState.ENDED:
            del self._sessions[session.address]
        returned: dict[PublishLane, deque[PendingPublish]] = {}
        for pending in unsent:
            lane = pending.lane
            if lane.head is pending:
                lane.head = None
            returned.setdefault(lane, deque()).append(pending)
        for lane in self.known.values():
            if lane.session is session:
                self._begin_again(lane, returned.get(lane, deque()))

    def let_go(self) -> None:
        """Let go of sessions, for good: futures that users keep hold lanes."""
        for lane in self.known.values():
            lane.session = lane.head = None
            lane.unanswered.clear()
            lane.queue.clear()
            lane.returned.clear()

    def _begin_again(self, lane: PublishLane, returned: deque[PendingPublish]) -> None:
        lane.session = self._best_session(lane)
        lane.unanswered.clear()
        lane.returned.extendleft(reversed(returned))
        lane.queue = deque(item for item in lane.queue if not item.done())
        failure = self._tls_failure(lane)
        if failure is not None:
            self._abandon(lane, lambda: _not_trusted(failure))
        elif lane.head is None:  # else it waits to be sent again
            lane.state = PublishLaneState.UNPROVEN
            self._advance(lane)

    def _tls_failure(self, lane: PublishLane) -> CallFailure | None:
        """Why TLS failed, if it did at each address; waiting would not help then."""
        sessions = [self._sessions.get(address) for address in self._ranked_addresses(lane)]
        failures = [session.down_by for session in sessions if session is not None]
        insecure = [failure for failure in failures if failure is not None and failure.insecure]
        return insecure[0] if insecure and len(insecure) == len(sessions) else None

    # Deadlines

    def expire(self, now: float) -> None:
        """Fail the messages whose time is up, and forget those that were given up."""
        for pending in list(self.unsettled.values()):
            if pending.session is not None:
                if now >= pending.answer_by:
                    text = "no ack came in time; the leader may be gone or the partition read-only"
                    self._expired(pending, AckTimeout(text))
                elif pending.lane.head is pending and now >= pending.written_at + _HEAD_START:
                    self._ask_for_head(pending.lane, pending, pending.session)
            elif now >= pending.send_by or pending.done():
                self._expired(pending, self._unsent_error(pending, now))

    def _ask_for_head(
        self, lane: PublishLane, head: PendingPublish, session: PublishSession
    ) -> None:
        if lane.state is PublishLaneState.PROVING and (lane.returned or lane.queue):
            lane.state = PublishLaneState.ASKING
            self._connection.supervisor.spawn(
                self._let_next_go, lane, head, session, name=f"head:{lane.stream}"
            )

    def _unsent_error(self, pending: PendingPublish, now: float) -> LiftbridgeError:
        lane = pending.lane
        if lane.unknown_since is not None:
            text = f"no broker knew the stream, asked for {now - lane.unknown_since:.1f} s"
            return StreamNotFound(text)
        down_by = None if lane.session is None else lane.session.down_by
        why = "" if down_by is None else f" ({down_by.text})"
        return PublishTimeout(f"no server could be reached in time{why}")

    def _expired(self, pending: PendingPublish, error: LiftbridgeError) -> None:
        lane = pending.lane
        lane.unanswered.discard(pending)
        if pending.session is not None:
            pending.session.forget(pending)
        self.outcomes.fail(pending, error)
        if lane.head is pending:
            lane.head = None
            lane.state = PublishLaneState.UNPROVEN
            self._advance(lane)


def _not_trusted(failure: CallFailure) -> PublishNotSent:
    error = PublishNotSent(f"no server can be spoken to over TLS: {failure.text}")
    error.__cause__ = error_from(PUBLISH_ASYNC.name, failure)
    return error
