"""Positions in the partitions of streams, and ranges between them. Pure.

A position is the next offset to read, so a range from one position to another leaves the end out.
Spark keeps positions as JSON text in its checkpoint and compares the text: two that mean the same
must read the same, whoever made them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self, TypeAlias

from liftbridge_aio.arguments import INT32_MAX, INT64_MAX

from .errors import CheckpointMismatch, InvalidOption

LATEST_OFFSET: Final = -1
"""In options: the end of the partition, at the time the query starts."""
EARLIEST_OFFSET: Final = -2
"""In options: the oldest message of the partition that is still stored."""

_CREATED: Final = "created"
"""Stands beside the numbers of a stream's partitions."""
BEGAN: Final = "began"
"""The same; see `first_batch`."""


class StreamPartition(NamedTuple):
    """A partition of a stream; equal to, and sorted like, the plain tuple."""

    stream: str
    partition: int

    def __str__(self) -> str:
        return f"{self.stream}/{self.partition}"


OffsetsByPlace: TypeAlias = Mapping[StreamPartition, int] | Mapping[tuple[str, int], int]
"""Offsets by partition, whichever kind of tuple names it."""


class Offsets(Mapping[StreamPartition, int]):
    """The next offset to read, from 0 up, of each partition of each stream. Immutable; pickles.

    A flat mapping whose keys are `StreamPartition` (or plain tuples like it), in sorted order. As
    JSON it is nested, stream → partition → offset, and says when each stream was created, as
    offsets mean nothing in another stream of the same name:
    `{"orders":{"0":23,"1":0,"created":1700000000000000000}}`.
    """

    __slots__ = ("_created", "_offsets")

    def __init__(
        self,
        offsets: OffsetsByPlace | None = None,
        created: Mapping[str, int] | None = None,
    ) -> None:
        """Keep them in order.

        Args:
            offsets: by stream and partition.
            created: when streams were created, in Unix nanoseconds
                (`StreamInfo.creation_timestamp`); 0 and streams without offsets are left out.
        """
        self._offsets: dict[StreamPartition, int] = {
            StreamPartition(*place): offset for place, offset in sorted((offsets or {}).items())
        }
        known = created or {}
        self._created = {name: known[name] for name in self.streams if known.get(name)}

    def __getitem__(self, place: tuple[str, int]) -> int:
        return self._offsets[place]  # type: ignore[index]  # equal tuples hash alike

    def __iter__(self) -> Iterator[StreamPartition]:
        return iter(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Offsets):
            return NotImplemented
        return self._offsets == other._offsets and self._created == other._created

    def __hash__(self) -> int:
        return hash((tuple(self._offsets.items()), tuple(self._created.items())))

    def __repr__(self) -> str:
        return f"Offsets({self.to_json()})"

    def __reduce__(self) -> tuple[type[Self], tuple[dict[StreamPartition, int], dict[str, int]]]:
        return type(self), (self._offsets, self._created)

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams, each once, sorted."""
        return tuple(dict.fromkeys(place.stream for place in self._offsets))

    @property
    def created(self) -> Mapping[str, int]:
        """When streams were created, in Unix nanoseconds, as far as it is known."""
        return MappingProxyType(self._created)

    def changed(self, offsets: OffsetsByPlace) -> Offsets:
        """Make offsets in which those given replace, or are added to, what is here."""
        return Offsets(dict((*self._offsets.items(), *offsets.items())), self._created)

    def only(self, places: Iterable[tuple[str, int]]) -> Offsets:
        """Make offsets of those of the partitions that are here."""
        kept = {place: self[place] for place in places if place in self._offsets}
        return Offsets(kept, self._created)

    def of(self, created: Mapping[str, int]) -> Offsets:
        """Make the same offsets in streams that were created at other times, where given."""
        return Offsets(self._offsets, {**self._created, **created})

    def recreated(self, created: Mapping[str, int]) -> frozenset[str]:
        """Say which streams were created at another time than those of these offsets."""
        return frozenset(
            stream
            for stream, moment in self._created.items()
            if created.get(stream, 0) not in {0, moment}
        )

    def ranges_to(self, end: Offsets) -> list[OffsetRange]:
        """Make the ranges from here to `end`, sorted; empty ones are left out.

        A partition begins at 0 where it is only in `end`, or where its stream was created anew in
        between. One that is only here has no range.
        """
        anew = self.recreated(end.created)
        starts = {place: 0 if place.stream in anew else self.get(place, 0) for place in end}
        return [
            OffsetRange(*place, starts[place], end[place])
            for place in end
            if starts[place] < end[place]
        ]

    def to_dict(self) -> dict[str, dict[str, int]]:
        """Make the nested form with text keys that Spark turns into JSON, in a fixed order."""
        nested: dict[str, dict[str, int]] = {}
        for stream in self.streams:
            places = (place for place in self._offsets if place.stream == stream)
            offsets = {str(place.partition): self._offsets[place] for place in places}
            # The order of the texts, as `to_json` has it: "10" comes before "2".
            nested[stream] = dict(sorted(offsets.items()))
            if stream in self._created:
                nested[stream][_CREATED] = self._created[stream]
        return nested

    def to_json(self) -> str:
        """Write the text of the checkpoint: sorted keys, no blanks, ASCII."""
        return json.dumps(self.to_dict(), separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_checkpoint(cls, kept: str | Mapping[str, Any]) -> Self:
        """Read what `to_dict` or `to_json` made, as Spark gives it back.

        Raises:
            CheckpointMismatch: it is something else, such as the offsets of another source.
        """
        try:
            nested = json.loads(kept) if isinstance(kept, str) else kept
            return cls(_flat_offsets(nested), _flat_created(nested))
        except ValueError as error:
            text = f"the checkpoint holds {kept!r}, which no stream's offsets are: {error}"
            mismatch = CheckpointMismatch(text)
            mismatch.hint = "set checkpointLocation to a directory of this query's own"
            raise mismatch from error


def offsets_from_option(text: str, option: str) -> dict[StreamPartition, int]:
    """Read offsets as people write them in an option; -1 is the latest, -2 the earliest.

    Those that a query's progress shows can be pasted; the creation times in them do nothing.

    Raises:
        InvalidOption: it is no JSON of the form `{"stream":{"0":23}}`, or an offset is below -2.
    """
    return _from_option(text, option, lowest=EARLIEST_OFFSET, example='{"orders":{"0":23,"1":-1}}')


def values_from_option(text: str, option: str) -> dict[StreamPartition, Any]:
    """Read any values by stream and partition, for an option whose values need more reading.

    Raises:
        InvalidOption: it is no JSON of the form `{"stream":{"0":…}}`.
    """
    return _from_option(text, option, lowest=None, example='{"orders":{"0":1700000000000}}')


def json_value(text: str) -> Any:
    """Read JSON that people wrote: a name given twice in an object is a mistake.

    Raises:
        ValueError: it is no JSON, or a name is given twice.
    """
    return json.loads(text, object_pairs_hook=_distinct)


def _distinct(entries: list[tuple[str, Any]]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for name, value in entries:
        if name in named:
            text = f"{name!r} is named twice"
            raise ValueError(text)
        named[name] = value
    return named


def _from_option(
    text: str, option: str, *, lowest: int | None, example: str
) -> dict[StreamPartition, Any]:
    try:
        values = _flat_offsets(json_value(text), lowest=lowest)
        if not values:
            raise ValueError("it names no partition")
    except ValueError as error:
        problem = f"{option} is {text!r}, and should look like {example}: {error}"
        raise InvalidOption(problem) from error
    return values


def _flat_offsets(nested: Any, *, lowest: int | None = 0) -> dict[StreamPartition, Any]:
    """Flatten stream → partition (as text) → offset, checking each part.

    Args:
        nested: what was read from JSON.
        lowest: the least that an offset may be; None takes values of any kind.

    Raises:
        ValueError: something is not what it should be.
    """
    flat: dict[StreamPartition, Any] = {}
    for stream, partitions in _entries(nested, "the whole"):
        if not stream:
            raise ValueError("a stream has no name")
        for written, offset in _entries(partitions, f"stream {stream!r}"):
            if written in {_CREATED, BEGAN}:
                continue
            place = StreamPartition(stream, _partition_number(written, stream))
            if place in flat:
                text = f"partition {place} is named twice"
                raise ValueError(text)
            if lowest is not None and (
                type(offset) is not int or not lowest <= offset <= INT64_MAX
            ):
                text = f"the offset of partition {place} is {offset!r}, no number from {lowest} up"
                raise ValueError(text)
            flat[place] = offset
    return flat


def _flat_created(nested: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    created = {stream: parts[_CREATED] for stream, parts in nested.items() if _CREATED in parts}
    for stream, moment in created.items():
        if type(moment) is not int or not 0 < moment <= INT64_MAX:
            text = f"the creation time of stream {stream!r} is {moment!r}, no Unix nanoseconds"
            raise ValueError(text)
    return created


def _entries(value: Any, what: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        text = f"{what} is {value!r}, no JSON object"
        raise ValueError(text)  # noqa: TRY004 - bad JSON is a bad value wherever it is bad
    return value.items()


def _partition_number(written: str, stream: str) -> int:
    if not (written.isascii() and written.isdecimal()) or int(written) > INT32_MAX:
        text = f"{written!r} is no number of a partition of stream {stream!r}"
        raise ValueError(text)
    return int(written)


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets of one partition, from `start` up to but without `end`. Pickles; sorts by place."""

    stream: str
    partition: int
    start: int
    end: int

    @property
    def place(self) -> StreamPartition:
        """The partition it lies in."""
        return StreamPartition(self.stream, self.partition)

    @property
    def count(self) -> int:
        """How many offsets it has; compaction may have left fewer messages."""
        return self.end - self.start

    @property
    def last(self) -> int:
        """The last offset that belongs to it; before `start` where it is empty."""
        return self.end - 1

    def __str__(self) -> str:
        return f"{self.stream}/{self.partition}[{self.start},{self.end})"
