"""Which partitions a query reads: streams by name, by a pattern, or single partitions. Pure.

All three pickle, and find their partitions in the metadata of a moment: a mapping from the name of
each stream to its number of partitions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from liftbridge_aio.model import RESERVED_STREAMS

from .errors import StreamMissing
from .offsets import StreamPartition


@dataclass(frozen=True, slots=True)
class Streams:
    """All partitions of some streams."""

    names: tuple[str, ...]

    def partitions(self, counts: Mapping[str, int]) -> list[StreamPartition]:
        """List the partitions, sorted.

        Raises:
            StreamMissing: a stream does not exist.
        """
        return sorted(place for name in self.names for place in _all_of(name, counts))


@dataclass(frozen=True, slots=True)
class Pattern:
    """All partitions of the streams whose whole name matches; new streams join as they appear."""

    regex: str

    def matches(self, name: str) -> bool:
        """Say whether a stream is meant; the servers' own streams never are."""
        return name not in RESERVED_STREAMS and re.fullmatch(self.regex, name) is not None

    def partitions(self, counts: Mapping[str, int]) -> list[StreamPartition]:
        """List the partitions, sorted; none where no stream matches."""
        names = filter(self.matches, counts)
        return sorted(place for name in names for place in _all_of(name, counts))


@dataclass(frozen=True, slots=True)
class Assigned:
    """Single partitions."""

    places: tuple[StreamPartition, ...]

    def partitions(self, counts: Mapping[str, int]) -> list[StreamPartition]:
        """List the partitions, sorted.

        Raises:
            StreamMissing: a stream or partition does not exist.
        """
        for place in self.places:
            if place not in _all_of(place.stream, counts):
                missing = StreamMissing(
                    f"assign names partition {place.partition} of stream {place.stream!r}, "
                    f"which has {counts[place.stream]}",
                    stream=place.stream,
                    partition=place.partition,
                )
                missing.hint = "change the option assign"
                raise missing
        return sorted(self.places)


Selection = Streams | Pattern | Assigned


def _all_of(stream: str, counts: Mapping[str, int]) -> list[StreamPartition]:
    if stream not in counts:
        missing = StreamMissing("the stream does not exist", stream=stream)
        missing.hint = (
            "create it first, or change the option that names it (stream, subscribe, assign)"
        )
        raise missing
    return [StreamPartition(stream, number) for number in range(counts[stream])]


def existing(selection: Selection, counts: Mapping[str, int]) -> Selection:
    """Leave out what does not exist (any more)."""
    match selection:
        case Streams(names):
            return Streams(tuple(name for name in names if name in counts))
        case Assigned(places):
            return Assigned(
                tuple(place for place in places if place.partition < counts.get(place.stream, 0))
            )
        case Pattern():
            return selection


def described(selection: Selection) -> str:
    """Name what is read, for messages."""
    match selection:
        case Streams(names):
            return ", ".join(names)
        case Assigned(places):
            return ", ".join(map(str, places))
        case Pattern(regex):
            return f"streams like {regex!r}"
