"""Positions in the partitions of streams, and ranges between them. Pure.

A position is the next offset to read, so a range from one position to another leaves the end out.
Spark keeps positions as JSON text in its checkpoint and compares the text: two that mean the same
must read the same, whoever made them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from liftbridge_aio.arguments import INT32_MAX, INT64_MAX

from .errors import CheckpointMismatch, InvalidOption

LATEST_OFFSET: Final = -1
"""In options: the end of the partition, at the time the query starts."""
EARLIEST_OFFSET: Final = -2
"""In options: the oldest message of the partition that is still stored."""


class StreamPartition(NamedTuple):
    """A partition of a stream; equal to, and sorted like, the plain tuple."""

    stream: str
    partition: int

    def __str__(self) -> str:
        return f"{self.stream}/{self.partition}"


class Offsets(Mapping[StreamPartition, int]):
    """The next offset to read, from 0 up, of each partition of each stream. Immutable; pickles.

    A flat mapping whose keys are `StreamPartition` (or plain tuples like it), in sorted order. As
    JSON it is nested, stream → partition → offset: `{"orders":{"0":23,"1":0}}`.
    """

    __slots__ = ("_offsets",)

    def __init__(self, offsets: Mapping[tuple[str, int], int] | None = None) -> None:
        self._offsets: dict[StreamPartition, int] = {
            StreamPartition(*place): offset for place, offset in sorted((offsets or {}).items())
        }

    def __getitem__(self, place: tuple[str, int]) -> int:
        return self._offsets[place]  # type: ignore[index]  # equal tuples hash alike

    def __iter__(self) -> Iterator[StreamPartition]:
        return iter(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)

    def __hash__(self) -> int:
        return hash(tuple(self._offsets.items()))

    def __repr__(self) -> str:
        return f"Offsets({self.to_json()})"

    def __reduce__(self) -> tuple[type[Self], tuple[dict[StreamPartition, int]]]:
        return type(self), (self._offsets,)

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams, each once, sorted."""
        return tuple(dict.fromkeys(place.stream for place in self._offsets))

    def changed(self, offsets: Mapping[tuple[str, int], int]) -> Offsets:
        """Make offsets in which those given replace, or are added to, what is here."""
        return Offsets({**self._offsets, **offsets})

    def only(self, places: Iterable[tuple[str, int]]) -> Offsets:
        """Make offsets of those of the partitions that are here."""
        return Offsets({place: self[place] for place in places if place in self._offsets})

    def ranges_to(self, end: Mapping[StreamPartition, int]) -> list[OffsetRange]:
        """Make the ranges from here to `end`, sorted; empty ones are left out.

        A partition that is only in `end` begins at 0; one that is only here has no range.
        """
        return [
            OffsetRange(*place, start, end[place])
            for place in sorted(end)
            if (start := self._offsets.get(place, 0)) < end[place]
        ]

    def to_dict(self) -> dict[str, dict[str, int]]:
        """Make the nested form with text keys that Spark turns into JSON, in a fixed order."""
        nested: dict[str, dict[str, int]] = {stream: {} for stream in self.streams}
        # Text order, as `to_json` writes it: "10" comes before "2".
        for place in sorted(self._offsets, key=lambda place: (place.stream, str(place.partition))):
            nested[place.stream][str(place.partition)] = self._offsets[place]
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
            return cls(flat_offsets(nested))
        except ValueError as error:
            text = f"the checkpoint holds {kept!r}, which no stream's offsets are: {error}"
            mismatch = CheckpointMismatch(text)
            mismatch.hint = "set checkpointLocation to a directory of this query's own"
            raise mismatch from error


def offsets_from_option(text: str, option: str) -> dict[StreamPartition, int]:
    """Read offsets as people write them in an option; -1 is the latest, -2 the earliest.

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


def _from_option(
    text: str, option: str, *, lowest: int | None, example: str
) -> dict[StreamPartition, Any]:
    try:
        values = flat_offsets(json.loads(text), lowest=lowest)
        if not values:
            raise ValueError("it names no partition")
    except ValueError as error:
        problem = f"{option} is {text!r}, and should look like {example}: {error}"
        raise InvalidOption(problem) from error
    return values


def flat_offsets(nested: Any, *, lowest: int | None = 0) -> dict[StreamPartition, Any]:
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
