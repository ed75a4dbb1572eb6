"""Messages as Arrow record batches, and how they are cut into chunks."""

from __future__ import annotations

from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio import Message
from liftbridge_aio.spark.options import ExtraColumns
from liftbridge_aio.spark.record_batches import Chunks, record_batch, size_of
from liftbridge_aio.spark.schema import arrow_schema, spark_schema, spark_types

pa = pytest.importorskip("pyarrow")

ALL_COLUMNS = ExtraColumns(headers=True, subject=True, timestamp_nanos=True)


def message(
    offset: int, value: bytes = b"v", key: bytes = b"k", headers: dict[str, bytes] | None = None
) -> Message:
    return Message("s", 3, offset, key, value, 1_700_000_000_123_456_789, headers or {}, "s.3")


def test_rows_hold_what_messages_hold() -> None:
    headers = {"b": b"2", "subject": b"s.3", "a": b"\xff", "reply": b""}
    schema = arrow_schema(ALL_COLUMNS)
    rows = record_batch([message(7, headers=headers), message(9, b"", b"")], schema)
    first, second = rows.to_pylist()
    assert (first["key"], first["value"], first["offset"]) == (b"k", b"v", 7)
    assert (first["topic"], first["partition"], first["subject"]) == ("s", 3, "s.3")
    assert first["headers"] == [{"key": "a", "value": b"\xff"}, {"key": "b", "value": b"2"}]
    assert first["timestampNanos"] == 1_700_000_000_123_456_789
    assert first["timestamp"].timestamp() == pytest.approx(1_700_000_000.123456, abs=1e-7)
    assert first["timestamp"].microsecond == 123456
    assert (second["key"], second["value"], second["headers"]) == (None, b"", None)


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
    record_batch([message(0, headers={"a": b""})], arrow_schema(columns)).validate(full=True)


@given(
    sizes=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=12), max_size=12),
    most_rows=st.integers(1, 9),
    most_bytes=st.integers(1, 100),
    headers=st.booleans(),
)
def test_chunks_are_full_and_never_too_large(
    sizes: list[list[int]], most_rows: int, most_bytes: int, headers: bool
) -> None:
    chunks = Chunks(most_rows, most_bytes=most_bytes, headers=headers)
    cut: list[list[Message]] = []
    taken: list[Message] = []
    for group in sizes:
        messages = [
            message(len(taken) + index, b"v" * size, b"", {"h": b"1"} if size % 2 else None)
            for index, size in enumerate(group)
        ]
        taken += messages
        cut += chunks.add(messages)
    full = len(cut)
    if rest := chunks.rest():
        cut.append(rest)
    assert [one for chunk in cut for one in chunk] == taken
    for chunk in cut:
        size = sum(size_of(one, headers=headers) for one in chunk)
        assert len(chunk) == 1 or (len(chunk) <= most_rows and size <= most_bytes)
    for chunk, following in islice(pairwise(cut), full):
        more = sum(size_of(one, headers=headers) for one in [*chunk, following[0]])
        assert len(chunk) == most_rows or more > most_bytes
    assert chunks.rest() == []
