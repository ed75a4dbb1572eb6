"""Messages as Arrow record batches, column by column.

What a row holds depends on its message alone: headers come sorted by name, because servers send
them in any order, and without the two that servers write into every message.

Messages are taken apart as they come. Kept until a record batch is full, thousands of objects would
be looked at by the garbage collector again and again; lists of bytes and numbers are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from liftbridge_aio.model import RESERVED_HEADERS, Message

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

    def add(self, messages: list[Message]) -> Iterator[Chunk]:
        """Take messages in; yield each chunk that is full."""
        while messages:
            fitting = messages[: self._most_rows - len(self._chunk)]
            headers = [_headers(each.headers) for each in fitting] if self._columns.headers else []
            sizes = _sizes(fitting, headers)
            total = sum(sizes)
            if self._chunk.size + total > self._most_bytes:
                room = self._most_bytes - self._chunk.size
                count = sum(1 for size in accumulate(sizes) if size <= room)
                if not len(self._chunk):
                    count = max(count, 1)
                fitting, total = fitting[:count], sum(sizes[:count])
            self._take(fitting, headers[: len(fitting)], total)
            messages = messages[len(fitting) :]
            if messages or len(self._chunk) == self._most_rows:
                yield self._cut()

    def rest(self) -> Chunk | None:
        """Return what is left; None where nothing is."""
        return self._cut() if len(self._chunk) else None

    def _take(self, messages: list[Message], headers: list[list[Header]], size: int) -> None:
        chunk = self._chunk
        chunk.keys += [message.key or None for message in messages]
        chunk.values += [message.value for message in messages]
        chunk.offsets += [message.offset for message in messages]
        chunk.timestamps += [message.timestamp for message in messages]
        chunk.headers += headers
        if self._columns.subject:
            chunk.subjects += [message.subject for message in messages]
        chunk.size += size

    def _cut(self) -> Chunk:
        chunk, self._chunk = self._chunk, Chunk(*self._place)
        return chunk


def _headers(headers: Mapping[str, bytes]) -> list[Header]:
    return sorted(header for header in headers.items() if header[0] not in RESERVED_HEADERS)


def _sizes(messages: list[Message], headers: list[list[Header]]) -> list[int]:
    sizes = [len(message.value) + len(message.key) for message in messages]
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
        "key": pa.array(chunk.keys, pa.binary()),
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
