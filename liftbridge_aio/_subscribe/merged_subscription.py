"""Subscription to several partitions, read as one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self, TypeVar

from liftbridge_aio._core.arguments import about, partition_numbers
from liftbridge_aio._core.public_face import as_one_class
from liftbridge_aio._runtime.bounded_gather import bounded_gather
from liftbridge_aio.errors import ClientClosed, InvalidRequest, LiftbridgeError, UsageError
from liftbridge_aio.model import EndReason, Message, StartAt
from liftbridge_aio.options import Duration, timer_seconds
from liftbridge_aio.wire.raw_message import RawMessage

from .merge import Merge
from .partition_reader import PartitionReader
from .seekable_reader import ReadStatistics, SeekableReader, start_at
from .subscription_base import SubscriptionBase, SubscriptionState

if TYPE_CHECKING:
    from liftbridge_aio.net.network import Network

    from .core.checkpoint import Checkpoint
    from .core.memory_budget import MemoryBudget
    from .core.plan import MergedPlan, ReadingPlan
    from .position_store import PositionStore

T = TypeVar("T")


class _Ends:
    """Ends of partitions; separate, so that readers hold no reference to the subscription."""

    def __init__(self) -> None:
        self.reasons: dict[int, EndReason] = {}
        self.errors: dict[int, LiftbridgeError] = {}

    def ended(self, reader: PartitionReader) -> None:
        """Note how a reader ended; raise its error, if it has one."""
        partition, buffer = reader.plan.partition, reader.buffer
        error = buffer.take_error()
        if error is not None:
            self.errors[partition] = error
            raise error
        if buffer.reason is not None:
            self.reasons[partition] = buffer.reason


@as_one_class
class MergedSubscription(SubscriptionBase):
    """Several partitions of a stream read as one; each resubscribes after breaks.

    Iterate it, inside `async with` or without, as a `Subscription`. All starts are fixed before
    the first message is delivered. The order of each partition is kept; between partitions there
    is none, but each gets its turn. One task may read at a time.

    An error of one partition is raised once, and names the partition; the others can be read on,
    and `seek` starts that one again. Entering raises the first one, and the block does not begin;
    to read the others if a partition may be paused, iterate without `async with`, or resume it
    (`unpause=True`). The iteration ends when all partitions have ended.

    Make one with `Client.subscribe`.
    """

    def __init__(
        self,
        plan: MergedPlan,
        network: Network,
        budget: MemoryBudget,
        close_timeout: float,
        durable: PositionStore | None = None,
    ) -> None:
        super().__init__(close_timeout, durable)
        self.stream = plan.stream
        self._where = plan.stream, None
        self._plan = plan
        self._network = network
        self._budget = budget
        self._ends = _Ends()
        self._merge = Merge(self._ends.ended, network.reporter.delivered, ends_with_last=True)
        self._seekables: dict[int, SeekableReader] = {}
        self._paused: set[int] = set()
        if plan.partitions is not None:
            self._make_seekables(plan.partitions)

    def __repr__(self) -> str:
        """Show the partitions, the state and how much is buffered."""
        partitions = ",".join(map(str, self._seekables)) or "all"
        buffered = sum(seekable.current.decoder.buffered for seekable in self._seekables.values())
        return (
            f"<MergedSubscription {self.stream}/{partitions} {self._state.value}"
            f" buffered={buffered}>"
        )

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions that are read; empty before all of a stream are known: on entering."""
        return tuple(self._seekables)

    @property
    def positions(self) -> dict[int, int | None]:
        """The offset to be delivered next, by partition; see `Subscription.position`."""
        return {partition: seekable.position for partition, seekable in self._seekables.items()}

    @property
    def end_reasons(self) -> dict[int, EndReason]:
        """Reasons of the orderly ends of partitions, once they were read to the end or closed."""
        return dict(self._ends.reasons)

    @property
    def errors(self) -> dict[int, LiftbridgeError]:
        """The errors of partitions, once they were raised."""
        return dict(self._ends.errors)

    async def lag(self, *, timeout: Duration | None = None) -> dict[int, int]:
        """Ask the leaders how far behind the end each partition is; see `Subscription.lag`.

        Cancelling abandons the calls.

        Args:
            timeout: seconds for each answer; None: as for the first handshake.

        Raises:
            UsageError: it reads in reverse, or its partitions are not known yet.
            StreamNotFound: the stream is gone.
            LiftbridgeError: a leader could not be reached in time.
        """
        self._chosen(None)
        limit = self._plan.timeout if timeout is None else timer_seconds(timeout, "timeout")
        lags = await bounded_gather(self._seekables.values(), lambda seekable: seekable.lag(limit))
        return dict(zip(self._seekables, lags, strict=True))

    def checkpoint(self) -> dict[int, Checkpoint]:
        """Return a start for each partition; see `Subscription.checkpoint`.

        Raises:
            UsageError: it reads in reverse.
        """
        return {
            partition: seekable.current.checkpoint()
            for partition, seekable in self._seekables.items()
        }

    def statistics(self) -> ReadStatistics:
        """Return the counters of all partitions together."""
        each = [seekable.statistics() for seekable in self._seekables.values()]
        if not each:
            return ReadStatistics(0, 0, 0, 0, 0, 0)
        return ReadStatistics(*map(sum, zip(*each, strict=True)))

    # Reading

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message of any partition; wait for it if none is buffered.

        Cancelling loses no message: the next call returns it.

        Raises:
            StopAsyncIteration: all partitions have ended; `end_reasons` says how.
            ConcurrentRead: another task is waiting already.
            LiftbridgeError: a partition ended otherwise. Each error is raised once.
        """
        ready = self._merge.ready
        return ready.popleft() if ready else await self._next()

    async def _next(self) -> Message:
        if self._state is SubscriptionState.NEW:
            await self._begin()
        try:
            return await self._merge.take_next()
        except StopAsyncIteration:
            self._state = SubscriptionState.ENDED
            raise

    async def _take(self, most: int, wait: float) -> list[Message]:
        return await self._list(lambda: self._merge.take(most, wait))

    async def _take_as(
        self, most: int, wait: float, convert: Callable[[Message], T | None]
    ) -> list[T]:
        return await self._list(lambda: self._merge.take_as(most, wait, convert))

    async def _take_raw(self, most: int, wait: float) -> list[RawMessage]:
        return await self._list(lambda: self._merge.take_raw(most, wait))

    async def _list(self, take: Callable[[], Awaitable[list[T]]]) -> list[T]:
        if self._state is SubscriptionState.NEW:
            await self._begin()
        try:
            return await take()
        except StopAsyncIteration:
            self._state = SubscriptionState.ENDED
            raise

    # Seeking and pausing

    async def seek(self, to: int | StartAt | Mapping[int, int | StartAt]) -> None:
        """Continue reading at other positions; see `Subscription.seek`.

        A partition that has ended, in whatever way, is read again. Cancelling abandons the wait;
        the seeks take effect all the same.

        Args:
            to: any start, for all partitions; or a mapping with an offset or start for each that is
                to move. An offset for all needs partitions that were named when subscribing.

        Raises:
            UsageError: the subscription has ended, or its partitions are not known yet.
            InvalidRequest: that is no start, is behind the stop or, with a cursor, behind the end
                of the log; or names a partition that is not read.
            LiftbridgeError: a partition was not accepted; the others go on.
        """
        self._check_not_ended()
        chosen = self._chosen(to.keys() if isinstance(to, Mapping) else None)
        if isinstance(to, Mapping):
            targets = to
        else:
            at = start_at(to, self.stream)
            self._plan.check_one_place(at, chosen)
            targets = dict.fromkeys(chosen, at)
        plans = {
            partition: self._seekables[partition].plan_from(
                start_at(target, self.stream, partition)
            )
            for partition, target in targets.items()
        }
        if self._durable is not None:
            await bounded_gather(plans.values(), self._durable.check_target)
            self._check_not_ended()
        moved = self._move(plans)
        if self._state is SubscriptionState.READING:
            await self._accepted(moved)

    def move(self, starts: Mapping[int, StartAt]) -> None:
        """Continue reading at other positions, see `SubscriptionBase.move`."""
        self._move(
            {
                partition: self._seekables[partition].plan_from(starts[partition])
                for partition in partition_numbers(list(starts))
            }
        )

    def _move(self, plans: Mapping[int, ReadingPlan]) -> list[PartitionReader]:
        before = [self._seekables[partition].seek(plan) for partition, plan in plans.items()]
        for reader in before:
            self._merge.remove(reader)
            reader.drop()
        for partition in plans:
            if self._durable is not None:
                self._durable.sought(self.stream, partition)
            self._ends.reasons.pop(partition, None)
            self._ends.errors.pop(partition, None)
        readers = [self._seekables[partition].current for partition in plans]
        if self._state is SubscriptionState.READING:
            self._read(readers)
        return readers

    def pause(self, partitions: Iterable[int] | None = None) -> None:
        """Deliver nothing of partitions until `resume`, not even their ends.

        Messages are received until buffers are full, which stops the server. A task that waits for
        a message gets those of other partitions.

        Args:
            partitions: which; None: all that are read.

        Raises:
            UsageError: the partitions are not known yet.
            InvalidRequest: one of them is not read.
        """
        chosen = self._chosen(partitions)
        self._paused |= chosen
        self._merge.hold(self._seekables[partition].current for partition in chosen)

    def resume(self, partitions: Iterable[int] | None = None) -> None:
        """Deliver messages again. Does nothing if nothing is paused.

        Args:
            partitions: which; None: all that are read.

        Raises:
            UsageError: the partitions are not known yet.
            InvalidRequest: one of them is not read.
        """
        chosen = self._chosen(partitions)
        self._paused -= chosen
        self._merge.release(self._seekables[partition].current for partition in chosen)

    @property
    def paused(self) -> frozenset[int]:
        """The partitions that are paused."""
        return frozenset(self._paused)

    def _chosen(self, partitions: Iterable[int] | None) -> set[int]:
        if not self._seekables:
            raise self._wrong_time(
                "the partitions are known once the subscription was entered; enter it first"
            )
        if partitions is None:
            return set(self._seekables)
        with about(self.stream):
            chosen = set(partition_numbers(partitions))
        unknown = chosen - self._seekables.keys()
        if unknown:
            raise InvalidRequest(
                f"partitions {sorted(unknown)} are not read by this subscription",
                stream=self.stream,
            )
        return chosen

    # Beginning and end

    def _readers(self) -> list[PartitionReader]:
        return [seekable.current for seekable in self._seekables.values()]

    def _make_seekables(self, partitions: Sequence[int]) -> None:
        self._seekables = {
            plan.partition: SeekableReader(plan, self._network, self._budget)
            for plan in self._plan.for_partitions(partitions)
        }

    async def _begin(self) -> None:
        if self._durable is not None and not self._entered:
            raise self._outside()
        if not self._seekables:
            try:
                info = await self._network.metadata.stream(
                    self.stream, self._plan.timeout, renew=True
                )
            except ClientClosed:
                raise  # it has not begun, and each further step fails, too
            except LiftbridgeError:
                self._drop()
                raise
            if not self._seekables:  # another task may have begun it meanwhile
                self._make_seekables(sorted(info.partitions))
        seekables = list(self._seekables.values())
        if self._durable is not None:
            merge = self._merge
            await self._durable.set_starts(
                [(seekable, _finished_by(merge, seekable)) for seekable in seekables],
                self._plan.timeout,
            )
        self._check_not_closed()
        if self._state is SubscriptionState.READING:
            return  # another task has begun it meanwhile
        self._state = SubscriptionState.READING
        readers = [seekable.current for seekable in seekables]
        try:
            self._read(readers)
        except ClientClosed:
            self._state = SubscriptionState.NEW  # as above
            raise
        await self._accepted(readers)

    def _read(self, readers: Sequence[PartitionReader]) -> None:
        """Begin to read.

        Raises:
            ClientClosed: the client is not running.
        """
        try:
            for reader in readers:
                reader.begin()
        except LiftbridgeError:
            self._drop()
            raise
        for reader in readers:
            self._merge.add(reader)
            if reader.plan.partition in self._paused:
                self._merge.hold([reader])

    async def _accepted(self, readers: Sequence[PartitionReader]) -> None:
        """Wait until the server has accepted.

        Raises:
            LiftbridgeError: one of them ended with this error.
        """
        for reader in readers:
            await asyncio.shield(reader.started)
        for reader in readers:
            if reader.buffer.over and not reader.decoder.buffered:
                error = reader.buffer.take_error()
                if error is not None:
                    self._ends.errors[reader.plan.partition] = error
                    raise error

    def _close_merge(self) -> None:
        for reader in tuple(self._merge.readers):
            self._merge.remove(reader)
            if reader.buffer.reason is not None:
                self._ends.reasons[reader.plan.partition] = reader.buffer.reason
        self._merge.finish()

    def _mark_finished(self) -> None:
        self._merge.put_down()

    def _wake(self) -> None:
        if self._state is SubscriptionState.ENDED:
            self._close_merge()
        self._merge.wake()

    def _wrong_time(self, text: str) -> UsageError:
        return UsageError(text, stream=self.stream)


def _finished_by(merge: Merge, seekable: SeekableReader) -> Callable[[], int | None]:
    return lambda: seekable.finished_at(merge.finished(seekable.current))
