"""The borrower's side of leases: asks owners for messages, and sends them the answers."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.model import Message, StreamPartition

from .core.attempt import AttemptState
from .core.lease_protocol import Answer, Ask, Granted, Lease, Offer, Verdict
from .core.lease_state import LeaseEvent, LeaseState
from .core.moved_message import hide_headers
from .delivery import Delivery, PartitionShare
from .errors import FailedElsewhere
from .held_lease import ANSWER, HeldLease
from .lease_bus import LeaseBus
from .partitions import Spawn
from .plan import ReadAt
from .transactions import DeliveryTransaction, PartitionProducers

if TYPE_CHECKING:
    from .dispatcher import Dispatcher

logger = logging.getLogger("liftbridge_aio.queue")

ASK: Final = "a"
"""The reply subject of a request for messages."""

_ASK_TIMEOUT: Final = 2.0
"""Seconds to wait for a grant before another owner is asked."""
_OWNER_TIMEOUT: Final = 5.0
"""Seconds without an offer after which an owner is forgotten."""
_IN_FLIGHT: Final = AttemptState.IN_FLIGHT


@dataclass(slots=True, eq=False)
class Owner:
    """Another member that owns partitions.

    Attributes:
        seen_at: the time of its last offer.
        has_more: False after a grant that left none; its next offer sets it.
    """

    seen_at: float
    has_more: bool = True


class Borrower:
    """Asks owners for messages while tasks of this member are idle, and holds the leases.

    It asks one owner at a time, for as many messages as there are idle tasks, so each leased
    message is processed at once.

    Args:
        dispatcher: delivers the messages.
        bus: sends frames.
        member: the id of this member in the group.
        spawn: runs a task in the background.
        read_at: reads a message from the log that was too large for NATS.
    """

    def __init__(
        self, dispatcher: Dispatcher, bus: LeaseBus, member: str, spawn: Spawn, read_at: ReadAt
    ) -> None:
        self._dispatcher = dispatcher
        self._bus = bus
        self._member = member
        self._spawn = spawn
        self._read_at = read_at
        self._loop = asyncio.get_running_loop()
        # State
        self.borrowed = 0
        """The number of leases so far; the last one is also the last number in `held`."""
        self.late = 0
        """Answers that were refused or not confirmed."""
        self.held: dict[int, HeldLease] = {}
        """Current leases, by their number here, until they end."""
        self._owners: OrderedDict[str, Owner] = OrderedDict()
        """Known owners by mailbox; the first one is asked next."""
        self._shares: dict[StreamPartition, PartitionShare] = {}
        """Placeholders for the partitions of leased messages, as deliveries need one."""
        self._asked: tuple[str, float] | None = None
        """The mailbox of the owner that was asked, and the time to wait for it; None: none was."""
        self._ask_is_due = False
        """True while a call of `_ask` is scheduled."""
        self._stopped = False
        """True once the queue closes: nothing more is borrowed."""
        self._none_held = asyncio.Event()
        """Set while `held` is empty."""
        self._none_held.set()

    @property
    def mailbox(self) -> str:
        """The address at which this member receives frames."""
        return self._bus.mailbox

    def send(self, mailbox: str, answer: Answer, reply: str) -> bool:
        """Send an answer; return False if NATS is disconnected."""
        return self._bus.send(mailbox, answer, reply)

    # Asking

    def ask_soon(self) -> None:
        """Ask for messages soon, if tasks are idle."""
        if not self._ask_is_due and self._owners:
            self._ask_is_due = True
            self._loop.call_soon(self._ask)

    def _room(self) -> int:
        """Return how many more messages this member would process at once."""
        dispatcher = self._dispatcher
        free = dispatcher.waiters.free  # without tasks that are woken already
        return min(free, dispatcher.partitions.max_in_flight - len(self.held))

    def _ask(self) -> None:
        self._ask_is_due = False
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
        """Ask all members for offers."""
        self._bus.send_to_all(Ask(self.mailbox, self._member, 0))
        for owner in self._owners.values():
            owner.has_more = True
        self.ask_soon()

    def on_offer(self, offer: Offer) -> None:
        """Note an offer, and ask for messages."""
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
        self.ask_soon()

    def on_granted(self, granted: Granted) -> None:
        """Note the end of a grant, and ask for more."""
        owner = self._owners.get(granted.owner)
        if owner is not None:
            owner.has_more = granted.has_more
        if self._asked is not None and self._asked[0] == granted.owner:
            self._asked = None
            self.ask_soon()

    def on_bounce(self, reply: str) -> None:
        """Handle a frame without receiver: the owner is gone."""
        if reply == ASK and self._asked is not None:
            self._owners.pop(self._asked[0], None)
            self._asked = None
            self.ask_soon()
        elif reply.startswith(ANSWER) and reply[1:].isdigit():
            held = self.held.get(int(reply[1:]))
            if held is not None:
                held.move(LeaseEvent.BOUNCE)

    def tick(self) -> None:
        """Forget silent owners, resend answers, and return messages that no task has taken."""
        if self._dispatcher.prepared and not self._dispatcher.waiters.free:
            self._give_back(set(self._dispatcher.prepared))  # no task has taken them
        now = self._loop.time()
        if self._asked is not None and self._asked[1] < now:
            self._asked = None
        for mailbox, owner in tuple(self._owners.items()):
            if owner.seen_at + _OWNER_TIMEOUT < now:
                del self._owners[mailbox]
        for held in tuple(self.held.values()):
            held.send()
        self.ask_soon()

    # Leases

    def on_lease(self, lease: Lease) -> None:
        """Deliver a leased message to an idle task."""
        self.borrowed += 1
        held = HeldLease(self, self.borrowed, lease)
        self.held[self.borrowed] = held
        self._none_held.clear()
        dispatcher = self._dispatcher
        if self._stopped or dispatcher.is_stopped or not dispatcher.waiters.free:
            held.give_back()  # a message of an own partition was faster
        elif lease.is_whole:
            self._deliver(held, lease.message)
        else:
            self._spawn(lambda: self._read(held), "lease")

    async def _read(self, held: HeldLease) -> None:
        lease, message = held.lease, None
        try:
            message = await self._read_at(lease.stream, lease.partition, lease.offset)
        except LiftbridgeError as error:
            logger.warning(
                "could not read a leased message: %s/%d@%d: %s", *lease[2:5], error.message
            )
        if message is None or self._stopped:
            held.give_back()
        elif held.state is LeaseState.HELD:
            if self._dispatcher.partitions.is_tier(message.stream):
                hide_headers(message)
            self._deliver(held, message)

    def _deliver(self, held: HeldLease, message: Message) -> None:
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

    def on_verdict(self, verdict: Verdict) -> None:
        """Apply a verdict to its lease."""
        held = self.held.get(verdict.number)
        if held is not None:
            held.on_verdict(verdict)

    def failed(self, delivery: Delivery, error: BaseException) -> None:
        """Answer a delivery whose handler raised an exception."""
        self._dispatcher.failed(delivery, error)

    def transaction(self, delivery: Delivery) -> DeliveryTransaction:
        """Refuse a transaction, as for any delivery of a queue that leases."""
        return self._dispatcher.transaction(delivery)

    def ended(self, held: HeldLease) -> None:
        """Forget a lease that has ended."""
        self.held.pop(held.number, None)
        if held.state in {LeaseState.REFUSED, LeaseState.IN_DOUBT}:
            self.late += 1
        if not self.held:
            self._none_held.set()

    # The end

    def stop(self) -> None:
        """Ask for no more messages, and return undelivered ones to their owners."""
        self._stopped = True
        self._give_back(set(self._dispatcher.prepared))

    async def drain(self, timeout: float, *, waits: bool) -> None:
        """Wait until all leases are answered and confirmed, then return the rest.

        Args:
            timeout: seconds.
            waits: False returns unanswered messages at once.
        """
        if not waits:
            self._give_back()
        try:
            async with asyncio.timeout(timeout):
                await self._none_held.wait()
        except TimeoutError:
            self._give_back()

    def close(self) -> None:
        """End all leases; calls that wait for a verdict raise."""
        for held in tuple(self.held.values()):
            held.move(LeaseEvent.EXPIRE)

    def _give_back(self, deliveries: Container[Delivery | None] | None = None) -> None:
        """Return unanswered messages to their owners: all, or only these deliveries."""
        for held in tuple(self.held.values()):
            if deliveries is None or held.delivery in deliveries:
                held.give_back()
