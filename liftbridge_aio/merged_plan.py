"""What a user asked to read of several partitions, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from .arguments import INT32_MAX, about, check_type, check_whole_number
from .errors import InvalidRequest
from .model import AllPartitions, StartAt
from .reading_plan import ReadingPlan


class MergedPlan:
    """A reading plan for each partition.

    Args:
        each: the plan that they share; its partition and start are the first one's.
        partition: which partitions.
        start: where to begin, the same for all or for each of them.

    Raises:
        InvalidRequest: the partitions make no sense, or have no start.
    """

    def __init__(
        self,
        each: ReadingPlan,
        partition: AllPartitions | Collection[int],
        start: StartAt | Mapping[int, StartAt],
    ) -> None:
        self._each = each
        self._start = start
        self.partitions: tuple[int, ...] | None = None
        """Which partitions; None: all that there are."""
        if not isinstance(partition, AllPartitions):
            self.partitions = tuple(partition)
            self._check(self.partitions)
        # What makes no sense is refused now, and not when the partitions are known.
        starts = start.values() if isinstance(start, Mapping) else [start]
        for one in starts:
            replace(each, start=one)

    @property
    def stream(self) -> str:
        """What is read."""
        return self._each.stream

    @property
    def timeout(self) -> float:
        """Seconds for the first handshake."""
        return self._each.timeout

    def _check(self, partitions: Sequence[int]) -> None:
        with about(self.stream):
            for partition in partitions:
                check_whole_number(partition, "a partition", 0, INT32_MAX)
            if not partitions:
                raise InvalidRequest("name at least one partition, or read ALL_PARTITIONS")
            if len(set(partitions)) < len(partitions):
                raise InvalidRequest("a partition is read once; name each of them once")
        for partition in partitions:
            self._start_of(partition)

    def _start_of(self, partition: int) -> StartAt:
        start = self._start
        if not isinstance(start, Mapping):
            return start
        if partition not in start:
            text = "starts were given by partition, but none for this one"
            raise InvalidRequest(text, stream=self.stream, partition=partition)
        return start[partition]

    def for_partitions(self, partitions: Sequence[int]) -> list[ReadingPlan]:
        """Make the plan of each partition.

        Raises:
            InvalidRequest: one of them has no start.
        """
        return [
            replace(self._each, partition=partition, start=self._start_of(partition))
            for partition in partitions
        ]


def kind_of_partitions(partition: object) -> None:
    """Refuse what says nothing about partitions.

    Raises:
        WrongType: it is neither a number, nor several, nor `ALL_PARTITIONS`.
    """
    text = "a partition is a whole number, a collection of them, or ALL_PARTITIONS"
    check_type(partition, (int, AllPartitions, Collection), text)
    if isinstance(partition, str | bytes):
        check_type(partition, int, text)
