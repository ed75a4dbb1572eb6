"""Messages as Arrow record batches, column by column.

What a row holds depends on its message alone: headers come sorted by name, because servers send
them in any order, and without the two that servers write into every message.

Messages come as columns and stay columns: no object is made of any of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING, Any, Final

from liftbridge_aio.model import RESERVED_HEADERS
from liftbridge_aio.wire.column_batch import ColumnBatch

from .options import ExtraColumns
from .schema import headers_type

if TYPE_CHECKING:
    import pyarrow as pa

MOST_BYTES: Final = 8 * 2**20
"""Bytes of keys, values and headers in one record batch, about; a message above goes alone."""

Header = tuple[str, bytes]


@dataclass(slots=True)
class Chunk:
    """Messages of one partition, taken apart: what becomes a record batch."""

    stream: str
    partition: int
    keys: list[bytes | None] = field(default_factory=list)
    """A key without bytes is None: servers do not tell the two apart."""
    values: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    """Unix nanoseconds."""
    headers: list[list[Header]] = field(default_factory=list)
    """Only where they are wanted, as are the subjects."""
    subjects: list[str] = field(default_factory=list)
    size: int = 0
    """Bytes of keys, values and headers."""

    def __len__(self) -> int:
        return len(self.offsets)


class Chunks:
    """Takes messages of one partition apart, into chunks that make record batches.

    Args:
        stream: what they belong to.
        partition: same.
        columns: what is wanted of them beside what all rows have.
        most_rows: messages in a chunk, at most.
        most_bytes: bytes in a chunk, at most, unless its only message is larger.
    """

    def __init__(
        self,
        stream: str,
        partition: int,
        columns: ExtraColumns,
        most_rows: int,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._place = stream, partition
        self._columns = columns
        self._most_rows = most_rows
        self._most_bytes = most_bytes
        self._chunk = Chunk(stream, partition)

    def add(self, columns: ColumnBatch) -> Iterator[Chunk]:
        """Take messages in; yield each chunk that is full."""
        headers = list(map(_headers, columns.headers())) if self._columns.headers else []
        subjects = columns.subjects() if self._columns.subject else []
        sizes = _sizes(columns, headers)
        start = 0
        while start < len(columns):
            fitting = sizes[start : start + self._most_rows - len(self._chunk)]
            total = sum(fitting)
            if self._chunk.size + total > self._most_bytes:
                room = self._most_bytes - self._chunk.size
                count = sum(1 for size in accumulate(fitting) if size <= room)
                if not len(self._chunk):
                    count = max(count, 1)
                del fitting[count:]
                total = sum(fitting)
            span = slice(start, start + len(fitting))
            self._take(columns, span, headers[span], subjects[span], total)
            start = span.stop
            if start < len(columns) or len(self._chunk) == self._most_rows:
                yield self._cut()

    def rest(self) -> Chunk | None:
        """Return what is left; None where nothing is."""
        return self._cut() if len(self._chunk) else None

    def _take(
        self,
        columns: ColumnBatch,
        span: slice,
        headers: list[list[Header]],
        subjects: list[str],
        size: int,
    ) -> None:
        chunk = self._chunk
        keys = columns.keys[span]
        chunk.keys += [key or None for key in keys] if any(keys) else [None] * len(keys)
        chunk.values += columns.values[span]
        chunk.offsets += columns.offsets[span]
        chunk.timestamps += columns.timestamps[span]
        chunk.headers += headers
        chunk.subjects += subjects
        chunk.size += size

    def _cut(self) -> Chunk:
        chunk, self._chunk = self._chunk, Chunk(*self._place)
        return chunk


def _headers(headers: Mapping[str, bytes]) -> list[Header]:
    return sorted(header for header in headers.items() if header[0] not in RESERVED_HEADERS)


def _sizes(columns: ColumnBatch, headers: list[list[Header]]) -> list[int]:
    sizes = list(map(add, map(len, columns.values), map(len, columns.keys)))
    if headers:
        return [
            size + sum(len(name) + len(value) for name, value in own)
            for size, own in zip(sizes, headers, strict=True)
        ]
    return sizes


def record_batch(chunk: Chunk, schema: pa.Schema) -> pa.RecordBatch:
    """Make a record batch of a chunk.

    Args:
        chunk: at least one message.
        schema: made by `schema.arrow_schema` for the columns that the chunk has.
    """
    import pyarrow as pa  # noqa: PLC0415 - the extra [spark], and used on executors only

    names = frozenset(schema.names)
    count = len(chunk)
    nanoseconds = pa.array(chunk.timestamps, pa.int64()).cast(pa.timestamp("ns", tz="UTC"))
    columns = {
        "key": pa.array(chunk.keys, pa.binary())
        if any(chunk.keys)
        else pa.nulls(count, pa.binary()),
        "value": pa.array(chunk.values, pa.binary()),
        "topic": pa.repeat(pa.scalar(chunk.stream, pa.string()), count),
        "partition": pa.repeat(pa.scalar(chunk.partition, pa.int32()), count),
        "offset": pa.array(chunk.offsets, pa.int64()),
        "timestamp": nanoseconds.cast(pa.timestamp("us", tz="UTC"), safe=False),
    }
    if "headers" in names:
        columns["headers"] = _headers_array(chunk.headers)
    if "subject" in names:
        columns["subject"] = pa.array(chunk.subjects, pa.string())
    if "timestampNanos" in names:
        columns["timestampNanos"] = pa.array(chunk.timestamps, pa.int64())
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _headers_array(headers: list[list[Header]]) -> pa.Array[Any]:
    """Make the column of headers; null where a message has none."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    ends = list(accumulate((len(own) for own in headers), initial=0))
    starts = [begin if own else None for begin, own in zip(ends, headers, strict=False)]
    flat = [header for own in headers for header in own]
    kind = headers_type()
    structs = pa.StructArray.from_arrays(
        [
            pa.array([name for name, _ in flat], pa.string()),
            pa.array([value for _, value in flat], pa.binary()),
        ],
        fields=list(kind.value_type),
    )
    return pa.ListArray.from_arrays(pa.array([*starts, ends[-1]], pa.int32()), structs, type=kind)
