"""The other side of leases: asks owners of partitions for messages, and sends them the answers."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from liftbridge_aio.errors import LiftbridgeError, UsageError
from liftbridge_aio.model import Message, StreamPartition

from .core.ack_window import AttemptState, refusal
from .core.held_lease import LOST, UNCONFIRMED, LeaseEvent, LeaseState, following
from .core.lease_protocol import Answer, AnswerKind, Ask, Granted, Lease, Offer, Outcome, Verdict
from .delivery import Delivery, PartitionShare
from .errors import AnswerInDoubt, FailedElsewhere, LeaseExpired, QueueError, error_text
from .lease_bus import LeaseBus
from .partitions import Spawn
from .transactions import DeliveryTransaction, PartitionProducers

if TYPE_CHECKING:
    from .dispatcher import Dispatcher

logger = logging.getLogger("liftbridge_aio.queue")

ANSWER: Final = "h"
ASK: Final = "a"
"""Begin the reply subjects of what the member sends."""

_ASK_TIMEOUT: Final = 2.0
"""Seconds after which another owner is asked."""
_OWNER_TIMEOUT: Final = 5.0
"""Seconds without an offer after which an owner is asked no more."""
_IN_FLIGHT: Final = AttemptState.IN_FLIGHT
_CANCELLING: Final = frozenset({LeaseState.EXPIRED, LeaseState.REFUSED})
"""The ends of a lease that cancel its handler in `run`."""

ReadAt = Callable[[str, int, int], Awaitable[Message | None]]
"""Reads the message at an offset of a partition; None if the log does not have it any more."""


class HeldLease:
    """A lease that this member holds; takes the answers of its delivery.

    Args:
        borrower: holds it.
        number: its number here.
        lease: what the owner has sent.
    """

    is_remote = True

    def __init__(self, borrower: Borrower, number: int, lease: Lease) -> None:
        self.state = LeaseState.HELD
        self.lease = lease
        self.delivery: Delivery | None = None
        """None while its message is being read."""
        self._borrower = borrower
        self.number = number
        self._loop = asyncio.get_running_loop()
        self._answer: Answer | None = None
        """What was answered, until it is confirmed."""
        self._waiter: asyncio.Future[None] | None = None
        self._error: QueueError | None = None
        self._timer = self._loop.call_later(lease.time_left, self.move, LeaseEvent.EXPIRE)

    @property
    def deadline(self) -> float:
        """The time at which it ends."""
        return self._timer.when()

    # Answers

    def ack(self, delivery: Delivery) -> None:
        """See `Answers`."""
        self._settle(delivery, AttemptState.ACKED, self._answered(AnswerKind.ACK))

    def nack(
        self,
        delivery: Delivery,
        delay: float | None,
        error: BaseException | None,
        *,
        backoff: bool,
    ) -> None:
        """See `Answers`."""
        answer = self._answered(AnswerKind.NACK)._replace(
            delay=-1.0 if delay is None else delay,
            backoff=backoff,
            error="" if error is None else error_text(error),
        )
        self._settle(delivery, AttemptState.NACKED, answer)

    def reject(self, delivery: Delivery, error: BaseException | None) -> None:
        """See `Answers`."""
        answer = self._answered(AnswerKind.REJECT)._replace(error=str(error or ""))
        self._settle(delivery, AttemptState.REJECTED, answer)

    def extend(self, delivery: Delivery) -> None:
        """See `Answers`."""
        self._check(delivery)
        self._answer = self._answered(AnswerKind.EXTEND)
        self._loop.call_soon(self.send)

    def failed(self, delivery: Delivery, error: BaseException) -> None:
        """See `Answers`."""
        self._borrower.failed(delivery, error)

    def transaction(self, delivery: Delivery) -> DeliveryTransaction:
        """See `Answers`."""
        text = "only the owner of a partition stores its acks: a lease has no transactions"
        raise UsageError(text, stream=delivery.stream, partition=delivery.partition)

    async def confirmed(self, delivery: Delivery, *, stored: bool) -> None:
        """See `Answers`."""
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
        self._loop.call_soon(self.send)  # `confirmed` may say that it is to be stored

    def send(self) -> None:
        """Send the answer, again if it was sent before."""
        answer = self._answer
        if answer is None or not (self.state in UNCONFIRMED or answer.kind is AnswerKind.EXTEND):
            return
        if self._borrower.send(self.lease.owner, answer, f"{ANSWER}{self.number}"):
            self.move(LeaseEvent.SEND)

    def give_back(self) -> None:
        """Let another member have it, unless it is answered."""
        if self.state is LeaseState.HELD:
            answer = self._answered(AnswerKind.GIVE_BACK)
            self._borrower.send(self.lease.owner, answer, "")
            self.move(LeaseEvent.GIVE_BACK)

    def judged(self, verdict: Verdict) -> None:
        """Take what the owner says of the answer."""
        answer = self._answer
        if answer is None or answer.kind is not verdict.kind:
            return  # one to an answer before
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
        """Change the state, and end the delivery if the lease has ended."""
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
                logger.warning("the answer to %r: %s", delivery, self._error.message)
        self._wake()

    def _lost(self, delivery: Delivery) -> QueueError:
        if self.state is LeaseState.IN_DOUBT:
            return AnswerInDoubt("the owner of the partition did not confirm the answer")
        return refusal(delivery)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        self._waiter = None


@dataclass(slots=True, eq=False)
class Owner:
    """A member that owns partitions.

    Attributes:
        seen_at: when it has made its last offer.
        has_more: False if it has said that it has nothing, and will make an offer.
    """

    seen_at: float
    has_more: bool = True


class Borrower:
    """Asks owners for messages while tasks of this member wait for some, and holds the leases.

    One owner is asked at a time, for as many messages as there are tasks, so nothing is leased that
    nobody works on.

    Args:
        dispatcher: hands out the messages.
        bus: carries frames.
        member: the id of this member in the group.
        spawn: runs a task in the background.
        read_at: reads a message that was too large to be sent along.
    """

    def __init__(
        self, dispatcher: Dispatcher, bus: LeaseBus, member: str, spawn: Spawn, read_at: ReadAt
    ) -> None:
        self.borrowed = 0
        """Messages that other members have leased to this one."""
        self.late = 0
        """Answers that were not taken."""
        self.held: dict[int, HeldLease] = {}
        self._dispatcher = dispatcher
        self._bus = bus
        self._member = member
        self._spawn = spawn
        self._read_at = read_at
        self._loop = asyncio.get_running_loop()
        self._owners: OrderedDict[str, Owner] = OrderedDict()
        """By mailbox; the one that is to be asked next is first."""
        self._shares: dict[StreamPartition, PartitionShare] = {}
        """Stand for partitions of which this member holds messages."""
        self._asked: tuple[str, float] | None = None
        """Who was asked, and until when to wait."""
        self._looking = False
        self._stopped = False
        self._none_held = asyncio.Event()
        self._none_held.set()

    @property
    def mailbox(self) -> str:
        """Where this member gets frames."""
        return self._bus.mailbox

    def send(self, mailbox: str, answer: Answer, reply: str) -> bool:
        """Send an answer; return False if NATS is away."""
        return self._bus.send(mailbox, answer, reply)

    # Asking

    def look(self) -> None:
        """Ask for messages soon, if tasks wait for some."""
        if not self._looking and self._owners:
            self._looking = True
            self._loop.call_soon(self._ask)

    def _room(self) -> int:
        """Return how many messages this member would work on at once."""
        dispatcher = self._dispatcher
        free = dispatcher.waiters.free  # not those that were woken for what is prepared
        return min(free, dispatcher.partitions.max_in_flight - len(self.held))

    def _ask(self) -> None:
        self._looking = False
        if self._asked is not None or self._stopped or self._dispatcher.is_stopped:
            return
        room = self._room()
        if room <= 0:
            return
        for mailbox, owner in self._owners.items():
            if owner.has_more:
                if self._bus.send(mailbox, Ask(self.mailbox, self._member, room), ASK):
                    self._asked = mailbox, self._loop.time() + _ASK_TIMEOUT
                    self._owners.move_to_end(mailbox)
                return

    def ask_all_for_offers(self) -> None:
        """Ask all members which partitions they own."""
        self._bus.send_to_all(Ask(self.mailbox, self._member, 0))
        for owner in self._owners.values():
            owner.has_more = True
        self.look()

    def offered(self, offer: Offer) -> None:
        """Note who owns which partitions, and ask if there may be something."""
        if offer.owner == self.mailbox:
            return
        owner = self._owners.get(offer.owner)
        if owner is None:
            owner = self._owners[offer.owner] = Owner(0.0)
        owner.seen_at = self._loop.time()
        owner.has_more = owner.has_more or offer.has_more
        if self.held:
            for held in tuple(self.held.values()):
                lease = held.lease
                if lease.owner != offer.owner and (lease.stream, lease.partition) in offer.places:
                    held.move(LeaseEvent.MOVE)
        self.look()

    def granted(self, granted: Granted) -> None:
        """Go on after an owner has sent what it has."""
        owner = self._owners.get(granted.owner)
        if owner is not None:
            owner.has_more = granted.has_more
        if self._asked is not None and self._asked[0] == granted.owner:
            self._asked = None
            self.look()

    def bounced(self, reply: str) -> None:
        """Go on after an owner was gone to which something was sent."""
        if reply == ASK and self._asked is not None:
            self._owners.pop(self._asked[0], None)
            self._asked = None
            self.look()
        elif reply.startswith(ANSWER) and reply[1:].isdigit():
            held = self.held.get(int(reply[1:]))
            if held is not None:
                held.move(LeaseEvent.BOUNCE)

    def beat(self) -> None:
        """Give up owners of which nothing is heard, and send answers again."""
        if self._dispatcher.prepared and not self._dispatcher.waiters.free:
            self._give_back(set(self._dispatcher.prepared))  # nobody has taken them
        now = self._loop.time()
        if self._asked is not None and self._asked[1] < now:
            self._asked = None
        for mailbox, owner in tuple(self._owners.items()):
            if owner.seen_at + _OWNER_TIMEOUT < now:
                del self._owners[mailbox]
        for held in tuple(self.held.values()):
            held.send()
        self.look()

    # Leases

    def leased(self, lease: Lease) -> None:
        """Hand out a message to a task that waits."""
        self.borrowed += 1
        held = HeldLease(self, self.borrowed, lease)
        self.held[self.borrowed] = held
        self._none_held.clear()
        dispatcher = self._dispatcher
        if self._stopped or dispatcher.is_stopped or not dispatcher.waiters.free:
            held.give_back()  # a message of this member's partitions was faster
        elif lease.is_whole:
            self._hand_out(held, lease.message)
        else:
            self._spawn(lambda: self._read(held), "lease")

    async def _read(self, held: HeldLease) -> None:
        lease, message = held.lease, None
        try:
            message = await self._read_at(lease.stream, lease.partition, lease.offset)
        except LiftbridgeError as error:
            logger.warning(
                "a leased message was not read: %s/%d@%d: %s", *lease[2:5], error.message
            )
        if message is None or self._stopped:
            held.give_back()
        elif held.state is LeaseState.HELD:
            self._hand_out(held, message)

    def _hand_out(self, held: HeldLease, message: Message) -> None:
        lease, dispatcher = held.lease, self._dispatcher
        place = StreamPartition(message.stream, message.partition)
        share = self._shares.get(place)
        if share is None:
            share = self._shares[place] = PartitionShare(place, PartitionProducers())
        delivery = dispatcher.partitions.make_delivery(message, held, share)
        delivery.attempt, delivery.state = lease.attempt, _IN_FLIGHT
        delivery.deadline = held.deadline
        delivery.error = FailedElsewhere(lease.error) if lease.error else None
        held.delivery = delivery
        dispatcher.prepared.append(delivery)
        dispatcher.waiters.wake()

    def judged(self, verdict: Verdict) -> None:
        """Take what an owner says of an answer."""
        held = self.held.get(verdict.number)
        if held is not None:
            held.judged(verdict)

    def failed(self, delivery: Delivery, error: BaseException) -> None:
        """Answer a delivery whose handler raised an exception."""
        self._dispatcher.failed(delivery, error)

    def ended(self, held: HeldLease) -> None:
        """Forget a lease that has ended."""
        self.held.pop(held.number, None)
        if held.state in {LeaseState.REFUSED, LeaseState.IN_DOUBT}:
            self.late += 1
        if not self.held:
            self._none_held.set()

    # The end

    def stop(self) -> None:
        """Ask for nothing more, and give back what was not handed out."""
        self._stopped = True
        self._give_back(set(self._dispatcher.prepared))

    async def drain(self, timeout: float, *, waits: bool) -> None:
        """Wait until answers are confirmed, then give back the rest. Cancelling abandons the wait.

        Args:
            timeout: seconds.
            waits: False gives back at once what is not answered.
        """
        if not waits:
            self._give_back()
        try:
            async with asyncio.timeout(timeout):
                await self._none_held.wait()
        except TimeoutError:
            self._give_back()

    def close(self) -> None:
        """End all leases: whoever waits for a verdict is told that none will come."""
        for held in tuple(self.held.values()):
            held.move(LeaseEvent.EXPIRE)

    def _give_back(self, deliveries: Container[Delivery | None] | None = None) -> None:
        """Give back what is not answered: all, or only these deliveries."""
        for held in tuple(self.held.values()):
            if deliveries is None or held.delivery in deliveries:
                held.give_back()
