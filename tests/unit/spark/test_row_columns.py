"""The columns of DataFrames that can be written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from liftbridge_aio.spark.core.row_columns import RowColumns, row_columns
from liftbridge_aio.spark.errors import InvalidColumns

HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))


def schema(**columns: DataType) -> StructType:
    made = StructType()
    for name, kind in columns.items():
        made.add(name, kind)
    return made


def test_what_the_source_reads_can_be_written_as_it_is() -> None:
    read = schema(
        key=BinaryType(),
        value=BinaryType(),
        topic=StringType(),
        partition=IntegerType(),
        offset=LongType(),
        timestamp=TimestampType(),
        headers=HEADERS,
        subject=StringType(),
        timestampNanos=LongType(),
    )
    assert row_columns(read, stream=None) == RowColumns(
        value=1, key=0, headers=6, partition=3, stream=2
    )


def test_the_stream_of_the_options_beats_the_column() -> None:
    columns = row_columns(schema(value=StringType(), stream=StringType()), stream="orders")
    assert columns == RowColumns(value=0)


def test_names_are_taken_in_any_case_and_headers_as_a_map_too() -> None:
    columns = row_columns(
        schema(Headers=MapType(StringType(), BinaryType()), VALUE=StringType(), Topic=StringType()),
        stream=None,
    )
    assert columns == RowColumns(value=1, headers=0, stream=2)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"key": BinaryType()}, "column value is missing"),
        ({"value": DoubleType()}, r"value is double.*binary or string.*cast\(value as string\)"),
        ({"value": StringType(), "key": LongType()}, r"key is bigint.*cast\(key as string\)"),
        ({"value": StringType(), "partition": StringType()}, r"cast\(partition as int\)"),
        ({"value": StringType(), "headers": StringType()}, "headers is string, but must be array<"),
        (
            {"value": StringType(), "headers": MapType(StringType(), StringType())},
            "headers is map<string,string>",
        ),
        ({"value": StringType(), "Value": StringType()}, "two columns hold the value"),
        ({"value": StringType(), "price": DoubleType()}, "price is no part of a message"),
    ],
)
def test_a_refusal_names_the_column_and_what_to_do(columns: dict[str, DataType], text: str) -> None:
    with pytest.raises(InvalidColumns, match=text) as refused:
        row_columns(schema(**columns), stream="orders")
    assert str(refused.value).startswith("[LIFTBRIDGE_INVALID_COLUMNS] ")


def test_without_the_option_stream_a_column_must_name_it() -> None:
    with pytest.raises(InvalidColumns, match="set the option stream, or add a column stream"):
        row_columns(schema(value=StringType()), stream=None)


def test_topic_and_stream_together_are_refused() -> None:
    with pytest.raises(InvalidColumns, match="two columns hold the stream"):
        row_columns(
            schema(value=StringType(), topic=StringType(), stream=StringType()), stream=None
        )


@given(
    st.permutations(["key", "headers", "partition", "stream", "offset", "value"]),
    st.integers(1, 6),
)
def test_each_part_is_found_wherever_it_stands(order: list[str], count: int) -> None:
    kinds: dict[str, DataType] = {
        "value": BinaryType(),
        "key": StringType(),
        "headers": HEADERS,
        "partition": IntegerType(),
        "stream": StringType(),
        "offset": LongType(),
    }
    chosen = order[:count]
    if "value" not in chosen or "stream" not in chosen:
        chosen += [name for name in ("value", "stream") if name not in chosen]
    columns = row_columns(schema(**{name: kinds[name] for name in chosen}), stream=None)
    for name in ("value", "key", "headers", "partition", "stream"):
        index = getattr(columns, name)
        assert index == (chosen.index(name) if name in chosen else None)
