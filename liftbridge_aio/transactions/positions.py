"""Read positions that are committed with the transactions of a producer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

from liftbridge_aio._core.arguments import check_type
from liftbridge_aio._core.bounded_gather import bounded_gather
from liftbridge_aio._subscribe.core.plan import ReadingPlan
from liftbridge_aio._subscribe.core.visibility import MakeVisibility, Replay, Shown, Visibility
from liftbridge_aio._subscribe.merged_subscription import MergedSubscription
from liftbridge_aio._subscribe.seekable_reader import SeekableReader
from liftbridge_aio._subscribe.subscription import Subscription
from liftbridge_aio._subscribe.subscription_base import SubscriptionState
from liftbridge_aio.errors import StreamReset, UsageError
from liftbridge_aio.model import Message, StartAt
from liftbridge_aio.net.metadata import MetadataCache

from .checkpoint import ReadPosition
from .checkpoints import Checkpoints
from .core.transaction import Place

Readable: TypeAlias = Subscription | MergedSubscription
"""A subscription whose positions can be committed."""


class _Partition:
    """A partition that is read."""

    def __init__(self, reader: SeekableReader, created: int) -> None:
        self.reader = reader
        self.created = created
        self.make_visibility = reader.plan.make_visibility
        self.start = reader.plan.start
        """Where it is read from while nothing is committed."""
        self.resumed: ReadPosition | None = None
        """The position that the current reader began at, if it was a stored one."""

    @property
    def position(self) -> ReadPosition | None:
        """How far it was read; None before the first message of a log whose start is unknown."""
        offset = self.reader.position
        if offset is None:
            return None
        rows = self.reader.current.decoder.rows_delivered
        resumed = self.resumed
        if resumed is not None and resumed.offset == offset:
            rows += resumed.rows
        return ReadPosition(offset, rows, self.created)

    def plan_at(self, plan: ReadingPlan, position: ReadPosition) -> ReadingPlan:
        """Return the plan of a reader that goes on at a position."""
        self.resumed = position
        make = self.make_visibility
        if make is None or not position.rows:
            return replace(plan, make_visibility=make)
        return replace(plan, make_visibility=_resumed(make, position))

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
        self._rewinding: dict[Place, ReadPosition] = {}
        self._lost = False
        """True if it could not be rewound: what is read now may not be what comes next."""

    # What transactions ask

    def check(self) -> None:
        """Refuse positions that are not those of a reading in progress.

        Raises:
            UsageError: it was not entered, or could not be rewound.
        """
        if not self._partitions:
            raise UsageError("enter the subscription before a transaction commits its positions")
        if self._lost:
            text = (
                "the subscription was not rewound after a transaction was aborted; make a new one"
            )
            raise UsageError(text)

    def read(self) -> dict[Place, ReadPosition]:
        """Return how far each partition was read."""
        return {
            place: position
            for place, partition in self._partitions.items()
            if (position := partition.position) is not None
        }

    async def rewind(self, subscription: Readable) -> None:
        """Continue at the positions that were committed last.

        Cancelling ends it; the subscription may then be somewhere else, and no transaction takes
        its positions any more.

        Raises:
            LiftbridgeError: a server did not accept; the subscription has ended.
        """
        if subscription.state is SubscriptionState.ENDED:
            return
        starts: dict[int, StartAt] = {}
        for place, partition in self._partitions.items():
            partition.remember_start()
            committed = self.checkpoints.positions.get(place)
            if committed is None and not partition.reader.current.decoder.delivered:
                continue
            if committed is None:
                starts[place[1]] = partition.start
            elif committed != partition.position:
                starts[place[1]] = StartAt.offset(committed.offset)
                self._rewinding[place] = committed
        if not starts:
            return
        self._lost = True
        if isinstance(subscription, MergedSubscription):
            await subscription.seek(starts)
        else:
            [start] = starts.values()
            await subscription.seek(start)
        self._lost = False

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
            text = "another subscription reads this partition for the same producer"
            raise UsageError(text, stream=plan.stream, partition=plan.partition)
        info = await self._metadata.stream(plan.stream, timeout)
        partition = self._partitions[place] = _Partition(reader, info.creation_timestamp)
        stored = self.checkpoints.positions.get(place)
        if stored is None or reader.sought:
            return
        state = await self._metadata.partition(plan.stream, plan.partition, timeout)
        if stored.created != info.creation_timestamp or stored.offset > state.newest_offset + 1:
            text = (
                f"transactions of the producer have read up to offset {stored.offset}, and the log"
                f" ends at {state.newest_offset}: it was truncated or created again"
            )
            raise StreamReset(
                text, stream=plan.stream, partition=plan.partition, offset=stored.offset
            )
        reader.begin_at(stored.offset, partition.plan_at(plan, stored))

    async def begin(self) -> None:
        """Do nothing: transactions store the positions."""

    async def target(self, plan: ReadingPlan) -> ReadingPlan:
        """Return the plan of a seek: to any position, or to the one that was committed last."""
        place = plan.stream, plan.partition
        partition, position = self._partitions.get(place), self._rewinding.pop(place, None)
        if partition is None:
            return plan
        if position is not None:
            return replace(partition.plan_at(plan, position), start_found=True)
        partition.resumed = None
        return replace(plan, make_visibility=partition.make_visibility)

    def sought(self, stream: str, partition: int) -> None:
        """Do nothing: any position may be committed."""

    async def commit(self) -> None:
        """Refuse to store positions without a transaction.

        Raises:
            UsageError: always.
        """
        text = "positions=producer are stored by transactions: producer.transaction(subscription)"
        raise UsageError(text)

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


def positions_of(subscription: Readable, checkpoints: Checkpoints | None) -> SubscriptionPositions:
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
        text = (
            "a transaction commits the positions of subscriptions of its own producer: subscribe"
            " with positions= of that producer"
        )
        raise UsageError(text, stream=subscription.stream)
    found.check()
    return found


def _resumed(make: MakeVisibility, position: ReadPosition) -> MakeVisibility:
    return lambda: _Resumed(make(), position)


class _Resumed:
    """Leaves out the messages at the start that were read before."""

    def __init__(self, visibility: Visibility, position: ReadPosition) -> None:
        self._visibility = visibility
        self._position = position.offset
        self._left = position.rows
        self.mark = visibility.mark

    def feed(self, message: Message, size: int) -> Iterator[Shown | Replay]:
        """Take the next message; yield what it shows."""
        for step in self._visibility.feed(message, size):
            if not self._left:
                yield step
            elif isinstance(step, tuple):
                yield from self.unread([step])
            else:
                yield _ResumedReplay(step, self)

    def unread(self, shown: Iterable[Shown]) -> Iterator[Shown]:
        """Yield what was not read before."""
        for position, message in shown:
            if self._left and position == self._position:
                self._left -= 1
            else:
                yield position, message


class _ResumedReplay:
    """A part of the log of which something was read before."""

    def __init__(self, replay: Replay, resumed: _Resumed) -> None:
        self._replay = replay
        self._resumed = resumed
        self.begin = replay.begin
        self.end = replay.end
        self.feed = replay.feed

    def shown(self) -> list[Shown]:
        """Return what is shown."""
        return list(self._resumed.unread(self._replay.shown()))
