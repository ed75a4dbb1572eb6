"""The owner's side of leases: hands messages of its partitions to other members."""

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
OFFER: Final = "n"
"""Begin the reply subjects of what the owner sends."""

_MOST_AT_ONCE: Final = 256
"""Leases for one request: more than that is asked for again."""
_REMEMBERED: Final = 10_000
"""Leases that have ended, and are known if an answer comes again."""


@dataclass(slots=True, eq=False)
class Loan:
    """A delivery that another member has: it works on it, as a task of this one would.

    Attributes:
        delivery: the delivery.
        member: the id of the member in the group.
        answered: what was answered.
    """

    delivery: Delivery
    member: str
    answered: AnswerKind | None = None

    def cancel(self) -> None:
        """End it, because its time is up."""
        if self.delivery.worker is self:
            self.delivery.worker = None
            leased = self.delivery.share.leased
            leased[self.member] -= 1
            if not leased[self.member]:
                del leased[self.member]


class Lender:
    """Hands messages to members that ask for them, and takes their answers.

    Members of this process come first: only what they leave is offered. Who has asked in vain is
    told when there is something, one at a time, each in its turn.

    Args:
        dispatcher: has the messages.
        bus: carries frames.
        ack_wait: seconds for an answer.
        spawn: runs a task in the background.
    """

    def __init__(
        self, dispatcher: Dispatcher, bus: LeaseBus, ack_wait: float, spawn: Spawn
    ) -> None:
        self.leased = 0
        """Messages that other members were given."""
        self._dispatcher = dispatcher
        self._bus = bus
        self._ack_wait = ack_wait
        self._spawn = spawn
        self._loop = asyncio.get_running_loop()
        self._loans: dict[int, Loan] = {}
        """By token."""
        self._ended: OrderedDict[int, tuple[AnswerKind | None, str]] = OrderedDict()
        """The answers to loans that have ended, by token, and why another is too late."""
        self._turned_away: OrderedDict[str, None] = OrderedDict()
        """Mailboxes of members that have asked in vain."""
        self._nudging = False
        self._shares = dispatcher.partitions.shares
        self._known = 0
        """The number of partitions when all were offered."""
        self._offered: tuple[tuple[str, int], ...] = ()
        """The partitions of the last offer."""

    def places(self) -> tuple[tuple[str, int], ...]:
        """Return the partitions that this member owns."""
        shares = self._shares.values()
        owned = (each.place for each in shares if each.window is not None and each.drained is None)
        return tuple((place.stream, place.partition) for place in sorted(owned))

    # Offers

    def offer_to_all(self) -> None:
        """Tell all members which partitions this one owns."""
        dispatcher = self._dispatcher
        if not dispatcher.is_stopped:
            try:
                # Claims partitions, and opens those again of which the reading has ended, though
                # nobody here may take anything.
                dispatcher.next_reader()
            except LiftbridgeError as error:
                dispatcher.stop(error)
        self._offered = ()
        self._offer_what_is_new()
        self.ring()

    def _offer_what_is_new(self) -> None:
        places = self.places()
        if len(places) == len(self._shares):
            self._known = len(places)
        if places and places != self._offered:
            self._offered = places
            self._bus.send_to_all(Offer(self._bus.mailbox, places, has_more=False))

    def ring(self) -> None:
        """Tell members that there may be something, once those of this process had their turn."""
        if (self._turned_away or len(self._shares) != self._known) and not self._nudging:
            self._nudging = True
            self._loop.call_soon(self._nudge)

    def _nudge(self) -> None:
        self._nudging = False
        if len(self._shares) != self._known:
            self._offer_what_is_new()
        if self._turned_away and not self._dispatcher.is_stopped and self._dispatcher.has_more:
            mailbox, _ = self._turned_away.popitem(last=False)
            self._bus.send(mailbox, Offer(self._bus.mailbox, self.places(), has_more=True), OFFER)

    def asked(self, ask: Ask) -> None:
        """Send a member as many messages as it asks for, or all that there are."""
        if ask.mailbox == self._bus.mailbox:
            return
        if ask.room <= 0:
            places = self.places()
            if places:
                self._bus.send(ask.mailbox, Offer(self._bus.mailbox, places, has_more=False))
            return
        self._turned_away.pop(ask.mailbox, None)
        has_more = True
        for _ in range(min(ask.room, _MOST_AT_ONCE)):
            delivery = self._next()
            if delivery is None:
                self._turned_away[ask.mailbox] = None
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
            dispatcher.stop(error)  # raised to the user, who waits for a delivery
            return None
        if delivery is not None and delivery.answers.is_remote:
            dispatcher.prepared.appendleft(delivery)  # it is leased to this member
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
            data = encode(lease.without_message())
        delivery.worker = self._loans[token] = Loan(delivery, ask.member)
        delivery.share.leased[ask.member] += 1
        self._bus.send(ask.mailbox, data, f"{LEASE}{token}")

    def bounced(self, reply: str) -> None:
        """Go on after a member was gone to which something was sent."""
        if reply.startswith(LEASE) and reply[1:].isdigit():
            self._take_back(self._loans.get(int(reply[1:])))
        elif reply == OFFER:
            self.ring()

    def forget_ended(self) -> None:
        """Forget the messages of loans that have ended, but not the answers."""
        for token, loan in tuple(self._loans.items()):
            if loan.delivery.state is not AttemptState.IN_FLIGHT:
                del self._loans[token]
                self._ended[token] = loan.answered, refusal(loan.delivery).message
        while len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)

    # Answers

    def answered(self, answer: Answer) -> None:
        """Take an answer, and say what became of it."""
        loan = self._loans.get(answer.token)
        if answer.kind is AnswerKind.GIVE_BACK:
            self._take_back(loan)
            return
        outcome, text = self._take(loan, answer)
        if loan is not None and outcome is Outcome.TAKEN and answer.stored:
            self._spawn(lambda: self._store(loan, answer), "lease")
        else:
            self._bus.send(answer.mailbox, Verdict(answer.number, answer.kind, outcome, text))

    def _take(self, loan: Loan | None, answer: Answer) -> tuple[Outcome, str]:
        kind = answer.kind
        if loan is None:
            unknown = None, "the owner of the partition does not know of the lease"
            answered, text = self._ended.get(answer.token, unknown)
            return (Outcome.TAKEN, "") if answered is kind else (Outcome.LATE, text)
        if loan.answered is kind:
            return Outcome.TAKEN, ""  # it was sent again
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

    def _take_back(self, loan: Loan | None) -> None:
        if loan is None or loan.delivery.state is not AttemptState.IN_FLIGHT:
            return
        delivery = loan.delivery
        loan.cancel()
        if delivery.share.window is not None:
            self._dispatcher.partitions.take_back(delivery, delivery.share.window, 0.0)
