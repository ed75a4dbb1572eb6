"""Requests to read one partition or several, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Sized
from dataclasses import dataclass, replace

from liftbridge_aio._core.arguments import (
    INT32_MAX,
    about,
    check_flags,
    check_text,
    check_type,
    check_whole_number,
    partition_numbers,
    several,
)
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.model import StartAt, StartPosition, StopAt, StopPosition
from liftbridge_aio.options import Duration, seconds

from .checkpoint import Checkpoint
from .visibility import MakeVisibility


class ConsumerIdentity:
    """The identity with which a member of a consumer group subscribes.

    The epoch is read at each subscribe: a subscription that lasts over several epochs is resumed
    with the newest one that the member knows.
    """

    __slots__ = ("consumer", "epoch", "group")

    def __init__(self, group: str, consumer: str, epoch: int) -> None:
        self.group = group
        self.consumer = consumer
        self.epoch = epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingPlan:
    """The arguments of a subscription, defaults filled in."""

    stream: str
    partition: int
    start: StartAt
    stop: StopAt | None
    resubscribe_timeout: Duration | None
    """Seconds to retry after a break; None: without limit."""
    unpause: bool
    from_isr_replica: bool
    reverse: bool
    timeout: float
    """Seconds until the server has accepted the first time."""
    now: int
    """The time of the call, in Unix nanoseconds."""
    start_found: bool = False
    """True if the client looked the start up; it may be behind the stop, if all was read."""
    consumer: ConsumerIdentity | None = None
    """The member of a consumer group that reads; it ends with `PartitionTaken` when another member
    takes the partition."""
    created: int = 0
    """The creation timestamp of the stream, if it must be that one; 0 if it may be any."""
    make_visibility: MakeVisibility | None = None
    """Makes what decides about the messages of a committed reading; None shows all of them."""

    def __post_init__(self) -> None:
        """Refuse invalid plans.

        Raises:
            InvalidRequest: the plan makes no sense.
        """
        with about(self.stream, self.partition):
            check_text(self.stream, "a stream name")
            check_whole_number(self.partition, "a partition", 0, INT32_MAX)
            check_type(self.start, StartAt, "start is a StartAt, such as StartAt.earliest()")
            check_type(
                self.stop,
                (StopAt, type(None)),
                "stop is a StopAt, such as StopAt.latest(), or None",
            )
            check_flags(
                unpause=self.unpause, from_isr_replica=self.from_isr_replica, reverse=self.reverse
            )
            if self.resubscribe_timeout is not None:
                seconds(self.resubscribe_timeout, "resubscribe_timeout")
        problem = self._problem()
        if problem is not None:
            raise InvalidRequest(problem, stream=self.stream, partition=self.partition)

    def _problem(self) -> str | None:
        if not self.stream:
            return "a stream name must not be empty"
        if self.consumer is not None and self.from_isr_replica:
            return "members of a consumer group read from the leader"
        problem = self._checkpoint_problem()
        if problem is None and self.reverse:
            problem = self._reverse_problem()
        if problem is not None:
            return problem
        stop = self.stop
        if stop is None:
            return None
        if stop.position is StopPosition.TIMESTAMP and stop.value > self.now:
            return "a stop time must lie in the past"
        by_offset = StopPosition.OFFSET, StartPosition.OFFSET
        if (stop.position, self.start.position) == by_offset and not self.start_found:
            first, last = self.start.value, stop.value
            if self.reverse:
                first, last = last, first
            if first > last:
                return f"the stop offset {stop.value} lies before the start {self.start.value}"
        return None

    def _checkpoint_problem(self) -> str | None:
        start = self.start
        if not isinstance(start, Checkpoint):
            return None
        if (start.stream, start.partition) != (self.stream, self.partition):
            return f"the checkpoint is one of {start.stream}/{start.partition}"
        if start.producers is not None and self.make_visibility is None:
            return "the checkpoint is one of a committed reading, so read committed from it"
        if self.reverse:
            return "a reverse subscription cannot start at a checkpoint"
        return None

    def _reverse_problem(self) -> str | None:
        if self.make_visibility is not None:
            return "a committed reading goes forward: an ack comes behind what it commits"
        if self.start.position is StartPosition.TIMESTAMP:
            return "a reverse reading cannot start by time; start at an offset or at latest()"
        if self.stop is not None and self.stop.position is StopPosition.LATEST:
            return "a reverse reading begins at the latest message, so it cannot stop there"
        return None


class MergedPlan:
    """The plan of each partition.

    Args:
        each: the plan that they share; its partition and start are the first one's.
        partition: which partitions; None: all of the stream.
        start: where to begin: one for all, or one for each by its number.

    Raises:
        InvalidRequest: the partitions make no sense, or have no start.
    """

    def __init__(
        self,
        each: ReadingPlan,
        partition: Collection[int] | None,
        start: StartAt | Mapping[int, StartAt],
    ) -> None:
        self._each = each
        self._start = start
        self.partitions: tuple[int, ...] | None = None
        """Partitions to read; None: all of the stream."""
        # Invalid starts are refused now, not only when the partitions are known.
        with about(each.stream):
            if isinstance(start, Mapping):
                partition_numbers(start.keys())
            if partition is not None:
                self.partitions = tuple(partition_numbers(partition))
                self._check(self.partitions)
        starts = start if isinstance(start, Mapping) else {each.partition: start}
        for number, one in starts.items():
            replace(each, partition=number, start=one)

    @property
    def stream(self) -> str:
        """The stream that is read."""
        return self._each.stream

    @property
    def timeout(self) -> float:
        """Seconds until the server has accepted the first time."""
        return self._each.timeout

    def _check(self, partitions: Sequence[int]) -> None:
        if not partitions:
            raise InvalidRequest("name at least one partition; None reads all")
        if len(set(partitions)) < len(partitions):
            raise InvalidRequest("a partition is read once; name each of them once")
        for partition in partitions:
            self._start_of(partition)

    def _start_of(self, partition: int) -> StartAt:
        start = self._start
        if not isinstance(start, Mapping):
            return start
        if partition not in start:
            raise InvalidRequest(
                "starts are given by partition, but none for this one",
                stream=self.stream,
                partition=partition,
            )
        return start[partition]

    def for_partitions(self, partitions: Sequence[int]) -> list[ReadingPlan]:
        """Return the plan of each partition.

        Raises:
            InvalidRequest: one of them has no start; or the start or the stop is an offset, and
                does not say of which of them.
        """
        for place in (self._start, self._each.stop):
            if not isinstance(place, Mapping):
                self.check_one_place(place, partitions)
        return [
            replace(self._each, partition=partition, start=self._start_of(partition))
            for partition in partitions
        ]

    def check_one_place(self, place: StartAt | StopAt | None, partitions: Sized) -> None:
        """Refuse an offset as a place in all of several partitions: each has its own offsets.

        Raises:
            InvalidRequest: it is one, and the partitions were not named.
        """
        by_offset = StartPosition.OFFSET, StopPosition.OFFSET
        if place is None or self.partitions is not None or len(partitions) < 2:
            return
        if place.position in by_offset and not isinstance(place, Checkpoint):
            raise InvalidRequest(
                f"offset {place.value} is a place in one partition, and the stream has"
                f" {len(partitions)}: name it with partition=, or give each its start",
                stream=self.stream,
            )


def kind_of_partitions(partition: object) -> None:
    """Refuse what is no argument for partitions.

    Raises:
        WrongType: it is neither a number, nor several, nor None.
    """
    if partition is not None and not isinstance(partition, int):
        text = "a partition is a whole number, a collection of them, or None for all"
        check_type(partition, Collection, text)
        several(partition, text)
