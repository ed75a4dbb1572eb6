"""Shares the messages of a queue among all its members, over NATS, whoever owns the partitions."""

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
"""Seconds between offers, and before answers are sent again."""
_OFFERS: Final = 5
"""After so many intervals all members are asked for offers, in case some were lost."""


class Leases:
    """Lends messages of this member's partitions, and borrows those of others.

    The window of the owner stays the one truth: a lease is a delivery whose time runs there, and an
    answer counts once the owner has it.

    Args:
        plan: the arguments of the queue.
        dispatcher: hands out messages.
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
        self.look = self.borrower.look

    async def open(self, stream: StreamInfo) -> None:
        """Connect to NATS. Cancelling leaves nothing behind.

        Raises:
            ConnectionFailed: no NATS server answered.
            TLSFailed: TLS is asked for, and no server offers it.
        """
        plan = self._plan
        topic = plan.group, stream.name, stream.creation_timestamp
        await self._bus.open(topic, plan.timeout)

    def start(self) -> None:
        """Begin to lend and to borrow."""
        self._dispatcher.leases = self
        self._dispatcher.waiters.spare = self.lender
        self._spawn(self._bus.run, "leases")
        self._spawn(self._beat, "offers")

    async def _beat(self) -> None:
        """Make offers, and repeat what was lost. Cancelling ends it."""
        beats, was_up = 0, False
        while True:
            if self._bus.is_up and (not was_up or beats % _OFFERS == 0):
                self.borrower.ask_all_for_offers()
            was_up = self._bus.is_up
            self.lender.offer_to_all()
            self.lender.forget_ended()
            self.borrower.beat()
            beats += 1
            await asyncio.sleep(_INTERVAL)

    def _take(self, frame: Frame) -> None:
        match frame:
            case Lease():
                self.borrower.leased(frame)
            case Answer():
                self.lender.answered(frame)
            case Ask():
                self.lender.asked(frame)
            case Granted():
                self.borrower.granted(frame)
            case Offer():
                self.borrower.offered(frame)
            case _:
                self.borrower.judged(frame)

    def _bounced(self, reply: str) -> None:
        self.lender.bounced(reply)
        self.borrower.bounced(reply)

    def explain(self) -> Iterator[str]:
        """Yield a sentence for each member that has messages of this one, and the other way."""
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
        """Ask for nothing more, and give back what was not handed out."""
        self.borrower.stop()

    async def drain(self, timeout: float, *, waits: bool) -> None:
        """Wait until the answers of this member are confirmed, and give back what is not answered.

        Cancelling abandons the wait.

        Args:
            timeout: seconds.
            waits: True waits for answers too.
        """
        await self.borrower.drain(timeout, waits=waits)

    async def close(self, timeout: float) -> None:
        """End all leases, and leave NATS. Cancelling takes effect after that."""
        self._dispatcher.waiters.spare = None
        self.borrower.close()
        await self._bus.close(timeout)
