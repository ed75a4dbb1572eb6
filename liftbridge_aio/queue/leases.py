"""Leases: members without work process messages of other members' partitions, over NATS."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from liftbridge_aio.model import StreamInfo
from liftbridge_aio.options import timer_seconds

from .borrower import Borrower
from .core.lease_protocol import Answer, Ask, Frame, Granted, Lease, Offer
from .dispatcher import Dispatcher
from .lease_bus import LeaseBus
from .lender import Lender
from .partitions import Spawn
from .plan import QueuePlan, ReadAt

_INTERVAL: Final = 1.0
"""Seconds between offers, and before answers are resent."""
_OFFERS: Final = 5
"""Intervals between two requests for offers from all members, in case offers were lost."""


class Leases:
    """Lends messages of this member's partitions, and borrows messages of others.

    The owner's ack window stays authoritative: a lease is a delivery whose ack_wait runs there, and
    an answer counts once the owner has it.

    Args:
        plan: the arguments of the queue.
        dispatcher: delivers messages.
        member: the id of this member in the group.
        spawn: runs a task in the background.
        read_at: reads one message.
    """

    def __init__(
        self, plan: QueuePlan, dispatcher: Dispatcher, member: str, spawn: Spawn, read_at: ReadAt
    ) -> None:
        self._plan = plan
        self._dispatcher = dispatcher
        self._spawn = spawn
        self._bus = LeaseBus(plan.options.nats or (), self._take, self._bounced)
        self.lender = Lender(dispatcher, self._bus, timer_seconds(plan.options.ack_wait), spawn)
        self.borrower = Borrower(dispatcher, self._bus, member, spawn, read_at)
        self.ask_soon = self.borrower.ask_soon

    async def open(self, stream: StreamInfo) -> None:
        """Connect to NATS."""
        plan = self._plan
        topic = plan.group, stream.name, stream.creation_timestamp
        await self._bus.open(topic, plan.timeout)

    def start(self) -> None:
        """Begin to lend and to borrow."""
        self._dispatcher.leases = self
        self._dispatcher.waiters.spare = self.lender
        self._spawn(self._bus.run, "leases")
        self._spawn(self._run_intervals, "offers")

    async def _run_intervals(self) -> None:
        """Every interval: send offers, resend answers, expire owners."""
        intervals, was_up = 0, False
        while True:
            if self._bus.is_up and (not was_up or intervals % _OFFERS == 0):
                self.borrower.ask_all_for_offers()
            was_up = self._bus.is_up
            self.lender.offer_to_all()
            self.lender.forget_ended()
            self.borrower.tick()
            intervals += 1
            await asyncio.sleep(_INTERVAL)

    def _take(self, frame: Frame) -> None:
        match frame:
            case Lease():
                self.borrower.on_lease(frame)
            case Answer():
                self.lender.on_answer(frame)
            case Ask():
                self.lender.on_ask(frame)
            case Granted():
                self.borrower.on_granted(frame)
            case Offer():
                self.borrower.on_offer(frame)
            case _:
                self.borrower.on_verdict(frame)

    def _bounced(self, reply: str) -> None:
        self.lender.on_bounce(reply)
        self.borrower.on_bounce(reply)

    def explain(self) -> Iterator[str]:
        """Yield a sentence for each member with leases of this one, and for each borrowed lease."""
        for (stream, partition), share in sorted(self._dispatcher.partitions.shares.items()):
            for member, count in sorted(share.leased.items()):
                yield f"{stream}/{partition}: {count} in flight are leased to {member}"
        now = asyncio.get_running_loop().time()
        for held in self.borrower.held.values():
            lease = held.lease
            yield (
                f"{lease.stream}/{lease.partition}: offset {lease.offset} is leased to this member,"
                f" and {held.state.value}, for {max(held.deadline - now, 0):.1f} s more"
            )

    # The end

    def stop(self) -> None:
        """Ask for no more messages, and return undelivered ones to their owners."""
        self.borrower.stop()

    async def drain(self, timeout: float, *, waits: bool) -> None:
        """Wait until answers are confirmed, and return unanswered messages to their owners.

        Args:
            timeout: seconds.
            waits: True also waits for answers of handlers.
        """
        await self.borrower.drain(timeout, waits=waits)

    async def close(self, timeout: float) -> None:
        """End all leases, and disconnect from NATS."""
        self._dispatcher.waiters.spare = None
        self.borrower.close()
        await self._bus.close(timeout)
