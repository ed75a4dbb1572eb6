"""The transactions of the client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from liftbridge_aio._core.arguments import check_optional_text, check_type
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.model import Ack, AckPolicy, StartAt, StopAt
from liftbridge_aio.options import Duration
from liftbridge_aio.retry import Retry

from .administration import ClientAdministration
from .publishing import ClientPublishing
from .reading import ClientReading

if TYPE_CHECKING:
    from liftbridge_aio import transactions
    from liftbridge_aio.transactions import CheckpointStream, Explanation, OpenSpan
    from liftbridge_aio.transactions.claimed_log import LogClient
    from liftbridge_aio.transactions.reading import OnMalformed

_EARLIEST: Final = StartAt.earliest()


class ClientTransactions(ClientPublishing, ClientReading, ClientAdministration):
    """Publishing exactly once, and what readers wait for."""

    def producer(
        self,
        name: str | None = None,
        *,
        store: CheckpointStream | None = None,
        ack_policy: AckPolicy = AckPolicy.ALL,
        retry: Retry | None = None,
    ) -> transactions.Producer:
        """Return a producer, whose messages committed readings show once, or whole transactions.

        Without a store transactions are atomic unless the process dies while they are committed.
        With one they are atomic all the same, and take read positions along.

        Args:
            name: of a producer with a store; there is one at a time.
            store: keeps what the next producer of the name must know, a
                `transactions.CheckpointStream`.
            ack_policy: when a message counts as stored. With LEADER what was committed may be lost
                when a leader fails; NONE is refused.
            retry: how messages and acks are sent again while their outcome is unknown; None is
                `Retry()`.

        Raises:
            InvalidRequest: the ack policy is NONE, or a name without a store or the reverse.
            ClientClosed: the client is closed.
            UsageError: the client is not connected.
        """
        parts = self._living
        from liftbridge_aio.transactions import CheckpointStream, Producer  # noqa: PLC0415 - not before use
        from liftbridge_aio.transactions.producer import NamedStore  # noqa: PLC0415 - not before use

        named = None
        check_type(store, (CheckpointStream, type(None)), "store is a CheckpointStream")
        check_optional_text(name, "the name of a producer")
        if (name is None) is not (store is None):
            raise InvalidRequest("a producer with a store has a name, and one without has none")
        if name is not None and store is not None:
            store.stream_of(name)
            named = NamedStore(cast("LogClient", self), store, name)
        return Producer(parts, ack_policy, Retry() if retry is None else retry, named)

    async def explain(
        self,
        stream: str,
        partition: int = 0,
        start: StartAt = _EARLIEST,
        *,
        on_malformed: OnMalformed = "error",
        timeout: Duration | None = None,
    ) -> Explanation:
        """Find out why a committed reading shows nothing: read a partition for open transactions.

        Reads everything from the start to the end of the log; a paused partition is not read.
        Cancelling ends the reading.

        Args:
            stream: the stream.
            partition: which of its partitions.
            start: where to begin; a transaction that began before it may be missing.
            on_malformed: as for `ReadCommitted`; `Explanation.malformed` counts skipped ones.
            timeout: seconds until the server has accepted; None is the client's call_timeout.

        Raises:
            StreamNotFound: no such stream.
            PartitionNotFound: the stream has no such partition.
            MalformedAck: a message says that it is an ack, and cannot be read as one.
            LiftbridgeError: the partition could not be read.
        """
        from liftbridge_aio.transactions.explain import Explainer  # noqa: PLC0415 - not before use

        explainer = Explainer(on_malformed)
        state = await self.fetch_partition_metadata(stream, partition, timeout=timeout)
        if not state.paused:
            reading = self.read(
                stream, start=start, stop=StopAt.latest(), partition=partition, timeout=timeout
            )
            async with reading:
                async for batch in reading.batches():
                    for message in batch:
                        explainer.feed(message)
        return explainer.explanation(stream, state)

    async def abort_transaction(self, span: OpenSpan, *, force: bool = False) -> Ack:
        """Roll back what a dead producer left open in a partition, for good.

        A producer that lives after all is not told: its commit succeeds, and shows nothing here. Do
        this in each partition of the transaction, with the span that `explain` finds there. One
        with a store is better fenced off: enter a producer of its name. Cancelling leaves the
        transaction open or rolled back.

        Args:
            span: from `explain`.
            force: roll it back although its newest message is less than a minute old.

        Raises:
            TransactionActive: its newest message is less than a minute old.
            PublishOutcomeUnknown: it may be rolled back; do it again.
            LiftbridgeError: it is not rolled back.
        """
        from liftbridge_aio.transactions import OpenSpan  # noqa: PLC0415 - not before use
        from liftbridge_aio.transactions.explain import rollback_message  # noqa: PLC0415 - not before use

        check_type(span, OpenSpan, "span is an OpenSpan, from explain()")
        message = rollback_message(span, force=force)
        ack = await (await self._living.submit(message))
        return cast("Ack", ack)
