"""Publishes messages that committed readings show once: alone, or in transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Self, cast
from weakref import WeakSet

from liftbridge_aio.errors import ClientClosed, LiftbridgeError, PublishOutcomeUnknown
from liftbridge_aio.interceptors import AckFuture
from liftbridge_aio.model import Ack, AckPolicy, Partitioner
from liftbridge_aio.options import Duration
from liftbridge_aio.retry import Retry

from .core.transaction import AckIntent, Phase, ProducerIdentity
from .core.uuid import Flags
from .sender import IdentityPool, PublishingClient, Sender
from .transaction import Transaction


class Producer:
    """Publishes messages that committed readings show once: alone, or in transactions.

    Made by `Client.producer`; any number of tasks may use it at a time. Outside of transactions it
    sends a message again until its outcome is known, and committed readings pass over the repeats.
    Order holds as for `Client.publish(retry=)`: a message that is sent again may come behind later
    ones. Readings that are not committed see everything that is in the log.
    """

    def __init__(self, client: PublishingClient, ack_policy: AckPolicy, retry: Retry) -> None:
        """Use `Client.producer`."""
        self._sender = Sender(client, ack_policy, retry)
        self._loop = asyncio.get_running_loop()
        self._single = IdentityPool()
        self._of_transactions = IdentityPool()
        self._transactions: WeakSet[Transaction] = WeakSet()

    async def __aenter__(self) -> Self:
        """Return it."""
        return self

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
        chosen = sender.partition_now(stream, key, partition, partitioner)
        if chosen is None:
            chosen = await sender.partition_of(stream, value, key, partition, partitioner, timeout)
        identity = self._single.take()
        uuid = identity.next_uuid(Flags.OUTSIDE)
        message = (stream, value, key, headers, chosen, uuid)
        attempt = sender.send_now(*message) if timeout is None else None
        if attempt is None:
            attempt = await sender.send(*message, timeout)
        outcome: asyncio.Future[Ack] = self._loop.create_future()
        again = partial(sender.send, *message, timeout, again=True)
        attempt.add_done_callback(partial(self._settle, outcome, identity, again))
        outcome.add_done_callback(partial(_cancel_too, attempt))
        return outcome

    def _settle(
        self,
        outcome: asyncio.Future[Ack],
        identity: ProducerIdentity,
        again: Callable[[], Awaitable[AckFuture]],
        attempt: AckFuture,
    ) -> None:
        """Pass the first attempt's result on, or begin to send the message again."""
        if attempt.cancelled():
            outcome.cancel()
            return
        error = attempt.exception()
        if isinstance(error, PublishOutcomeUnknown):
            if not outcome.done():
                self._begin_again(outcome, identity, again, error)
            return
        self._single.give_back(identity)
        if outcome.done():
            return
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(cast("Ack", attempt.result()))

    def _begin_again(
        self,
        outcome: asyncio.Future[Ack],
        identity: ProducerIdentity,
        again: Callable[[], Awaitable[AckFuture]],
        unknown: PublishOutcomeUnknown,
    ) -> None:
        """Send a message until it is stored. It does no harm if a repeat is stored much later."""

        async def follow() -> None:
            nonlocal unknown
            try:
                ack = cast("Ack", await (await again()))
            except PublishOutcomeUnknown as error:
                unknown = error
            except LiftbridgeError as error:
                unknown.add_note(f"sending it again failed: {error}")
            else:
                self._single.give_back(identity)
                if not outcome.done():
                    outcome.set_result(ack)

        def over(_: object) -> None:
            if not outcome.done():
                outcome.set_exception(unknown)

        try:
            child = self._sender.supervisor.spawn(follow, name="producer")
        except ClientClosed:
            over(None)
        else:
            child.task.add_done_callback(over)
            outcome.add_done_callback(lambda _: child.cancel())

    def transaction(self) -> Transaction:
        """Return a new transaction, for `async with`. Any number may be open at a time.

        Raises:
            UsageError: the producer is closed.
        """
        self._sender.check()
        transaction = Transaction(self._sender, self._of_transactions)
        self._transactions.add(transaction)
        return transaction

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


def _cancel_too(attempt: AckFuture, outcome: asyncio.Future[Ack]) -> None:
    if outcome.cancelled():
        attempt.cancel()
