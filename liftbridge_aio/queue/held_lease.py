"""A lease at the member that holds it, and the answer to it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from .core.attempt import AttemptState, refusal
from .core.lease_protocol import Answer, AnswerKind, Lease, Outcome, Verdict
from .core.lease_state import LOST, UNCONFIRMED, LeaseEvent, LeaseState, following
from .delivery import Delivery
from .errors import AnswerInDoubt, LeaseExpired, QueueError, error_text
from .transactions import DeliveryTransaction

if TYPE_CHECKING:
    from .borrower import Borrower

logger = logging.getLogger("liftbridge_aio.queue")

ANSWER: Final = "h"
"""The first letter of an answer's reply subject; the number of the lease follows."""

_IN_FLIGHT: Final = AttemptState.IN_FLIGHT
_CANCELLING: Final = frozenset({LeaseState.EXPIRED, LeaseState.REFUSED})
"""The ends of a lease that cancel its handler in `run`."""


class HeldLease:
    """A lease of this member; receives the answers of its delivery.

    Args:
        borrower: the borrower of this member.
        number: the number of the lease here.
        lease: the lease as sent by the owner.
    """

    is_remote = True

    def __init__(self, borrower: Borrower, number: int, lease: Lease) -> None:
        self.lease = lease
        self.number = number
        self._borrower = borrower
        self._loop = asyncio.get_running_loop()
        # State
        self.state = LeaseState.HELD
        """Changed only by `move`, as the table of `core.lease_state` allows."""
        self.delivery: Delivery | None = None
        """None while its message is being read from the log."""
        self._answer: Answer | None = None
        """The answer, until it is confirmed or refused; an extend, too."""
        self._waiter: asyncio.Future[None] | None = None
        """Done when the answer is confirmed, or the lease has ended; None: no call waits."""
        self._error: QueueError | None = None
        """The error that `confirmed` raises."""
        self._timer = self._loop.call_later(lease.time_left, self.move, LeaseEvent.EXPIRE)
        """Ends the lease with its ack_wait; restarted by an accepted extend."""

    @property
    def deadline(self) -> float:
        """The time at which the lease ends."""
        return self._timer.when()

    # Answers

    def ack(self, delivery: Delivery) -> None:
        """Implement `Answers`."""
        self._settle(delivery, AttemptState.ACKED, self._answered(AnswerKind.ACK))

    def nack(
        self,
        delivery: Delivery,
        delay: float | None,
        error: BaseException | None,
        *,
        backoff: bool,
    ) -> None:
        """Implement `Answers`."""
        answer = self._answered(AnswerKind.NACK)._replace(
            delay=-1.0 if delay is None else delay,
            backoff=backoff,
            error="" if error is None else error_text(error),
        )
        self._settle(delivery, AttemptState.NACKED, answer)

    def reject(self, delivery: Delivery, error: BaseException | None) -> None:
        """Implement `Answers`."""
        text = "" if error is None else error_text(error)
        answer = self._answered(AnswerKind.REJECT)._replace(error=text)
        self._settle(delivery, AttemptState.REJECTED, answer)

    def extend(self, delivery: Delivery) -> None:
        """Implement `Answers`."""
        self._check(delivery)
        self._answer = self._answered(AnswerKind.EXTEND)
        self._loop.call_soon(self.send)

    def failed(self, delivery: Delivery, error: BaseException) -> None:
        """Implement `Answers`."""
        self._borrower.failed(delivery, error)

    def transaction(self, delivery: Delivery) -> DeliveryTransaction:
        """Implement `Answers`."""
        return self._borrower.transaction(delivery)

    async def confirmed(self, delivery: Delivery, *, stored: bool) -> None:
        """Implement `Answers`."""
        if stored and self._answer is not None:
            self._answer = self._answer._replace(stored=True)
        if self._answer is not None:
            if self._waiter is None:
                self._waiter = self._loop.create_future()
            await asyncio.shield(self._waiter)
        if self._error is not None:
            error = self._error
            error.at(delivery.stream, delivery.partition, self.lease.offset)
            raise error

    def _answered(self, kind: AnswerKind) -> Answer:
        return Answer(self._borrower.mailbox, self.number, self.lease.token, kind)

    def _check(self, delivery: Delivery) -> None:
        if delivery.state is not _IN_FLIGHT:
            raise refusal(delivery)

    def _settle(self, delivery: Delivery, state: AttemptState, answer: Answer) -> None:
        self._check(delivery)
        delivery.state = state
        self._answer = answer
        self.move(LeaseEvent.ANSWER)
        self._loop.call_soon(self.send)  # later, as `confirmed` may set `stored`

    def send(self) -> None:
        """Send or resend the answer, unless it is confirmed."""
        answer = self._answer
        if answer is None or not (self.state in UNCONFIRMED or answer.kind is AnswerKind.EXTEND):
            return
        if self._borrower.send(self.lease.owner, answer, f"{ANSWER}{self.number}"):
            self.move(LeaseEvent.SEND)

    def give_back(self) -> None:
        """Return an unanswered message to its owner."""
        if self.state is LeaseState.HELD:
            answer = self._answered(AnswerKind.GIVE_BACK)
            self._borrower.send(self.lease.owner, answer, "")
            self.move(LeaseEvent.GIVE_BACK)

    def on_verdict(self, verdict: Verdict) -> None:
        """Apply the owner's verdict on the answer."""
        answer = self._answer
        if answer is None or answer.kind is not verdict.kind:
            return  # a verdict on an earlier answer
        if verdict.outcome is Outcome.LATE:
            self._error = LeaseExpired(verdict.text)
            self.move(LeaseEvent.REFUSE)
        elif answer.kind is AnswerKind.EXTEND:
            self._extended()
        else:
            if verdict.outcome is Outcome.NOT_STORED:
                self._error = QueueError(f"the ack could not be stored yet: {verdict.text}")
            self.move(LeaseEvent.CONFIRM)

    def _extended(self) -> None:
        self._timer.cancel()
        self._timer = self._loop.call_later(self.lease.ack_wait, self.move, LeaseEvent.EXPIRE)
        if self.delivery is not None:
            self.delivery.deadline = self._timer.when()
        self._answer = None
        self._wake()

    # Ends

    def move(self, event: LeaseEvent) -> None:
        """Apply an event to the state, and end the delivery with the lease."""
        before, self.state = self.state, following(self.state, event)
        if self.state is before or self.state in UNCONFIRMED:
            return
        self._timer.cancel()
        self._borrower.ended(self)
        self._answer = None
        delivery = self.delivery
        if self.state is not LeaseState.CONFIRMED and delivery is not None:
            delivery.state = LOST[self.state]
            if self._error is None:
                self._error = self._lost(delivery)
            if self.state in _CANCELLING and delivery.worker is not None:
                delivery.worker.cancel()
            if self._waiter is None and before in UNCONFIRMED:
                logger.warning("the answer to %s was lost: %s", repr(delivery), self._error.message)
        self._wake()

    def _lost(self, delivery: Delivery) -> QueueError:
        if self.state is LeaseState.IN_DOUBT:
            return AnswerInDoubt("the owner of the partition did not confirm the answer")
        return refusal(delivery)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        self._waiter = None
