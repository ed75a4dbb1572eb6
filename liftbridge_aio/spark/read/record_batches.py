"""Convert messages into Arrow record batches, column by column.

A row depends on its message only: headers are sorted by name, as servers send them in any order,
and lack the two that servers add to every message.

Messages arrive as columns and stay columns: no object is made for each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add
from struct import pack
from typing import TYPE_CHECKING, Any, Final

from liftbridge_aio.spark.core.options import ExtraColumns

from .schema import headers_type

if TYPE_CHECKING:
    import pyarrow as pa

    from liftbridge_aio.wire.column_batch import ColumnBatch

MAX_BATCH_BYTES: Final = 8 * 2**20
"""Approximate limit for keys, values and headers of a record batch; a larger message is alone."""

Header = tuple[str, bytes]


@dataclass(slots=True)
class Chunk:
    """Columns of messages of one partition, for one record batch."""

    stream: str
    partition: int
    keys: list[bytes | None] = field(default_factory=list)
    """None for an empty key: servers do not distinguish the two."""
    values: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    """Unix nanoseconds."""
    headers: list[list[Header]] = field(default_factory=list)
    """Empty unless the column is selected; so are the subjects."""
    subjects: list[str] = field(default_factory=list)
    size: int = 0
    """Bytes of keys, values and headers."""

    def __len__(self) -> int:
        return len(self.offsets)


class ChunkBuilder:
    """Splits the messages of a partition into chunks of limited size.

    Args:
        stream: of the messages.
        partition: of the messages.
        columns: optional columns.
        max_rows: most messages of a chunk.
        max_bytes: most bytes of a chunk, unless its only message is larger.
    """

    def __init__(
        self,
        stream: str,
        partition: int,
        columns: ExtraColumns,
        max_rows: int,
        max_bytes: int = MAX_BATCH_BYTES,
    ) -> None:
        self._place = stream, partition
        self._columns = columns
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._chunk = Chunk(stream, partition)

    def add(self, columns: ColumnBatch) -> Iterator[Chunk]:
        """Add messages, and yield each chunk that is full."""
        read = columns.headers() if self._columns.headers else []
        headers = [sorted(each.items()) for each in read]
        subjects = columns.subjects() if self._columns.subject else []
        sizes = _sizes(columns, headers)
        start = 0
        while start < len(columns):
            fitting = sizes[start : start + self._max_rows - len(self._chunk)]
            total = sum(fitting)
            if self._chunk.size + total > self._max_bytes:
                free = self._max_bytes - self._chunk.size
                count = sum(1 for size in accumulate(fitting) if size <= free)
                if not len(self._chunk):
                    count = max(count, 1)
                del fitting[count:]
                total = sum(fitting)
            span = slice(start, start + len(fitting))
            self._take(columns, span, headers[span], subjects[span], total)
            start = span.stop
            if start < len(columns) or len(self._chunk) == self._max_rows:
                yield self._cut()

    def rest(self) -> Chunk | None:
        """Return the last, incomplete chunk; None if it is empty."""
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


def _sizes(columns: ColumnBatch, headers: list[list[Header]]) -> list[int]:
    sizes = list(map(add, map(len, columns.values), map(len, columns.keys)))
    if headers:
        return [
            size + sum(len(name) + len(value) for name, value in own)
            for size, own in zip(sizes, headers, strict=True)
        ]
    return sizes


def record_batch(
    chunk: Chunk, schema: pa.Schema, malformed: Collection[int] = ()
) -> pa.RecordBatch:
    """Convert a chunk into a record batch.

    Args:
        chunk: with at least one message.
        schema: from `schema.arrow_schema`, for the columns of the chunk.
        malformed: the offsets of malformed acks, whose values become null.
    """
    import pyarrow as pa  # noqa: PLC0415 - the extra [spark], and used on executors only

    names = frozenset(schema.names)
    count = len(chunk)
    microseconds = [nanoseconds // 1000 for nanoseconds in chunk.timestamps]
    columns = {
        "key": _contents(pa.binary(), [key or b"" for key in chunk.keys], _validity(chunk.keys))
        if any(chunk.keys)
        else pa.nulls(count, pa.binary()),
        "value": _contents(
            pa.binary(),
            chunk.values,
            _validity([offset not in malformed for offset in chunk.offsets]) if malformed else None,
        ),
        "topic": pa.repeat(_contents(pa.string(), [chunk.stream.encode()])[0], count),
        "partition": pa.repeat(_numbers(pa.int32(), "i", [chunk.partition])[0], count),
        "offset": _numbers(pa.int64(), "q", chunk.offsets),
        "timestamp": _numbers(pa.timestamp("us", tz="UTC"), "q", microseconds),
    }
    if "headers" in names:
        columns["headers"] = _headers_array(chunk.headers)
    if "subject" in names:
        columns["subject"] = _contents(pa.string(), list(map(str.encode, chunk.subjects)))
    if "timestampNanos" in names:
        columns["timestampNanos"] = _numbers(pa.int64(), "q", chunk.timestamps)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


# Arrays are made from buffers: `pyarrow.array` imports pandas, which takes half a second, and
# `cast` imports `pyarrow.compute`.


def _numbers(kind: pa.DataType, code: str, numbers: Sequence[int]) -> pa.Array[Any]:
    """Return numbers as an array; `code` is that of `struct.pack` for the type."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    packed = pack(f"={len(numbers)}{code}", *numbers)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(packed)])


def _contents(
    kind: pa.DataType, contents: Sequence[bytes], validity: pa.Buffer | None = None
) -> pa.Array[Any]:
    """Return bytes, or encoded texts, as an array."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    buffers = [validity, _ends(contents), pa.py_buffer(b"".join(contents))]
    return pa.Array.from_buffers(kind, len(contents), buffers)


def _ends(items: Sequence[Sized]) -> pa.Buffer:
    """Return where each item begins when they follow one another, and where the last one ends."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    return pa.py_buffer(pack(f"={len(items) + 1}i", *accumulate(map(len, items), initial=0)))


def _validity(items: Sequence[object]) -> pa.Buffer | None:
    """Return the bitmap of items that are neither None nor empty; None if that is true of all."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    if all(items):
        return None
    bits = "".join("1" if item else "0" for item in reversed(items))
    return pa.py_buffer(int(bits, 2).to_bytes((len(items) + 7) // 8, "little"))


def _headers_array(headers: list[list[Header]]) -> pa.Array[Any]:
    """Return the column of headers; null for a message without headers."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    kind = headers_type()
    flat = [header for own in headers for header in own]
    structs = pa.StructArray.from_arrays(
        [
            _contents(pa.string(), [name.encode() for name, _ in flat]),
            _contents(pa.binary(), [value for _, value in flat]),
        ],
        fields=list(kind.value_type),
    )
    buffers = [_validity(headers), _ends(headers)]
    return pa.Array.from_buffers(kind, len(headers), buffers, children=[structs])
