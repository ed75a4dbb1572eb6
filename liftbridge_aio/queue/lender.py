"""The owner's side of leases: leases messages of its partitions to other members."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from liftbridge_aio.errors import LiftbridgeError

from .core.attempt import AttemptState, refusal
from .core.lease_protocol import (
    Answer,
    AnswerKind,
    Ask,
    Granted,
    Lease,
    Offer,
    Outcome,
    Verdict,
    encode,
)
from .delivery import Delivery
from .errors import FailedElsewhere, QueueError, error_text
from .lease_bus import LeaseBus
from .partitions import Spawn

if TYPE_CHECKING:
    from .dispatcher import Dispatcher

LEASE: Final = "o"
"""The first letter of a lease's reply subject; its token follows."""
OFFER: Final = "n"
"""The reply subject of an offer to one member."""

_MOST_AT_ONCE: Final = 256
"""The most leases for one request; the member asks again for more."""
_REMEMBERED: Final = 10_000
"""The most ended leases that are kept, to recognise resent answers."""


@dataclass(slots=True, eq=False)
class Loan:
    """A delivery that is leased to another member, which holds it as a task would.

    Attributes:
        delivery: the delivery.
        member: the id of the other member in the group.
        answered: the last accepted answer; None: no answer yet.
    """

    delivery: Delivery
    member: str
    answered: AnswerKind | None = None

    def cancel(self) -> None:
        """Release the delivery: the loan was answered, or its ack_wait is over."""
        if self.delivery.worker is self:
            self.delivery.worker = None
            leased = self.delivery.share.leased
            leased[self.member] -= 1
            if not leased[self.member]:
                del leased[self.member]


class Lender:
    """Leases messages to members that ask for them, and applies their answers.

    Tasks of this process come first: members get the messages that these leave. A member whose
    request was not fully granted gets an offer when there are messages; one member at a time, in
    the order of the requests.

    Args:
        dispatcher: provides the messages.
        bus: sends frames.
        ack_wait: seconds for an answer.
        spawn: runs a task in the background.
    """

    def __init__(
        self, dispatcher: Dispatcher, bus: LeaseBus, ack_wait: float, spawn: Spawn
    ) -> None:
        self._dispatcher = dispatcher
        self._bus = bus
        self._ack_wait = ack_wait
        self._spawn = spawn
        self._loop = asyncio.get_running_loop()
        self._shares = dispatcher.partitions.shares
        # State
        self.leased = 0
        """The number of leases so far; the last one is also the last token."""
        self._loans: dict[int, Loan] = {}
        """Current loans by token; `forget_ended` moves ended ones to `_ended`."""
        self._ended: OrderedDict[int, tuple[AnswerKind | None, str]] = OrderedDict()
        """Ended loans by token: the accepted answer, and the refusal of any other answer."""
        self._waiting: OrderedDict[str, None] = OrderedDict()
        """Mailboxes of members whose last request was not fully granted, oldest first."""
        self._offer_is_due = False
        """True while a call of `_offer_next` is scheduled."""
        self._known = 0
        """The number of partitions when all of them were offered last."""
        self._offered: tuple[tuple[str, int], ...] = ()
        """The partitions of the last offer."""

    def places(self) -> tuple[tuple[str, int], ...]:
        """Return the partitions that this member owns."""
        shares = self._shares.values()
        owned = (each.place for each in shares if each.window is not None and each.drained is None)
        return tuple((place.stream, place.partition) for place in sorted(owned))

    # Offers

    def offer_to_all(self) -> None:
        """Send an offer of all partitions to all members."""
        dispatcher = self._dispatcher
        if not dispatcher.is_stopped:
            try:
                # Claims new partitions and reopens ended readers, even if no task of this process
                # takes deliveries.
                dispatcher.next_reader()
            except LiftbridgeError as error:
                dispatcher.stop(error)
        self._offered = ()
        self._offer_changes()
        self.ring()

    def _offer_changes(self) -> None:
        places = self.places()
        if len(places) == len(self._shares):
            self._known = len(places)
        if places and places != self._offered:
            self._offered = places
            self._bus.send_to_all(Offer(self._bus.mailbox, places, has_more=False))

    def ring(self) -> None:
        """Send an offer soon, after the tasks of this process had their turn."""
        if (self._waiting or len(self._shares) != self._known) and not self._offer_is_due:
            self._offer_is_due = True
            self._loop.call_soon(self._offer_next)

    def _offer_next(self) -> None:
        self._offer_is_due = False
        if len(self._shares) != self._known:
            self._offer_changes()
        if self._waiting and not self._dispatcher.is_stopped and self._dispatcher.has_more:
            mailbox, _ = self._waiting.popitem(last=False)
            self._bus.send(mailbox, Offer(self._bus.mailbox, self.places(), has_more=True), OFFER)

    def on_ask(self, ask: Ask) -> None:
        """Lease a member as many messages as it asks for, or all there are."""
        if ask.mailbox == self._bus.mailbox:
            return
        if ask.room <= 0:
            places = self.places()
            if places:
                self._bus.send(ask.mailbox, Offer(self._bus.mailbox, places, has_more=False))
            return
        self._waiting.pop(ask.mailbox, None)
        has_more = True
        for _ in range(min(ask.room, _MOST_AT_ONCE)):
            delivery = self._next()
            if delivery is None:
                self._waiting[ask.mailbox] = None
                has_more = False
                break
            self._lend(delivery, ask)
        self._bus.send(ask.mailbox, Granted(self._bus.mailbox, has_more))
        self.ring()

    def _next(self) -> Delivery | None:
        dispatcher = self._dispatcher
        if dispatcher.is_stopped or not self._bus.is_up:
            return None
        try:
            delivery = dispatcher.next_ready()
        except LiftbridgeError as error:
            dispatcher.stop(error)  # raised to the user's next call
            return None
        if delivery is not None and delivery.answers.is_remote:
            dispatcher.prepared.appendleft(delivery)  # a lease of another owner
            dispatcher.waiters.wake()
            return None
        return delivery

    def _lend(self, delivery: Delivery, ask: Ask) -> None:
        self.leased += 1
        token, message, error = self.leased, delivery.message, delivery.error
        lease = Lease(
            self._bus.mailbox,
            token,
            message.stream,
            message.partition,
            message.offset,
            delivery.attempt,
            delivery.deadline - self._loop.time(),
            self._ack_wait,
            "" if error is None else error_text(error),
            is_whole=True,
            key=message.key,
            value=message.value,
            timestamp=message.timestamp,
            headers=message.headers,
            subject=message.subject,
            reply_subject=message.reply_subject,
            transaction_headers=message.transaction_headers,
        )
        data = encode(lease)
        if not self._bus.fits(data):
            data = encode(lease.without_message())  # the member reads it from the log
        delivery.worker = self._loans[token] = Loan(delivery, ask.member)
        delivery.share.leased[ask.member] += 1
        self._bus.send(ask.mailbox, data, f"{LEASE}{token}")

    def on_bounce(self, reply: str) -> None:
        """Handle a frame without receiver: the member is gone."""
        if reply.startswith(LEASE) and reply[1:].isdigit():
            self._retract(self._loans.get(int(reply[1:])))
        elif reply == OFFER:
            self.ring()

    def forget_ended(self) -> None:
        """Move ended loans to `_ended`, without their messages."""
        for token, loan in tuple(self._loans.items()):
            if loan.delivery.state is not AttemptState.IN_FLIGHT:
                del self._loans[token]
                self._ended[token] = loan.answered, refusal(loan.delivery).message
        while len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)

    # Answers

    def on_answer(self, answer: Answer) -> None:
        """Apply an answer, and send the verdict."""
        loan = self._loans.get(answer.token)
        if answer.kind is AnswerKind.GIVE_BACK:
            self._retract(loan)
            return
        outcome, text = self._take(loan, answer)
        if loan is not None and outcome is Outcome.TAKEN and answer.stored:
            self._spawn(lambda: self._store(loan, answer), "lease")
        else:
            self._bus.send(answer.mailbox, Verdict(answer.number, answer.kind, outcome, text))

    def _take(self, loan: Loan | None, answer: Answer) -> tuple[Outcome, str]:
        kind = answer.kind
        if loan is None:
            unknown = None, "the owner of the partition does not know the lease"
            answered, text = self._ended.get(answer.token, unknown)
            return (Outcome.TAKEN, "") if answered is kind else (Outcome.LATE, text)
        if loan.answered is kind:
            return Outcome.TAKEN, ""  # a repeat
        delivery, dispatcher = loan.delivery, self._dispatcher
        if kind is not AnswerKind.EXTEND:
            loan.cancel()
        error = FailedElsewhere(answer.error) if answer.error else None
        try:
            match kind:
                case AnswerKind.ACK:
                    dispatcher.ack(delivery)
                case AnswerKind.NACK:
                    delay = None if answer.delay < 0 else answer.delay
                    dispatcher.nack(delivery, delay, error, backoff=answer.backoff)
                case AnswerKind.REJECT:
                    dispatcher.reject(delivery, error)
                case _:
                    dispatcher.extend(delivery)
                    return Outcome.TAKEN, ""
        except QueueError as error:
            return Outcome.LATE, error.message
        loan.answered = kind
        return Outcome.TAKEN, ""

    async def _store(self, loan: Loan, answer: Answer) -> None:
        outcome, text = Outcome.TAKEN, ""
        try:
            await self._dispatcher.confirmed(loan.delivery, stored=True)
        except LiftbridgeError as error:
            outcome, text = Outcome.NOT_STORED, error.message
        self._bus.send(answer.mailbox, Verdict(answer.number, answer.kind, outcome, text))

    def _retract(self, loan: Loan | None) -> None:
        if loan is None or loan.delivery.state is not AttemptState.IN_FLIGHT:
            return
        delivery = loan.delivery
        loan.cancel()
        if delivery.share.window is not None:
            self._dispatcher.partitions.retract(delivery, delivery.share.window, 0.0)
