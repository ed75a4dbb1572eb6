"""The conversion of Spark's Arrow batches into the parts of messages."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.spark.core.row_columns import RowColumns
from liftbridge_aio.spark.errors import InvalidRow
from liftbridge_aio.spark.write.arrow_rows import rows_of

PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
MAP = pa.map_(pa.string(), pa.binary())
Headers = list[tuple[str, bytes | None]] | None


def batch(headers: list[Headers], kind: pa.DataType) -> pa.RecordBatch:
    if kind is MAP:
        column = pa.array(headers, MAP)
    else:
        pairs = [
            None if row is None else [{"key": name, "value": value} for name, value in row]
            for row in headers
        ]
        column = pa.array(pairs, PAIRS)
    values = pa.array([b"%d" % row for row in range(len(headers))], pa.binary())
    return pa.record_batch({"value": values, "headers": column})


@pytest.mark.parametrize("kind", [PAIRS, MAP], ids=["array", "map"])
@given(
    headers=st.lists(
        st.none()
        | st.dictionaries(st.text("abc", max_size=2), st.none() | st.binary(max_size=2)).map(
            lambda made: list(made.items())
        ),
        max_size=6,
    ),
    cut=st.tuples(st.integers(0, 6), st.integers(0, 6)),
)
def test_headers_stay_with_their_rows_in_both_forms(
    kind: Any, headers: list[Headers], cut: tuple[int, int]
) -> None:
    sliced = batch(headers, kind).slice(*cut)
    rows = rows_of(sliced, RowColumns(value=0, headers=1), first=0)
    wanted = [
        {name: value or b"" for name, value in row} if row else None
        for row in headers[cut[0] : cut[0] + cut[1]]
    ]
    assert rows.headers == (wanted if any(row is not None for row in wanted) else None)
    assert rows.values == [b"%d" % row for row in range(len(headers))][cut[0] : sum(cut)]


def test_text_is_published_as_utf8() -> None:
    texts = pa.record_batch({"value": pa.array(["é", None]), "key": pa.array(["ü", None])})
    rows = rows_of(texts, RowColumns(value=0, key=1), first=0)
    assert rows.values == ["é".encode(), None]
    assert rows.keys == ["ü".encode(), None]


def test_columns_in_which_nothing_stands_cost_nothing() -> None:
    nothing = pa.record_batch(
        {
            "value": pa.array([b"a", b"b"]),
            "key": pa.array([None, b""], pa.binary()),
            "partition": pa.array([None, None], pa.int32()),
        }
    )
    rows = rows_of(nothing, RowColumns(value=0, key=1, partition=2), first=0)
    assert (rows.keys, rows.headers, rows.partitions) == (None, None, None)


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ([("a", b"1"), ("a", b"2")], "row 6 of the task has the header 'a' twice"),
        ([(None, b"1")], "row 6 of the task has a header without a name"),
    ],
)
def test_headers_that_no_message_can_have_are_refused(headers: Any, text: str) -> None:
    with pytest.raises(InvalidRow, match=text):
        rows_of(batch([None, headers], PAIRS), RowColumns(value=0, headers=1), first=5)
