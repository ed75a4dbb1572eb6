"""Publishes messages that committed readings show once: alone, or in transactions."""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import NamedTuple, Self
from weakref import WeakSet

from liftbridge_aio.errors import NotFound, UsageError
from liftbridge_aio.model import Ack, AckPolicy, Partitioner
from liftbridge_aio.options import Duration
from liftbridge_aio.retry import Retry

from .checkpoints import Checkpoints, CheckpointStream
from .claimed_log import LogClient
from .core.transaction import AckIntent, Phase
from .errors import CommitInDoubt
from .positions import Readable, SubscriptionPositions
from .sender import IdentityPool, PublishingClient, Sender
from .single_message import SingleMessage
from .transaction import Transaction

logger = logging.getLogger("liftbridge_aio.transactions")


class NamedStore(NamedTuple):
    """The store of one producer."""

    client: LogClient
    store: CheckpointStream
    name: str


class Producer:
    """Publishes messages that committed readings show once: alone, or in transactions.

    Made by `Client.producer`; any number of tasks may use it at a time. Outside of transactions it
    sends a message again until its outcome is known, and committed readings pass over the repeats.
    Order holds as for `Client.publish(retry=)`: a message that is sent again may come behind later
    ones. Readings that are not committed see everything that is in the log.

    With a store it is entered before its first transaction, and has one transaction at a time.
    Entering fences off whoever had its name before, and finishes or rolls back what that one has
    left.
    """

    def __init__(
        self,
        client: PublishingClient,
        ack_policy: AckPolicy,
        retry: Retry,
        store: NamedStore | None = None,
    ) -> None:
        """Use `Client.producer`."""
        self._sender = Sender(client, ack_policy, retry)
        self._metadata = client.network.metadata
        self._retry = retry
        self._store = store
        self._checkpoints: Checkpoints | None = None
        self._loop = asyncio.get_running_loop()
        self._single = IdentityPool()
        self._of_transactions = IdentityPool()
        self._is_entered = False
        self._newest: Transaction | None = None
        """With a store, the transaction that must be finished before the next."""
        self._transactions: WeakSet[Transaction] = WeakSet()

    async def __aenter__(self) -> Self:
        """Return it. With a store, fence off the producer before, and finish what it has left.

        Cancelling leaves that unfinished; entering again continues.

        Raises:
            CommitInDoubt: not all acks of the producer before are known to be stored.
            NewerFormat: a later version of this package has written the store.
            UsageError: the producer is closed, or entered already.
            LiftbridgeError: the store could not be claimed or read.
        """
        self._sender.check()
        if self._is_entered:
            raise UsageError("the producer is entered already: leaving it twice would close it")
        if self._store is not None:
            checkpoints = await Checkpoints.open(*self._store, self._retry)
            await self._finish(checkpoints)
            self._checkpoints = checkpoints
        self._is_entered = True
        return self

    async def _finish(self, checkpoints: Checkpoints) -> None:
        """Write the acks of the producer before; none to streams that are gone."""
        intents = checkpoints.inherited.intents
        written = await self._sender.write_acks(intents)
        gone = {error.stream for error in written.refusals if isinstance(error, NotFound)}
        if gone:
            logger.warning("streams of transactions are gone: %s", ", ".join(map(repr, gone)))
        written.refusals = [error for error in written.refusals if error.stream not in gone]
        try:
            written.check()
        except CommitInDoubt as error:
            error.hint = "enter the producer again: the acks are those of the one before it"
            raise
        checkpoints.inherit(
            (stream, partition) for stream, partition, _ in intents if stream not in gone
        )

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; see `close`."""
        self.close()

    def close(self) -> None:
        """Abort open transactions and publish no more. May be called again."""
        for transaction in tuple(self._transactions):
            if transaction.phase is Phase.OPEN:
                if transaction.has_messages:
                    logger.warning(
                        "a transaction was neither committed nor aborted when its producer was"
                        " closed, so nothing of it is visible: use `async with`"
                    )
                transaction.abort()
        self._sender.closed = True

    async def publish(
        self,
        stream: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
        partitioner: Partitioner | None = None,
        *,
        timeout: Duration | None = None,
    ) -> Ack:
        """Publish a message outside of transactions, and wait for its ack.

        Cancelling takes it back if it is not written yet; after that it abandons the wait only.

        Args:
            stream: where to; not to a compacted stream, where a repeat may take the place of what
                came after the message.
            value: the message.
            key: as for `Client.publish`.
            headers: as for `Client.publish`, without those of transactions.
            partition: as for `Client.publish`.
            partitioner: as for `Client.publish`.
            timeout: seconds for each time it is sent; None is publish_timeout + ack_timeout.

        Raises:
            InvalidRequest: it cannot be sent like this; nothing was sent.
            PublishOutcomeUnknown: it may be stored, though it was sent again.
            ProducerFenced: another producer of its name has taken over; nothing was sent.
            UsageError: the producer is closed.
            LiftbridgeError: as for `Client.publish`; it is not stored.
        """
        future = await self.publish_async(
            stream, value, key, headers, partition, partitioner, timeout=timeout
        )
        return await future

    async def publish_async(
        self,
        stream: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
        partitioner: Partitioner | None = None,
        *,
        timeout: Duration | None = None,
    ) -> asyncio.Future[Ack]:
        """Publish a message and return the future of its ack, once there is room in the window.

        Arguments and errors are those of `publish`. Cancelling the future takes the message back if
        it is not written yet.
        """
        sender = self._sender
        sender.check(headers)
        if self._checkpoints is not None:
            self._checkpoints.check()
        chosen = sender.partition_now(stream, key, partition, partitioner)
        if chosen is None:
            chosen = await sender.partition_of(stream, value, key, partition, partitioner, timeout)
        message = SingleMessage(loop=self._loop)
        await message.send(sender, self._single, stream, value, key, headers, chosen, timeout)
        return message

    def transaction(self, *subscriptions: Readable) -> Transaction:
        """Return a new transaction, for `async with`.

        Any number may be open at a time; with a store only one.

        Args:
            subscriptions: made with `positions=` of this producer. What they have handed out when
                the block ends is committed with the transaction. If it is aborted, they continue
                where the one before has committed.

        Raises:
            ProducerFenced: another producer of its name has taken over.
            UsageError: the producer is closed or was not entered, a transaction with its store is
                not finished, or a subscription is not one of this producer.
        """
        self._sender.check()
        checkpoints = self._checkpoints
        if self._store is not None:
            checkpoints = self._opened()
            checkpoints.check()
            other = self._newest
            if other is not None and other.phase not in {Phase.COMMITTED, Phase.ABORTED}:
                raise UsageError(
                    "a producer with a store has one transaction at a time: finish the one that is"
                    f" {other.phase.value}"
                )
        transaction = Transaction(self._sender, self._of_transactions, checkpoints, subscriptions)
        if checkpoints is not None:
            self._warn_of_moved(checkpoints, subscriptions)
            self._newest = transaction
        self._transactions.add(transaction)
        return transaction

    def _warn_of_moved(self, checkpoints: Checkpoints, subscriptions: tuple[Readable, ...]) -> None:
        """Warn where messages were read whose positions no transaction would commit."""
        given = [each.position_store for each in subscriptions]
        for place, positions in checkpoints.readers.items():
            if positions not in given and positions.has_moved(place):
                text = (
                    f"messages of {place[0]}/{place[1]} were read with positions= of this producer,"
                    " and this transaction does not commit how far: give it the subscription"
                )
                warnings.warn(text, RuntimeWarning, stacklevel=3)
                return

    def _opened(self) -> Checkpoints:
        if self._checkpoints is None:
            if self._store is None:
                raise UsageError("the producer has no store: Client.producer(name, store=...)")
            raise UsageError("enter the producer first: async with client.producer(...)")
        return self._checkpoints

    @property
    def positions(self) -> dict[tuple[str, int], int]:
        """Positions of partitions in committed transactions: the next position of each.

        Raises:
            UsageError: it has no store, or was not entered.
        """
        return {place: position.value for place, position in self._opened().positions.items()}

    def subscription_positions(self) -> SubscriptionPositions:
        """Return where a subscription is stored; for `Client.subscribe`.

        Raises:
            UsageError: it has no store, or was not entered.
        """
        return SubscriptionPositions(self._opened(), self._metadata)

    async def append_intents(self, intents: Iterable[AckIntent]) -> None:
        """Write acks, of any producers, and wait until they are stored.

        For those who keep what `Transaction.build_ack_intents` returns in a store of their own, and
        find it there after a crash. All acks of one partition become one message. Acks that are
        stored already change nothing. Cancelling abandons the wait: some may be stored.

        Args:
            intents: the acks.

        Raises:
            CommitInDoubt: not all are known to be stored; write them again.
            UsageError: the producer is closed.
        """
        self._sender.check()
        written = await self._sender.write_acks(intents)
        written.check()
