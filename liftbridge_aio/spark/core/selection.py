"""The partitions that a query reads: streams by name or pattern, or single partitions. Pure.

All three pickle. They take metadata as a mapping from the name of each stream to its number of
partitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from liftbridge_aio._core.arguments import INT32_MAX
from liftbridge_aio._core.names import stream_name_problem
from liftbridge_aio.model import RESERVED_STREAMS, StreamPartition
from liftbridge_aio.spark.errors import InvalidOption, StreamMissing

from .offsets import json_value


@dataclass(frozen=True, slots=True)
class Streams:
    """All partitions of some streams."""

    names: tuple[str, ...]

    def partitions(self, counts: Mapping[str, int]) -> list[StreamPartition]:
        """Return the partitions, sorted.

        Raises:
            StreamMissing: a stream does not exist.
        """
        return sorted(place for name in self.names for place in _all_of(name, counts))


@dataclass(frozen=True, slots=True)
class Pattern:
    """All partitions of the streams whose whole name matches, new streams included."""

    regex: str

    def matches(self, name: str) -> bool:
        """Return True if a stream is selected; internal streams of servers never are."""
        return name not in RESERVED_STREAMS and re.fullmatch(self.regex, name) is not None

    def partitions(self, counts: Mapping[str, int]) -> list[StreamPartition]:
        """Return the partitions, sorted; none if no stream matches."""
        names = filter(self.matches, counts)
        return sorted(place for name in names for place in _all_of(name, counts))


@dataclass(frozen=True, slots=True)
class Assigned:
    """Single partitions."""

    places: tuple[StreamPartition, ...]

    def partitions(self, counts: Mapping[str, int]) -> list[StreamPartition]:
        """Return the partitions, sorted.

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
    """Return a selection without streams and partitions that do not exist."""
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
    """Return what is read as text, for errors."""
    match selection:
        case Streams(names):
            return ", ".join(names)
        case Assigned(places):
            return ", ".join(map(str, places))
        case Pattern(regex):
            return f"streams like {regex!r}"


def read_selection(option: str, text: str) -> Selection:
    """Parse the value of one of the options that say what to read.

    Raises:
        InvalidOption: it names no stream, or is no regular expression or list of partitions, as
            the option takes.
    """
    match option:
        case "subscribePattern":
            return _pattern(text)
        case "assign":
            return _assigned(text)
        case _:
            return _streams(option, text)


def check_stream_name(option: str, stream: str) -> None:
    """Refuse a name that no stream can have.

    Raises:
        InvalidOption: it is such a name.
    """
    problem = stream_name_problem(stream)
    if problem is not None:
        raise InvalidOption(f"{option}: {problem}", stream=stream)


def _pattern(text: str) -> Pattern:
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidOption(
            f"subscribePattern {text!r} is not a regular expression: {error}"
        ) from error
    return Pattern(text)


def _streams(option: str, text: str) -> Streams:
    names = tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    if not names:
        raise InvalidOption(f"{option} is {text!r} and names no stream")
    for name in names:
        check_stream_name(option, name)
    return Streams(names)


def _assigned(text: str) -> Assigned:
    try:
        places = frozenset(_places(json_value(text)))
        if not places:
            raise ValueError("it names no partition")
    except ValueError as error:
        raise InvalidOption(
            f'assign is {text!r}, but must be like {{"orders":[0,1]}}: {error}'
        ) from error
    for place in places:
        check_stream_name("assign", place.stream)
    return Assigned(tuple(sorted(places)))


def _places(assigned: object) -> Iterator[StreamPartition]:
    if not isinstance(assigned, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - bad JSON is a bad value
    for stream, partitions in assigned.items():
        if not isinstance(partitions, list) or not partitions:
            raise ValueError(f"stream {stream!r} has no list of partitions")
        for partition in partitions:
            if type(partition) is not int or not 0 <= partition <= INT32_MAX:
                raise ValueError(f"{partition!r} is not the number of a partition")
            yield StreamPartition(stream, partition)
