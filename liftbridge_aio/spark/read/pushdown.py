"""Push filters of a batch query down: those on topic, partition, offset and timestamp.

They narrow what is read; Spark still applies them to each row. Spark refuses any reader that takes
filters unless `spark.sql.python.filterPushdown.enabled` is set, so this one is used only if the
option `pushdownFilters` is set.
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

from liftbridge_aio._core.arguments import INT64_MAX
from liftbridge_aio.model import StreamPartition, ns_from_datetime
from liftbridge_aio.spark.core.offsets import OffsetRange
from liftbridge_aio.spark.core.options import ReadOptions

from .batch_planning import offsets_from_times
from .driver import run_with_retry
from .readers import BatchReader

_NS_PER_US: Final = 1000


@dataclass(frozen=True, slots=True)
class Interval:
    """Whole numbers from `low` to `high`, exclusive."""

    low: int = 0
    high: int = INT64_MAX

    def __contains__(self, number: int) -> bool:
        return self.low <= number < self.high

    def narrowed(self, other: Interval) -> Interval:
        """Return the numbers in both."""
        return Interval(max(self.low, other.low), min(self.high, other.high))


EVERYTHING: Final = Interval()


@dataclass(frozen=True, slots=True)
class FilterBounds:
    """The rows that filters let through, as bounds on columns."""

    topics: frozenset[str] | None = None
    """None: all."""
    partition: Interval = EVERYTHING
    offset: Interval = EVERYTHING
    microseconds: Interval = EVERYTHING
    """Timestamps since 1970, with the precision of Spark."""

    def narrowed(self, one: Filter) -> FilterBounds:
        """Return bounds with a further filter; unchanged if it cannot be expressed as bounds."""
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

    def without_ends(self) -> FilterBounds:
        """Return bounds for ranges of acks, which stand behind the rows that they show."""
        return replace(
            self,
            offset=Interval(self.offset.low),
            microseconds=Interval(self.microseconds.low),
        )

    def clip(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Return the parts of ranges within the bounds, except those on time."""
        return [
            narrower
            for one in ranges
            if (self.topics is None or one.stream in self.topics)
            and one.partition in self.partition
            and (narrower := clip(one, self.offset.low, self.offset.high)).count > 0
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


def clip(one: OffsetRange, low: int, high: int) -> OffsetRange:
    """Return the part of a range from `low` to `high`, exclusive."""
    return replace(one, start=max(one.start, low), end=min(one.end, high))


def _number(column: str, value: object) -> int | None:
    """Return the value of a filter as a number; None if it cannot be compared."""
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
    """Reads the rows of a batch query that its filters let through."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._bounds = FilterBounds()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Store the filters, and return them all, so that Spark applies them too."""
        for one in filters:
            self._bounds = self._bounds.narrowed(one)
        return filters

    def wanted(self, ranges: Sequence[OffsetRange]) -> Sequence[OffsetRange]:
        """Return the parts of the planned ranges within the filters."""
        bounds = self._bounds
        if self._options.committed:
            bounds = bounds.without_ends()
        left, times = bounds.clip(ranges), bounds.microseconds
        if times == EVERYTHING or not left:
            return left
        low = self._offsets_at(left, times.low)
        high = self._offsets_at(left, times.high)
        narrower = [clip(one, low[one.place], high[one.place]) for one in left]
        return [one for one in narrower if one.count > 0]

    def _offsets_at(
        self, ranges: Sequence[OffsetRange], microseconds: int
    ) -> dict[StreamPartition, int]:
        if microseconds in {EVERYTHING.low, EVERYTHING.high}:
            return {one.place: one.start if microseconds == 0 else one.end for one in ranges}
        timestamp = min(max(microseconds * _NS_PER_US, 0), INT64_MAX)
        timestamps = {one.place: timestamp for one in ranges}
        return run_with_retry(self._options, lambda client: offsets_from_times(client, timestamps))
