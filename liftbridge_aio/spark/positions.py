"""Where a read starts and ends, as the options say it: an edge, offsets, or times. Pure."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from liftbridge_aio.arguments import INT64_MAX
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.model import ns_from_datetime

from .errors import InvalidOption
from .offsets import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    StreamPartition,
    offsets_from_option,
    values_from_option,
)

_NS_PER_MS: Final = 10**6


class Edge(enum.Enum):
    """One of the two ends of every partition."""

    EARLIEST = "earliest"
    """The oldest message that is still stored."""
    LATEST = "latest"
    """Behind the newest committed message, at the time the query starts."""


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition."""

    option: str
    """The option that says so, for messages."""
    offsets: Mapping[StreamPartition, int]
    """From 0 up; or `LATEST_OFFSET` (-1), `EARLIEST_OFFSET` (-2)."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message at or after one instant, in every partition."""

    option: str
    """The option that says so, for messages."""
    timestamp: int
    """Unix nanoseconds."""


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The first message at or after an instant of its own for each partition."""

    option: str
    """The option that says so, for messages."""
    timestamps: Mapping[StreamPartition, int]
    """Unix nanoseconds."""


Position = Edge | AtOffsets | AtTime | AtTimes


class NothingSoNew(enum.Enum):
    """What to do where no message is as new as the time to start at."""

    ERROR = "error"
    LATEST = "latest"


def read_position(option: str, text: str) -> Position:
    """Read the value of one of the options that say where to start or end.

    Raises:
        InvalidOption: it is nothing that such an option can be.
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
    """Say whether the position is that edge, in any partition."""
    if isinstance(position, AtOffsets):
        return _EDGE_OFFSETS[edge] in position.offsets.values()
    return position is edge


def places_of(position: Position) -> Collection[StreamPartition] | None:
    """List the partitions that a position names; None where it is for all."""
    match position:
        case AtOffsets(offsets=named) | AtTimes(timestamps=named):
            return named.keys()
        case _:
            return None


def check_covers(position: Position, selected: Collection[StreamPartition]) -> None:
    """Refuse a position by partition that leaves out a selected one, or names another.

    Raises:
        InvalidOption: with the first partition that is amiss.
    """
    if not isinstance(position, AtOffsets | AtTimes):
        return
    named = set(places_of(position) or ())
    for place in sorted(named.symmetric_difference(selected)):
        problem = (
            f"{position.option} names a partition that is not read"
            if place in named
            else f"{position.option} leaves out a partition that is read"
        )
        refusal = InvalidOption(problem, stream=place.stream, partition=place.partition)
        refusal.hint = "it has to name each partition that is read, and no other"
        raise refusal


def check_order(starting: Position, ending: Position) -> None:
    """Refuse times of which the end is before the start, as far as they are the same for all.

    Raises:
        InvalidOption: with both options.
    """
    if not isinstance(starting, AtTime) or not isinstance(ending, AtTime):
        return
    if ending.timestamp < starting.timestamp:
        problem = f"{starting.option} is later than {ending.option}, so nothing lies between"
        raise InvalidOption(problem)


def _instant(option: str, written: Any) -> int:
    """Turn Unix milliseconds, or ISO 8601 with a time zone, into Unix nanoseconds."""
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
        f"{option} holds {written!r}; a time is Unix milliseconds from 0 up, or ISO 8601 "
        "with a time zone such as 2026-01-31T12:00:00Z"
    )
    return InvalidOption(text)
