"""Messages as Arrow record batches, column by column.

What a row holds depends on its message alone: headers come sorted by name, because servers send
them in any order, and without the two that servers write into every message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from liftbridge_aio.model import RESERVED_HEADERS, Message

from .schema import headers_type

if TYPE_CHECKING:
    import pyarrow as pa

MOST_BYTES: Final = 8 * 2**20
"""Bytes of keys, values and headers in one record batch, about; a message above goes alone."""

_NS_PER_US: Final = 1000


def record_batch(messages: Sequence[Message], schema: pa.Schema) -> pa.RecordBatch:
    """Make a record batch of messages of one partition.

    A key without bytes is null: servers do not tell the two apart. So are headers where there are
    none.

    Args:
        messages: at least one; all of one stream and partition.
        schema: made by `schema.arrow_schema`.
    """
    import pyarrow as pa  # noqa: PLC0415 - the extra [spark], and used on executors only

    names = frozenset(schema.names)
    count = len(messages)
    timestamps = [message.timestamp for message in messages]
    columns = {
        "key": pa.array([message.key or None for message in messages], pa.binary()),
        "value": pa.array([message.value for message in messages], pa.binary()),
        "topic": pa.repeat(pa.scalar(messages[0].stream, pa.string()), count),
        "partition": pa.repeat(pa.scalar(messages[0].partition, pa.int32()), count),
        "offset": pa.array([message.offset for message in messages], pa.int64()),
        "timestamp": pa.array(
            [timestamp // _NS_PER_US for timestamp in timestamps],
            pa.timestamp("us", tz="UTC"),
        ),
    }
    if "headers" in names:
        columns["headers"] = _headers(messages)
    if "subject" in names:
        columns["subject"] = pa.array([message.subject for message in messages], pa.string())
    if "timestampNanos" in names:
        columns["timestampNanos"] = pa.array(timestamps, pa.int64())
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def size_of(message: Message, *, headers: bool) -> int:
    """Tell how many bytes a message takes in a record batch, about."""
    size = len(message.key) + len(message.value)
    if headers:
        size += sum(len(name) + len(value) for name, value in message.headers.items())
    return size


class Chunks:
    """Cuts what comes into chunks for record batches, by rows and by bytes.

    Args:
        most_rows: messages in a chunk, at most.
        most_bytes: bytes in a chunk, at most, unless its only message is larger.
        headers: whether headers count.
    """

    def __init__(self, most_rows: int, *, most_bytes: int = MOST_BYTES, headers: bool) -> None:
        self._most_rows = most_rows
        self._most_bytes = most_bytes
        self._headers = headers
        self._messages: list[Message] = []
        self._bytes = 0

    @property
    def room(self) -> int:
        """How many more messages fit into the chunk, if they are small."""
        return self._most_rows - len(self._messages)

    def add(self, messages: list[Message]) -> Iterator[list[Message]]:
        """Take messages in; yield each chunk that is full."""
        size = self._size(messages)
        if len(messages) < self.room and self._bytes + size < self._most_bytes:
            self._messages += messages
            self._bytes += size
            return
        for message in messages:
            size = size_of(message, headers=self._headers)
            if self._messages and self._bytes + size > self._most_bytes:
                yield self._cut()
            self._messages.append(message)
            self._bytes += size
            if not self.room:
                yield self._cut()

    def rest(self) -> list[Message]:
        """Return what is left; empty where nothing is."""
        return self._cut()

    def _size(self, messages: list[Message]) -> int:
        if self._headers:
            return sum(size_of(message, headers=True) for message in messages)
        return sum([len(message.value) + len(message.key) for message in messages])

    def _cut(self) -> list[Message]:
        chunk, self._messages, self._bytes = self._messages, [], 0
        return chunk


def _headers(messages: Sequence[Message]) -> pa.Array[Any]:
    import pyarrow as pa  # noqa: PLC0415 - as above

    names: list[str] = []
    values: list[bytes] = []
    ends: list[int | None] = []
    for message in messages:
        before = len(names)
        for name, value in sorted(message.headers.items()):
            if name not in RESERVED_HEADERS:
                names.append(name)
                values.append(value)
        ends.append(before if len(names) > before else None)
    kind = headers_type()
    flat = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(values, pa.binary())],
        fields=list(kind.value_type),
    )
    return pa.ListArray.from_arrays(pa.array([*ends, len(names)], pa.int32()), flat, type=kind)
