"""Read positions that are committed with the transactions of a producer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeAlias

from liftbridge_aio._core.arguments import check_type
from liftbridge_aio._runtime.bounded_gather import bounded_gather
from liftbridge_aio._subscribe.core.checkpoint import Checkpoint
from liftbridge_aio._subscribe.core.plan import ReadingPlan
from liftbridge_aio._subscribe.merged_subscription import MergedSubscription
from liftbridge_aio._subscribe.seekable_reader import SeekableReader
from liftbridge_aio._subscribe.subscription import Subscription
from liftbridge_aio._subscribe.subscription_base import SubscriptionState
from liftbridge_aio.errors import ClientClosed, StreamReset, UsageError
from liftbridge_aio.model import StartAt, StartPosition
from liftbridge_aio.net.metadata import MetadataCache

from .checkpoints import Checkpoints
from .core.transaction import Place

Readable: TypeAlias = Subscription | MergedSubscription
"""A subscription whose positions can be committed."""

MAX_PRODUCERS: Final = 1000
"""Producers whose single messages are recognised after a restart, of each partition: each takes 17
bytes of every checkpoint."""


class _Partition:
    """A partition that is read."""

    def __init__(self, reader: SeekableReader) -> None:
        self.reader = reader
        self.start = reader.plan.start
        """The start of the reading while nothing is committed."""

    @property
    def position(self) -> Checkpoint | None:
        """Its position; None before the first message of a log whose start is unknown."""
        found = self.reader.current.checkpoint()
        if found.position is not StartPosition.OFFSET:
            return None
        producers = found.producers
        return found if producers is None else replace(found, producers=producers[-MAX_PRODUCERS:])

    def remember_start(self) -> None:
        """Note the offset at which it began to be read."""
        offset = self.reader.current.start_offset
        if not self.reader.sought and offset is not None:
            self.start = StartAt.offset(offset)


class SubscriptionPositions:
    """The positions of one subscription; the `PositionStore` of `Client.subscribe(positions=)`."""

    def __init__(self, checkpoints: Checkpoints, metadata: MetadataCache) -> None:
        """Read nothing yet."""
        self.checkpoints = checkpoints
        self._metadata = metadata
        self._partitions: dict[Place, _Partition] = {}

    # What transactions ask

    def check(self) -> None:
        """Refuse positions that are not those of a reading in progress.

        Raises:
            UsageError: it was not entered.
        """
        if not self._partitions:
            raise UsageError("enter the subscription before a transaction commits its positions")

    def read(self) -> dict[Place, Checkpoint]:
        """Return how far each partition was read."""
        return {
            place: position
            for place, partition in self._partitions.items()
            if (position := partition.position) is not None
        }

    def has_moved(self, place: Place) -> bool:
        """Return True if messages of a partition were read that no transaction has committed."""
        partition = self._partitions[place]
        if not partition.reader.current.decoder.delivered:
            return False
        return partition.position != self.checkpoints.positions.get(place)

    def rewind(self, subscription: Readable) -> None:
        """Continue at the positions that were committed last. Waits for nothing."""
        if subscription.state is SubscriptionState.ENDED:
            return
        starts: dict[int, StartAt] = {}
        for place, partition in self._partitions.items():
            partition.remember_start()
            committed = self.checkpoints.positions.get(place)
            if committed is None and partition.reader.current.decoder.delivered:
                starts[place[1]] = partition.start
            elif committed is not None and committed != partition.position:
                starts[place[1]] = committed
        with suppress(ClientClosed):  # the next step says so
            subscription.move(starts)

    # What the subscription asks

    async def set_starts(
        self,
        readers: Iterable[tuple[SeekableReader, Callable[[], int | None]]],
        timeout: float,
    ) -> None:
        """Start readers where the transactions of the producer say. Cancelling abandons the calls.

        Raises:
            StreamReset: the log is not the one that was read before.
            UsageError: another subscription reads one of the partitions for this producer.
            LiftbridgeError: the state of a partition could not be read.
        """

        async def one(reader: SeekableReader) -> None:
            await self._set_start(reader, timeout)

        await bounded_gather([reader for reader, _ in readers], one)

    async def _set_start(self, reader: SeekableReader, timeout: float) -> None:
        plan = reader.plan
        place = plan.stream, plan.partition
        if self.checkpoints.readers.setdefault(place, self) is not self:
            raise UsageError(
                "another subscription reads this partition for the same producer",
                stream=plan.stream,
                partition=plan.partition,
            )
        self._partitions[place] = _Partition(reader)
        stored = self.checkpoints.positions.get(place)
        if stored is None or reader.sought:
            return
        await self._metadata.stream(plan.stream, timeout)
        state = await self._metadata.partition(plan.stream, plan.partition, timeout)
        if stored.value > state.newest_offset + 1:
            raise StreamReset(
                f"transactions of the producer have read up to offset {stored.value}, and the log"
                f" ends at {state.newest_offset}: it was truncated or created again",
                stream=plan.stream,
                partition=plan.partition,
                offset=stored.value,
            )
        reader.begin_at(stored)

    async def begin(self) -> None:
        """Do nothing: transactions store the positions."""

    async def check_target(self, plan: ReadingPlan) -> None:
        """Do nothing: any position may be committed."""

    def sought(self, stream: str, partition: int) -> None:
        """Do nothing: any position may be committed."""

    async def commit(self) -> None:
        """Refuse to store positions without a transaction.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            "positions=producer are stored by transactions: producer.transaction(subscription)"
        )

    async def close(self, timeout: float) -> None:
        """Let other subscriptions read the partitions."""
        del timeout
        self.stop()

    def stop(self) -> None:
        """Let other subscriptions read the partitions."""
        readers = self.checkpoints.readers
        for place in self._partitions:
            if readers.get(place) is self:
                del readers[place]


def positions_of(subscription: Readable, checkpoints: object) -> SubscriptionPositions:
    """Return the positions of a subscription.

    Raises:
        UsageError: they are not those of this producer, or not to be committed.
    """
    check_type(
        subscription,
        (Subscription, MergedSubscription),
        "a transaction takes subscriptions: Client.subscribe(..., positions=producer)",
    )
    found = subscription.position_store
    if not isinstance(found, SubscriptionPositions) or found.checkpoints is not checkpoints:
        raise UsageError(
            "a transaction commits the positions of subscriptions of its own producer: subscribe"
            " with positions= of that producer",
            stream=subscription.stream,
        )
    found.check()
    return found
