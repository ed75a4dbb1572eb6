"""Messages as Arrow record batches, and how they are cut into chunks."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice, pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio import Message
from liftbridge_aio.spark.core.options import ExtraColumns
from liftbridge_aio.spark.read.record_batches import Chunk, ChunkBuilder, record_batch
from liftbridge_aio.spark.read.schema import arrow_schema, spark_schema, spark_types
from liftbridge_aio.wire.column_batch import ColumnBatch, decode_columns
from liftbridge_aio.wire.hot_schema import WireMessage

if TYPE_CHECKING:
    from pyarrow import RecordBatch

pytest.importorskip("pyarrow")

ALL_COLUMNS = ExtraColumns(headers=True, subject=True, timestamp_nanos=True)


def message(
    offset: int, value: bytes = b"v", key: bytes = b"k", headers: dict[str, bytes] | None = None
) -> Message:
    return Message("s", 3, offset, key, value, 1_700_000_000_123_456_789, headers or {}, "s.3")


def as_columns(messages: list[Message]) -> ColumnBatch:
    encoded = [
        WireMessage(
            stream=each.stream,
            partition=each.partition,
            offset=each.offset,
            key=each.key,
            value=each.value,
            timestamp=each.timestamp,
            headers=[{"name": name, "content": content} for name, content in each.headers.items()],
            subject=each.subject,
        ).SerializeToString()
        for each in messages
    ]
    columns, broken = decode_columns(encoded)
    assert broken is None
    return columns


def batch(messages: list[Message], columns: ExtraColumns) -> RecordBatch:
    chunks = ChunkBuilder("s", 3, columns, 100)
    assert list(chunks.add(as_columns(messages))) == []
    chunk = chunks.rest()
    assert chunk is not None
    made = record_batch(chunk, arrow_schema(columns))
    made.validate(full=True)
    return made


def test_rows_hold_what_messages_hold() -> None:
    headers = {"b": b"2", "subject": b"s.3", "a": b"\xff", "reply": b""}
    messages = [message(7, headers=headers), message(9, b"", b""), message(10, headers={"c": b""})]
    first, second, third = batch(messages, ALL_COLUMNS).to_pylist()
    assert (first["key"], first["value"], first["offset"]) == (b"k", b"v", 7)
    assert (first["topic"], first["partition"], first["subject"]) == ("s", 3, "s.3")
    assert first["headers"] == [{"key": "a", "value": b"\xff"}, {"key": "b", "value": b"2"}]
    assert first["timestampNanos"] == 1_700_000_000_123_456_789
    assert first["timestamp"] == datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
    assert (second["key"], second["value"], second["headers"]) == (None, b"", None)
    assert (third["offset"], third["headers"]) == (10, [{"key": "c", "value": b""}])


@pytest.mark.parametrize(
    "columns", [ExtraColumns(), ALL_COLUMNS, ExtraColumns(subject=True)], ids=str
)
def test_arrow_and_spark_are_told_the_same_columns(columns: ExtraColumns) -> None:
    types = pytest.importorskip("pyspark.sql.types")
    conversion = pytest.importorskip("pyspark.sql.pandas.types")
    by_name = {
        "key": types.BinaryType(),
        "value": types.BinaryType(),
        "topic": types.StringType(),
        "partition": types.IntegerType(),
        "offset": types.LongType(),
        "timestamp": types.TimestampType(),
        "headers": types.ArrayType(
            types.StructType(
                [
                    types.StructField("key", types.StringType()),
                    types.StructField("value", types.BinaryType()),
                ]
            )
        ),
        "subject": types.StringType(),
        "timestampNanos": types.LongType(),
    }
    told = types.StructType(
        [types.StructField(name, by_name[name]) for name in spark_types(columns)]
    )
    assert spark_schema(columns) == ", ".join(
        f"{field.name} {field.dataType.simpleString()}" for field in told
    )
    expected = conversion.to_arrow_schema(told, timezone="UTC")
    assert arrow_schema(columns).equals(expected)  # as Spark itself looks at it
    assert batch([message(0, headers={"a": b""})], columns).schema.equals(expected)


@given(
    sizes=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=12), max_size=12),
    max_rows=st.integers(1, 9),
    max_bytes=st.integers(1, 100),
    headers=st.booleans(),
)
def test_chunks_are_full_and_never_too_large(
    sizes: list[list[int]], max_rows: int, max_bytes: int, headers: bool
) -> None:
    chunks = ChunkBuilder("s", 3, ExtraColumns(headers=headers), max_rows, max_bytes)
    cut: list[Chunk] = []
    taken: list[Message] = []
    for group in sizes:
        messages = [
            message(len(taken) + index, b"v" * size, b"", {"h": b"1"} if size % 2 else None)
            for index, size in enumerate(group)
        ]
        taken += messages
        cut += chunks.add(as_columns(messages))
    full = len(cut)
    if rest := chunks.rest():
        cut.append(rest)
    assert [offset for chunk in cut for offset in chunk.offsets] == list(range(len(taken)))
    assert [value for chunk in cut for value in chunk.values] == [one.value for one in taken]

    def size_of(offset: int) -> int:
        size = len(taken[offset].value)
        return size + 2 if headers and size % 2 else size

    for chunk in cut:
        assert chunk.size == sum(map(size_of, chunk.offsets))
        assert len(chunk) == 1 or (len(chunk) <= max_rows and chunk.size <= max_bytes)
        assert len(chunk.keys) == len(chunk.timestamps) == len(chunk)
        assert len(chunk.headers) == (len(chunk) if headers else 0)
    for chunk, following in islice(pairwise(cut), full):
        more = chunk.size + size_of(following.offsets[0])
        assert len(chunk) == max_rows or more > max_bytes
    assert chunks.rest() is None
