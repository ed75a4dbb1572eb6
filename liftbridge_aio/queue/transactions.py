"""Transactions that publish results and ack a delivery in one: the acks record is their commit.

Before a transaction publishes to a partition, the record of the delivery's partition says how to
roll it back; the record that has the ack says how to commit it. So the next owner of the partition
writes what this one has not. A commit in doubt is repeated by the owner itself for as long as it
has the partition.
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
"""Seconds between attempts to store a commit."""


class PartitionProducers(IdentityPool):
    """The producers of the transactions of one partition, and what its next owner must write."""

    def __init__(self) -> None:
        super().__init__()
        self.committing: set[DeliveryTransaction] = set()
        """Transactions whose deliveries are acked, and whose results may not be visible yet."""
        self.in_doubt: set[DeliveryTransaction] = set()
        """Those of them whose commit has failed; the owner of the partition repeats it."""
        self._acks: dict[bytes, dict[Place, AckIntent]] = {}
        """By producer id and partition: the ack that commits or rolls back what is not over."""

    def acks(self) -> tuple[AckIntent, ...]:
        """Return the acks that the next owner of the partition writes."""
        return tuple(ack for acks in self._acks.values() for ack in acks.values())

    def give_back(self, identity: ProducerIdentity) -> None:
        """See `IdentityPool`: what was committed needs no ack any more."""
        super().give_back(identity)
        self._roll_back(identity, self._acks.get(identity.id, ()))

    def knows(self, identity: ProducerIdentity, place: Place) -> bool:
        """Return True if the next owner would end what is published there."""
        return place in self._acks.get(identity.id, ())

    def register(self, identity: ProducerIdentity, place: Place) -> None:
        """Have the next owner roll back what is published to a partition."""
        self._roll_back(identity, [*self._acks.get(identity.id, ()), place])

    def _roll_back(self, identity: ProducerIdentity, places: Iterable[Place]) -> None:
        intents = identity.roll_back(dict.fromkeys(places))
        self._acks[identity.id] = {(each.stream, each.partition): each for each in intents}

    def commit(self, identity: ProducerIdentity, intents: Iterable[AckIntent]) -> None:
        """Have the next owner commit a transaction."""
        acks = self._acks[identity.id]
        for stream, partition, entry in intents:
            acks[stream, partition] = AckIntent(stream, partition, entry._replace(final=True))

    def forget(self, identity: ProducerIdentity) -> None:
        """End a producer that was rolled back."""
        self._acks.pop(identity.id, None)


class Owner(Protocol):
    """The protocol of the owner of a partition, as transactions of its deliveries need it."""

    def ack_by_commit(self, transaction: DeliveryTransaction) -> None:
        """Ack the delivery of a transaction; its key and its partition wait for `ended`."""

    def ended(self, transaction: DeliveryTransaction) -> None:
        """Continue after a commit, or finish one in doubt."""


class _Commits:
    """Stores the commit of one transaction with the acks of a partition."""

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
        self._may_be_stored = False
        self._identity: ProducerIdentity | None = None

    @property
    def rollback(self) -> Child | None:
        """See `CommitStore`."""
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
        """See `CommitStore`."""
        return self._producers.knows(identity, place)

    async def register(self, identity: ProducerIdentity, place: Place) -> None:
        """See `CommitStore`."""
        if self._delivery.state is not AttemptState.IN_FLIGHT:
            raise LeaseExpired("the delivery is not this transaction's any more")
        self._identity = identity
        self._producers.register(identity, place)
        await self._save()

    async def commit(
        self,
        identity: ProducerIdentity,
        intents: Iterable[AckIntent],
        positions: Mapping[Place, Checkpoint],  # noqa: ARG002 - of the protocol
    ) -> None:
        """See `CommitStore`."""
        self._ack()
        self._producers.commit(identity, intents)
        await self.settle()

    async def settle(self) -> None:
        """See `CommitStore`."""
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
                f"the delivery is another member's: {error.message}", **share.place._asdict()
            ) from error


class DeliveryTransaction(Transaction):
    """A transaction whose commit acks a delivery, in one.

    Made by `Delivery.transaction`. If its block raises, it is aborted and the delivery is not
    answered; the handler, or the block of the delivery, does that.
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
        """Use `Delivery.transaction`."""
        ack = partial(owner.ack_by_commit, self)
        super().__init__(sender, producers, _Commits(delivery, ack, producers, acks, timeout))
        self.delivery = delivery
        self._owner = owner
        self._turn = asyncio.Lock()
        """The turn of a task that commits: the user's, or the owner's while it is in doubt."""

    async def commit(self) -> None:
        """Make the messages visible and ack the delivery, or neither; see `Transaction.commit`.

        Cancelling is as there.

        Raises:
            TransactionAborted: nothing is visible, and the delivery comes again: a message was not
                stored, or the time for an answer was over.
            CommitInDoubt: it may be committed: the acks could not be stored within the queue's
                timeout. The queue repeats the commit until it is certain, before it gives the
                partition away or closes; later messages of its key wait for that. `resume` waits
                for the outcome.
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
        """Continue a commit in doubt, or wait for the queue to do it; see `Transaction.resume`.

        Cancelling leaves it in doubt.

        Raises:
            CommitInDoubt: it is still in doubt; the queue repeats it.
            UsageError: the transaction was not committed.
        """
        async with self._turn:
            try:
                await super().resume()
            finally:
                self._owner.ended(self)
