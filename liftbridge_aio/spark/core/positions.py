"""Start and end of a read as given by options: earliest, latest, offsets or times. Pure."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from liftbridge_aio._core.arguments import INT64_MAX
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.model import StreamPartition, ns_from_datetime
from liftbridge_aio.spark.errors import InvalidOption

from .offsets import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    offsets_from_option,
    values_from_option,
)

_NS_PER_MS: Final = 10**6


class Edge(enum.Enum):
    """The beginning or the end of every partition."""

    EARLIEST = "earliest"
    """The oldest stored message."""
    LATEST = "latest"
    """After the newest committed message when the query starts."""


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition."""

    option: str
    """The option that gave them, for errors."""
    offsets: Mapping[StreamPartition, int]
    """From 0 up, or `LATEST_OFFSET` (-1) or `EARLIEST_OFFSET` (-2)."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message at or after one time, in every partition."""

    option: str
    """The option that gave them, for errors."""
    timestamp: int
    """Unix nanoseconds."""


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The first message at or after a time for each partition."""

    option: str
    """The option that gave them, for errors."""
    timestamps: Mapping[StreamPartition, int]
    """Unix nanoseconds."""


Position = Edge | AtOffsets | AtTime | AtTimes


class NoOffsetStrategy(enum.Enum):
    """The behaviour if no message of a partition is as new as the start time."""

    ERROR = "error"
    LATEST = "latest"


def read_position(option: str, text: str) -> Position:
    """Parse the value of an option that says where to start or end.

    Raises:
        InvalidOption: the value is invalid.
    """
    if option.endswith("ByTimestamp"):
        values = values_from_option(text, option)
        return AtTimes(option, {place: _instant(option, time) for place, time in values.items()})
    if option.endswith("Timestamp"):
        return AtTime(option, _instant(option, text))
    word = text.strip().lower()
    for edge in Edge:
        if word in {edge.value, str(_EDGE_OFFSETS[edge])}:
            return edge
    return AtOffsets(option, offsets_from_option(text, option))


_EDGE_OFFSETS: Final = {Edge.EARLIEST: EARLIEST_OFFSET, Edge.LATEST: LATEST_OFFSET}


def mentions(position: Position, edge: Edge) -> bool:
    """Return True if the position is that edge in any partition."""
    if isinstance(position, AtOffsets):
        return _EDGE_OFFSETS[edge] in position.offsets.values()
    return position is edge


def places_of(position: Position) -> Collection[StreamPartition] | None:
    """Return the partitions that a position names; None if it is for all."""
    match position:
        case AtOffsets(offsets=named) | AtTimes(timestamps=named):
            return named.keys()
        case _:
            return None


def check_covers(position: Position, selected: Collection[StreamPartition]) -> None:
    """Refuse a position by partition that lacks a selected one, or names another.

    Raises:
        InvalidOption: with the first such partition.
    """
    if not isinstance(position, AtOffsets | AtTimes):
        return
    named = set(places_of(position) or ())
    for place in sorted(named.symmetric_difference(selected)):
        problem = (
            f"{position.option} names a partition that is not read"
            if place in named
            else f"{position.option} lacks a partition that is read"
        )
        refusal = InvalidOption(problem, stream=place.stream, partition=place.partition)
        refusal.hint = "name each partition that is read, and no other"
        raise refusal


def check_order(starting: Position, ending: Position) -> None:
    """Refuse an end time before the start time, if both are for all partitions.

    Raises:
        InvalidOption: with the names of both options.
    """
    if not isinstance(starting, AtTime) or not isinstance(ending, AtTime):
        return
    if ending.timestamp < starting.timestamp:
        raise InvalidOption(
            f"{starting.option} is later than {ending.option}, so nothing is between them"
        )


def _instant(option: str, written: Any) -> int:
    """Parse Unix milliseconds, or ISO 8601 with a time zone, into Unix nanoseconds."""
    text = str(written).strip()
    try:
        timestamp = int(text) * _NS_PER_MS
    except ValueError:
        try:
            timestamp = ns_from_datetime(datetime.fromisoformat(text))
        except (ValueError, InvalidRequest) as error:
            raise _no_time(option, written) from error
    if not 0 <= timestamp <= INT64_MAX:
        raise _no_time(option, written)
    return timestamp


def _no_time(option: str, written: Any) -> InvalidOption:
    text = (
        f"{option} has {written!r}; a time must be Unix milliseconds from 0 up, or ISO 8601 "
        "with a time zone such as 2026-01-31T12:00:00Z"
    )
    return InvalidOption(text)
