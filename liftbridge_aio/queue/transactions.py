"""Transactions that publish results and ack a delivery atomically.

The acks record of the delivery's partition is the commit. Before a transaction publishes to a
partition, the record gets an ack that rolls it back; the record with the delivery's ack has the
acks that commit it. So the next owner of the partition can end any transaction that this owner has
left open. While this member owns the partition, it retries a commit in doubt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Protocol

from liftbridge_aio._runtime.supervisor import Child
from liftbridge_aio._subscribe.core.checkpoint import Checkpoint
from liftbridge_aio.errors import LiftbridgeError, PublishOutcomeUnknown
from liftbridge_aio.transactions.core.transaction import AckIntent, Place, ProducerIdentity
from liftbridge_aio.transactions.errors import ProducerFenced
from liftbridge_aio.transactions.sender import IdentityPool, Sender
from liftbridge_aio.transactions.transaction import Transaction

from .acks_writer import AcksWriter
from .core.attempt import AttemptState
from .delivery import Delivery
from .errors import LeaseExpired, QueueTaken

_DELAY: Final = 0.2
"""Seconds between two attempts to store a commit."""


class PartitionProducers(IdentityPool):
    """The producers of one partition's transactions, and the acks that end open transactions."""

    def __init__(self) -> None:
        super().__init__()
        # State
        self.committing: set[DeliveryTransaction] = set()
        """Transactions with acked deliveries, until their results are certainly visible."""
        self.in_doubt: set[DeliveryTransaction] = set()
        """Transactions in `committing` whose commit has failed and is being retried."""
        self._acks: dict[bytes, dict[Place, AckIntent]] = {}
        """The ack that commits or rolls back each open transaction, by producer id and place."""

    def acks(self) -> tuple[AckIntent, ...]:
        """Return the acks for the next owner of the partition."""
        return tuple(ack for acks in self._acks.values() for ack in acks.values())

    def give_back(self, identity: ProducerIdentity) -> None:
        """Implement `IdentityPool`: its transaction has ended, so the next one is rolled back."""
        super().give_back(identity)
        self._roll_back(identity, self._acks.get(identity.id, ()))

    def knows(self, identity: ProducerIdentity, place: Place) -> bool:
        """Return True if there is an ack for what a producer publishes to a partition."""
        return place in self._acks.get(identity.id, ())

    def register(self, identity: ProducerIdentity, place: Place) -> None:
        """Add an ack that rolls back what a producer publishes to a partition."""
        self._roll_back(identity, [*self._acks.get(identity.id, ()), place])

    def _roll_back(self, identity: ProducerIdentity, places: Iterable[Place]) -> None:
        intents = identity.roll_back(dict.fromkeys(places))
        self._acks[identity.id] = {(each.stream, each.partition): each for each in intents}

    def commit(self, identity: ProducerIdentity, intents: Iterable[AckIntent]) -> None:
        """Replace the acks of a transaction by those that commit it."""
        acks = self._acks[identity.id]
        for stream, partition, entry in intents:
            acks[stream, partition] = AckIntent(stream, partition, entry._replace(final=True))

    def forget(self, identity: ProducerIdentity) -> None:
        """Remove the acks of a producer that was rolled back."""
        self._acks.pop(identity.id, None)


class Owner(Protocol):
    """The owner of a partition, for the transactions of its deliveries: the dispatcher."""

    def ack_by_commit(self, transaction: DeliveryTransaction) -> None:
        """Ack the delivery of a transaction; messages after it wait for `ended`."""

    def ended(self, transaction: DeliveryTransaction) -> None:
        """Release waiting messages after a commit, or begin to retry one in doubt."""


class _Commits:
    """Stores the commit of one transaction in the acks of its delivery's partition."""

    def __init__(
        self,
        delivery: Delivery,
        ack: Callable[[], None],
        producers: PartitionProducers,
        acks: AcksWriter,
        timeout: float,
    ) -> None:
        self._delivery = delivery
        self._ack = ack
        self._producers = producers
        self._acks = acks
        self._timeout = timeout
        # State
        self._may_be_stored = False
        """True after a failed write of the commit, which may have been stored all the same."""
        self._identity: ProducerIdentity | None = None
        """The producer of the transaction; None before its first message."""

    @property
    def rollback(self) -> Child | None:
        """Implement `CommitStore`."""
        return None

    @rollback.setter
    def rollback(self, child: Child | None) -> None:
        identity = self._identity
        if identity is None:
            return
        if child is None:
            self._producers.forget(identity)
        else:
            child.task.add_done_callback(lambda _: self._producers.forget(identity))

    def knows(self, identity: ProducerIdentity, place: Place) -> bool:
        """Implement `CommitStore`."""
        return self._producers.knows(identity, place)

    async def register(self, identity: ProducerIdentity, place: Place) -> None:
        """Implement `CommitStore`."""
        if self._delivery.state is not AttemptState.IN_FLIGHT:
            raise LeaseExpired("the delivery was answered, or its ack_wait is over")
        self._identity = identity
        self._producers.register(identity, place)
        await self._save()

    async def commit(
        self,
        identity: ProducerIdentity,
        intents: Iterable[AckIntent],
        positions: Mapping[Place, Checkpoint],  # noqa: ARG002 - of the protocol
    ) -> None:
        """Implement `CommitStore`."""
        self._ack()
        self._producers.commit(identity, intents)
        await self.settle()

    async def settle(self) -> None:
        """Implement `CommitStore`."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._settle()
        except TimeoutError as error:
            raise PublishOutcomeUnknown(
                f"the acks of the partition were not stored within {self._timeout:g} s",
                **self._delivery.share.place._asdict(),
            ) from error

    async def _settle(self) -> None:
        while True:
            try:
                await self._save()
            except ProducerFenced as error:
                if not self._may_be_stored:
                    raise
                raise PublishOutcomeUnknown(error.message) from error
            except (LiftbridgeError, asyncio.CancelledError) as error:
                self._may_be_stored = True
                if not isinstance(error, LiftbridgeError):
                    raise
            else:
                return
            await asyncio.sleep(_DELAY)

    async def _save(self) -> None:
        share = self._delivery.share
        if share.window is not None:
            share.window.changes += 1
        try:
            await self._acks.save(share)
        except QueueTaken as error:
            raise ProducerFenced(
                f"another member has the delivery: {error.message}", **share.place._asdict()
            ) from error


class DeliveryTransaction(Transaction):
    """A transaction whose commit acks a delivery.

    `Delivery.transaction` makes it. If its block raises, it is aborted and the delivery stays
    unanswered; the handler, or the block of the delivery, answers it.
    """

    def __init__(
        self,
        sender: Sender,
        producers: PartitionProducers,
        delivery: Delivery,
        owner: Owner,
        acks: AcksWriter,
        timeout: float,
    ) -> None:
        """Made by `Delivery.transaction`."""
        ack = partial(owner.ack_by_commit, self)
        super().__init__(sender, producers, _Commits(delivery, ack, producers, acks, timeout))
        self.delivery = delivery
        self._owner = owner
        self._turn = asyncio.Lock()
        """Held during a commit: by the user's task, or by the owner's that retries it."""

    async def commit(self) -> None:
        """Make the messages visible and ack the delivery, or neither; see `Transaction.commit`.

        Cancelling is as there.

        Raises:
            TransactionAborted: nothing is visible, and the message is redelivered: a result was not
                stored, or ack_wait was over.
            CommitInDoubt: the acks could not be stored within the queue's timeout, so the commit
                may have succeeded. The queue retries it until it is certain, before it releases the
                partition or closes. Later messages with its key wait. `resume` waits for the
                outcome.
            ProducerFenced: another member has the delivery; nothing is visible.
            UsageError: the transaction is over.
        """
        async with self._turn:
            try:
                await super().commit()
            finally:
                self._owner.ended(self)
        if self.delivery.state is AttemptState.IN_FLIGHT:  # nothing was published
            await self.delivery.ack(sync=True)

    async def resume(self) -> None:
        """Retry a commit in doubt, or wait while the queue does; see `Transaction.resume`.

        Cancelling leaves the commit in doubt.

        Raises:
            CommitInDoubt: the outcome is still unknown; the queue retries the commit.
            UsageError: the transaction was not committed.
        """
        async with self._turn:
            try:
                await super().resume()
            finally:
                self._owner.ended(self)
