"""Positions in the partitions of streams, and ranges between them. Pure.

A position is the next offset to read, so a range between two positions excludes its end. Spark
stores positions as JSON text in its checkpoint and compares the text, so equal positions must have
equal texts.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Self, TypeAlias

from liftbridge_aio._core.arguments import INT32_MAX, INT64_MAX
from liftbridge_aio.model import StreamPartition
from liftbridge_aio.spark.errors import CheckpointMismatch, InvalidOption

LATEST_OFFSET: Final = -1
"""In options: the end of the partition when the query starts."""
EARLIEST_OFFSET: Final = -2
"""In options: the oldest stored message of the partition."""

_CREATED: Final = "created"
"""Key beside the partitions of a stream: when the stream was created."""
_BEGAN: Final = "began"
"""Key beside the partitions of a stream in the end of a query's first batch: where that starts."""


OffsetsByPlace: TypeAlias = Mapping[StreamPartition, int] | Mapping[tuple[str, int], int]
"""Offsets by partition, whichever kind of tuple names it."""


class Offsets(Mapping[StreamPartition, int]):
    """The next offset to read of each partition, from 0 up. Immutable; pickles.

    A mapping with sorted keys `StreamPartition`, or equal plain tuples. As JSON it is nested,
    stream → partition → offset, with the creation time of each stream, as offsets are
    meaningless in a later stream of the same name:
    `{"orders":{"0":23,"1":0,"created":1700000000000000000}}`.
    """

    __slots__ = ("_created", "_offsets")

    def __init__(
        self,
        offsets: OffsetsByPlace | None = None,
        created: Mapping[str, int] | None = None,
    ) -> None:
        """Sort the offsets.

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
        """The names of the streams, sorted."""
        return tuple(dict.fromkeys(place.stream for place in self._offsets))

    @property
    def created(self) -> Mapping[str, int]:
        """The creation times of streams in Unix nanoseconds, as far as they are known."""
        return MappingProxyType(self._created)

    def changed(self, offsets: OffsetsByPlace) -> Offsets:
        """Return a copy with some offsets replaced or added."""
        return Offsets(dict((*self._offsets.items(), *offsets.items())), self._created)

    def only(self, places: Iterable[tuple[str, int]]) -> Offsets:
        """Return a copy with only those of these partitions that it has."""
        kept = {place: self[place] for place in places if place in self._offsets}
        return Offsets(kept, self._created)

    def of(self, created: Mapping[str, int]) -> Offsets:
        """Return a copy with these creation times of streams."""
        return Offsets(self._offsets, {**self._created, **created})

    def recreated(self, created: Mapping[str, int]) -> frozenset[str]:
        """Return the streams that now have another creation time, so were created again."""
        return frozenset(
            stream
            for stream, moment in self._created.items()
            if created.get(stream, 0) not in {0, moment}
        )

    def ranges_to(self, end: Offsets) -> list[OffsetRange]:
        """Return the ranges from these offsets to `end`, sorted and without empty ones.

        A partition begins at 0 if it is only in `end`, or if its stream was created again in
        between. One that is not in `end` has no range.
        """
        anew = self.recreated(end.created)
        starts = {place: 0 if place.stream in anew else self.get(place, 0) for place in end}
        return [
            OffsetRange(*place, starts[place], end[place])
            for place in end
            if starts[place] < end[place]
        ]

    def to_dict(self) -> dict[str, dict[str, int]]:
        """Return the nested form with text keys that Spark turns into JSON, in a fixed order."""
        nested: dict[str, dict[str, int]] = {}
        for stream in self.streams:
            places = (place for place in self._offsets if place.stream == stream)
            offsets = {str(place.partition): self._offsets[place] for place in places}
            # Sorted as text, as in `to_json`: "10" comes before "2".
            nested[stream] = dict(sorted(offsets.items()))
            if stream in self._created:
                nested[stream][_CREATED] = self._created[stream]
        return nested

    def to_json(self) -> str:
        """Return the text for the checkpoint: sorted keys, no blanks, ASCII."""
        return json.dumps(self.to_dict(), separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_checkpoint(cls, kept: str | Mapping[str, Any]) -> Self:
        """Parse the output of `to_dict` or `to_json`, as Spark returns it.

        Raises:
            CheckpointMismatch: it is something else, such as the offsets of another source.
        """
        try:
            nested = json.loads(kept) if isinstance(kept, str) else kept
            return cls(_flat_offsets(nested), _flat_created(nested))
        except ValueError as error:
            text = f"the checkpoint has {kept!r}, which are no offsets of streams: {error}"
            mismatch = CheckpointMismatch(text)
            mismatch.hint = "set checkpointLocation to a directory of this query's own"
            raise mismatch from error


def end_of_first_batch(start: Offsets, end: Offsets) -> dict[str, dict[str, Any]]:
    """Return `end` as `Offsets.to_dict` does, with the start of the batch in it.

    Spark stores where each batch ends and takes it for the start of the next. It does not store
    where the first batch starts: it asks the source when it plans that batch, when it runs it, and
    when it runs it again after a crash. By then "latest" and "earliest" are other offsets, so the
    end of the first batch says where it starts, stream by stream:
    `{"orders":{"0":40,"began":{"0":23},"created":1700000000000000000}}`.
    """
    anew = start.recreated(end.created)
    began = {place: 0 if place.stream in anew else start[place] for place in end if place in start}
    beside = Offsets(began).to_dict()
    kept: dict[str, dict[str, Any]] = {}
    for stream, offsets in end.to_dict().items():
        note = {_BEGAN: beside[stream]} if stream in beside else {}
        kept[stream] = dict(sorted({**offsets, **note}.items()))
    return kept


def start_of_batch(start: Mapping[str, Any], end: Mapping[str, Any]) -> Offsets:
    """Return where a batch starts: the start stored in its end if there is one, else `start`.

    Args:
        start: the start of the batch as Spark gives it.
        end: its end as Spark gives it.

    Raises:
        CheckpointMismatch: they are the offsets of another source.
    """
    stop = Offsets.from_checkpoint(end)
    began = {stream: end[stream][_BEGAN] for stream in stop.streams if _BEGAN in end[stream]}
    return (
        Offsets.from_checkpoint(began).of(stop.created) if began else Offsets.from_checkpoint(start)
    )


def offsets_from_option(text: str, option: str) -> dict[StreamPartition, int]:
    """Parse offsets from an option; -1 is the latest, -2 the earliest.

    Offsets from the progress of a query can be pasted; the creation times in them are ignored.

    Raises:
        InvalidOption: it is no JSON of the form `{"stream":{"0":23}}`, or an offset is below -2.
    """
    return _from_option(text, option, lowest=EARLIEST_OFFSET, example='{"orders":{"0":23,"1":-1}}')


def values_from_option(text: str, option: str) -> dict[StreamPartition, Any]:
    """Parse an option of values by stream and partition, which the caller parses further.

    Raises:
        InvalidOption: the text is no JSON of the form `{"stream":{"0":…}}`.
    """
    return _from_option(text, option, lowest=None, example='{"orders":{"0":1700000000000}}')


def json_value(text: str) -> Any:
    """Parse JSON, and refuse objects that have a name twice.

    Raises:
        ValueError: it is no JSON, or a name occurs twice.
    """
    return json.loads(text, object_pairs_hook=_distinct)


def _distinct(entries: list[tuple[str, Any]]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for name, value in entries:
        if name in named:
            raise ValueError(f"{name!r} occurs twice")
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
        raise InvalidOption(f"{option} is {text!r}, but must be like {example}: {error}") from error
    return values


def _flat_offsets(nested: Any, *, lowest: int | None = 0) -> dict[StreamPartition, Any]:
    """Flatten stream → partition (as text) → offset, checking each part.

    Args:
        nested: what was read from JSON.
        lowest: the least valid offset; None: values of any type are valid.

    Raises:
        ValueError: a part has the wrong form.
    """
    flat: dict[StreamPartition, Any] = {}
    for stream, partitions in _entries(nested, "the text"):
        if not stream:
            raise ValueError("a stream has no name")
        for written, offset in _entries(partitions, f"stream {stream!r}"):
            if written in {_CREATED, _BEGAN}:
                continue
            place = StreamPartition(stream, _partition_number(written, stream))
            if place in flat:
                raise ValueError(f"partition {place} occurs twice")
            if lowest is not None and (
                type(offset) is not int or not lowest <= offset <= INT64_MAX
            ):
                raise ValueError(
                    f"the offset of {place} is {offset!r}, not a number from {lowest} up"
                )
            flat[place] = offset
    return flat


def _flat_created(nested: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    created = {stream: parts[_CREATED] for stream, parts in nested.items() if _CREATED in parts}
    for stream, moment in created.items():
        if type(moment) is not int or not 0 < moment <= INT64_MAX:
            raise ValueError(
                f"the creation time of stream {stream!r} is {moment!r}, not Unix nanoseconds"
            )
    return created


def _entries(value: Any, what: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} is {value!r}, not a JSON object")  # noqa: TRY004 - bad JSON is a bad value wherever it is bad
    return value.items()


def _partition_number(written: str, stream: str) -> int:
    if not (written.isascii() and written.isdecimal()) or int(written) > INT32_MAX:
        raise ValueError(f"{written!r} is not the number of a partition of stream {stream!r}")
    return int(written)


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets of one partition from `start` to `end`, exclusive. Pickles; sorts by partition."""

    stream: str
    partition: int
    start: int
    end: int

    @property
    def place(self) -> StreamPartition:
        """Its stream and partition."""
        return StreamPartition(self.stream, self.partition)

    @property
    def count(self) -> int:
        """The number of offsets; compaction may have left fewer messages."""
        return self.end - self.start

    @property
    def last(self) -> int:
        """The last offset; below `start` if the range is empty."""
        return self.end - 1

    def __str__(self) -> str:
        return f"{self.stream}/{self.partition}[{self.start},{self.end})"


def split(
    ranges: Sequence[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """Split ranges into pieces of nearly equal size, one for each task.

    Args:
        ranges: what to read; empty ones are left out.
        min_partitions: the least number of tasks, as far as there are enough offsets.
        max_records: most offsets of a task.

    Returns:
        The pieces in the order of the ranges, which together are the ranges.
    """
    filled = [one for one in ranges if one.count > 0]
    pieces = [1 if max_records is None else -(-one.count // max_records) for one in filled]
    _add_pieces(filled, pieces, (min_partitions or 0) - sum(pieces))
    return [
        piece for one, number in zip(filled, pieces, strict=True) for piece in _cut(one, number)
    ]


def _add_pieces(ranges: Sequence[OffsetRange], pieces: list[int], more: int) -> None:
    """Split the ranges with the largest pieces further, into `more` pieces in all."""
    # Sizes are negative as a heap returns the least; the index orders equal ones.
    heap = [(-one.count / pieces[index], index) for index, one in enumerate(ranges)]
    heapq.heapify(heap)
    while more > 0 and heap:
        _, index = heap[0]
        if pieces[index] >= ranges[index].count:
            heapq.heappop(heap)  # already single offsets
            continue
        pieces[index] += 1
        more -= 1
        heapq.heapreplace(heap, (-ranges[index].count / pieces[index], index))


def _cut(whole: OffsetRange, number: int) -> list[OffsetRange]:
    bounds = [whole.start + whole.count * step // number for step in range(number + 1)]
    return [
        OffsetRange(whole.stream, whole.partition, bounds[step], bounds[step + 1])
        for step in range(number)
    ]
