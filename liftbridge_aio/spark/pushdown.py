"""Filters of a batch query that spare reading: on topic, partition, offset and timestamp.

They narrow what is read; Spark looks at each row once more. Spark refuses any reader that takes
filters unless `spark.sql.python.filterPushdown.enabled` is set, so this one is made only where the
option `pushdownFilters` asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from liftbridge_aio.arguments import INT64_MAX
from liftbridge_aio.model import ns_from_datetime

from .batch_planning import offsets_from_times
from .driver import ask
from .offsets import OffsetRange, StreamPartition
from .options import ReadOptions
from .source import BatchReader

_NS_PER_US: Final = 1000


@dataclass(frozen=True, slots=True)
class Interval:
    """Whole numbers from `low` up to but without `high`."""

    low: int = 0
    high: int = INT64_MAX

    def __contains__(self, number: int) -> bool:
        return self.low <= number < self.high

    def narrowed(self, other: Interval) -> Interval:
        """Return what both have in common."""
        return Interval(max(self.low, other.low), min(self.high, other.high))


EVERYTHING: Final = Interval()


@dataclass(frozen=True, slots=True)
class Window:
    """What filters leave to be read."""

    topics: frozenset[str] | None = None
    """None: all."""
    partition: Interval = EVERYTHING
    offset: Interval = EVERYTHING
    microseconds: Interval = EVERYTHING
    """Times of messages since 1970, as precise as Spark has them."""

    def narrowed(self, one: Filter) -> Window:
        """Return what a further filter leaves; all of it where the filter is on something else."""
        if not isinstance(one, _ON_VALUES) or len(one.attribute) != 1:
            return self
        [column], values = one.attribute, one.value if isinstance(one, In) else (one.value,)
        if column == "topic":
            if not isinstance(one, EqualTo | EqualNullSafe | In):
                return self
            topics = frozenset(values)
            return replace(self, topics=topics if self.topics is None else self.topics & topics)
        if column not in {"partition", "offset", "timestamp"}:
            return self
        numbers = [_number(column, value) for value in values]
        known = [number for number in numbers if number is not None]
        if not known or len(known) < len(numbers):
            return self
        interval = _interval(one, min(known), max(known))
        if column == "partition":
            return replace(self, partition=self.partition.narrowed(interval))
        if column == "offset":
            return replace(self, offset=self.offset.narrowed(interval))
        return replace(self, microseconds=self.microseconds.narrowed(interval))

    def of(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Return what is left of ranges, times apart."""
        return [
            narrower
            for one in ranges
            if (self.topics is None or one.stream in self.topics)
            and one.partition in self.partition
            and (narrower := between(one, self.offset.low, self.offset.high)).count > 0
        ]


_ON_VALUES: Final = (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)


def between(one: OffsetRange, low: int, high: int) -> OffsetRange:
    """Return the part of a range that lies from `low` up to but without `high`."""
    return replace(one, start=max(one.start, low), end=min(one.end, high))


def _number(column: str, value: object) -> int | None:
    """Turn the value of a filter into a number; None where it is nothing that can be compared."""
    if column != "timestamp":
        return value if type(value) is int else None
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return ns_from_datetime(value) // _NS_PER_US


def _interval(one: Filter, low: int, high: int) -> Interval:
    match one:
        case GreaterThan():
            return Interval(low=low + 1)
        case GreaterThanOrEqual():
            return Interval(low=low)
        case LessThan():
            return Interval(high=high)
        case LessThanOrEqual():
            return Interval(high=high + 1)
        case _:
            return Interval(low, high + 1)


class PushdownReader(BatchReader):
    """Reads what a batch query asks for, less what its filters rule out."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._window = Window()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take note of the filters, and leave all of them to Spark as well."""
        for one in filters:
            self._window = self._window.narrowed(one)
        return filters

    def wanted(self, ranges: Sequence[OffsetRange]) -> Sequence[OffsetRange]:
        """Choose what the filters leave of the ranges that there are."""
        left, times = self._window.of(ranges), self._window.microseconds
        if times == EVERYTHING or not left:
            return left
        low = self._offsets_at(left, times.low)
        high = self._offsets_at(left, times.high)
        narrower = [between(one, low[one.place], high[one.place]) for one in left]
        return [one for one in narrower if one.count > 0]

    def _offsets_at(
        self, ranges: Sequence[OffsetRange], microseconds: int
    ) -> dict[StreamPartition, int]:
        if microseconds in {EVERYTHING.low, EVERYTHING.high}:
            return {one.place: one.start if microseconds == 0 else one.end for one in ranges}
        timestamp = min(max(microseconds * _NS_PER_US, 0), INT64_MAX)
        timestamps = {one.place: timestamp for one in ranges}
        return ask(self._options, lambda client: offsets_from_times(client, timestamps))
