"""A reader that can seek: a new one replaces the current one, and the counters continue."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from liftbridge_aio._core.arguments import about, check_type
from liftbridge_aio.errors import UsageError
from liftbridge_aio.model import StartAt, StartPosition, StopAt, StopPosition
from liftbridge_aio.net.network import Network

from .core.memory_budget import MemoryBudget
from .core.plan import ReadingPlan
from .log_start import count_ahead
from .partition_reader import PartitionReader


class ReadStatistics(NamedTuple):
    """Counters of one subscription."""

    delivered: int
    """Messages delivered to the program."""
    buffered: int
    """Messages received and not delivered yet; repeats among them are found when they are read."""
    buffered_bytes: int
    """Approximate memory of these, in bytes."""
    resubscriptions: int
    """Number of times it was resumed after its connection or call broke."""
    dropped: int
    """Messages below the start, and repeats, that were not delivered."""
    missed: int
    """Offsets that were removed from the log before they were read; see `MessagesMissed`."""


def start_at(to: int | StartAt, stream: str, partition: int | None = None) -> StartAt:
    """Return the target of a seek as a `StartAt`; a number is an offset.

    Raises:
        InvalidRequest: it is neither.
    """
    with about(stream, partition):
        check_type(to, (int, StartAt), "seek() takes an offset or a StartAt")
        return to if isinstance(to, StartAt) else StartAt.offset(to)


class SeekableReader:
    """Reads one partition, with one `PartitionReader` after the other."""

    def __init__(self, plan: ReadingPlan, network: Network, budget: MemoryBudget) -> None:
        self._network = network
        self._budget = budget
        self._earlier = ReadStatistics(0, 0, 0, 0, 0, 0)
        self.sought = False
        """True once `seek` was called."""
        self._finished_count: int | None = None
        self.current = PartitionReader(plan, network, budget)
        """The current reader; another one after a seek."""

    @property
    def plan(self) -> ReadingPlan:
        """The plan of the current reader."""
        return self.current.plan

    # Positions

    @property
    def position(self) -> int | None:
        """The offset to be delivered next; see `Subscription.position`."""
        return self.current.next_offset

    def mark_finished(self) -> None:
        """Count everything that was delivered as finished."""
        self._finished_count = self.current.decoder.delivered

    @property
    def finished(self) -> int | None:
        """The last finished offset; before the first, see `finished_at`."""
        decoder = self.current.decoder
        all_finished = decoder.delivered == self._finished_count
        return self.finished_at(decoder.last_delivered if all_finished else decoder.finished)

    def finished_at(self, offset: int | None) -> int | None:
        """Return `offset` or, if it is None, the one below the start.

        None if the user gave the start as an offset: the next reader will be given it as well.
        """
        if offset is not None:
            return offset
        told = self.plan.start.position is StartPosition.OFFSET and not self.sought
        start = self.current.start_offset
        return start - 1 if start and not told else None

    async def lag(self, timeout: float) -> int:
        """Return how many offsets are left up to the end; see `Subscription.lag`."""
        plan = self.plan
        if plan.reverse:
            raise UsageError(
                "a reverse subscription has no lag", stream=plan.stream, partition=plan.partition
            )
        received = self.current.decoder.last_offset
        where = (plan.stream, plan.partition, self.position, received)
        return await count_ahead(self._network, *where, timeout)

    # Seeking

    def begin_at(self, start: StartAt, created: int = 0) -> None:
        """Set the start to one that was looked up; only before it has begun.

        Args:
            start: where to begin.
            created: the creation time of the stream that the start is for; 0: any.
        """
        plan = replace(self.plan, start=start, start_found=True, created=created)
        self.current = PartitionReader(plan, self._network, self._budget)

    def plan_from(self, start: StartAt) -> ReadingPlan:
        """Return the plan with another start; a stop at "latest" keeps the offset that it had.

        Raises:
            InvalidRequest: the start does not go with the rest of the plan.
        """
        plan, end = self.plan, self.current.position.stop_offset
        if plan.stop is not None and plan.stop.position is StopPosition.LATEST and end is not None:
            plan = replace(plan, stop=StopAt.offset(end)) if end >= 0 else plan
        return replace(plan, start=start, start_found=False)

    def seek(self, plan: ReadingPlan) -> PartitionReader:
        """Replace the current reader by one that has not begun.

        Returns:
            The reader before, to be dropped by the caller.
        """
        before, self._earlier = self.current, self.statistics()
        self.current = PartitionReader(plan, self._network, self._budget)
        self.sought, self._finished_count = True, None
        return before

    # Statistics

    def statistics(self) -> ReadStatistics:
        """Return the counters, those of earlier readers included."""
        reader, earlier = self.current, self._earlier
        decoder = reader.decoder
        return ReadStatistics(
            earlier.delivered + decoder.delivered,
            decoder.buffered,
            decoder.buffered_bytes,
            earlier.resubscriptions + reader.resubscriptions,
            earlier.dropped + decoder.dropped,
            earlier.missed + reader.missed.count,
        )
