"""The placement of rows, and rows that are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.partitioner import by_key
from liftbridge_aio.spark.core.row_placement import RowPlacement, Rows
from liftbridge_aio.spark.errors import InvalidRow

COUNTS = {"orders": 4, "totals": 1}


def rows(*values: bytes | None, first: int = 0, **parts: Any) -> Rows:
    return Rows(
        first,
        list(values),
        parts.get("keys"),
        parts.get("headers"),
        parts.get("partitions"),
        parts.get("streams"),
    )


@given(st.lists(st.tuples(st.none() | st.binary(max_size=3), st.none() | st.integers(0, 3))))
def test_the_named_partition_beats_the_key_and_the_key_beats_the_turn(
    places: list[tuple[bytes | None, int | None]],
) -> None:
    keys = [key for key, _ in places]
    given_rows = rows(*[b"v"] * len(places), keys=keys, partitions=[one for _, one in places])
    placed = RowPlacement(stream="orders", turn=2).place(given_rows, COUNTS)
    for (key, named), (stream, value, sent_key, headers, partition) in zip(
        places, placed, strict=True
    ):
        assert (stream, value, headers) == ("orders", b"v", None)
        assert sent_key == (key or None)
        assert 0 <= partition < 4
        if named is not None:
            assert partition == named
        elif key:
            assert partition == by_key("orders", key, b"v", 4)


def test_rows_without_a_key_go_round_the_partitions_across_batches() -> None:
    placement = RowPlacement(stream="orders", turn=3)
    placed = [*placement.place(rows(b"a", b"b"), COUNTS), *placement.place(rows(b"c"), COUNTS)]
    assert [row[4] for row in placed] == [3, 0, 1]


def test_each_row_goes_to_the_stream_that_it_names() -> None:
    placement = RowPlacement(stream=None, turn=0)
    batch = rows(b"a", b"b", streams=["orders", "totals"], keys=[b"k", b"k"])
    assert placement.streams(batch) == {"orders", "totals"}
    assert [(row[0], row[4]) for row in placement.place(batch, COUNTS)] == [
        ("orders", by_key("orders", b"k", b"a", 4)),
        ("totals", 0),
    ]


@pytest.mark.parametrize("missing", [None, ""])
def test_a_row_without_a_stream_is_named(missing: str | None) -> None:
    with pytest.raises(InvalidRow, match=r"row 8 of the task names no stream.*option stream"):
        RowPlacement(stream=None, turn=0).streams(
            rows(b"a", b"b", first=7, streams=["orders", missing])
        )


def test_a_row_without_a_value_is_named_with_its_place() -> None:
    with pytest.raises(
        InvalidRow,
        match=r"^\[LIFTBRIDGE_INVALID_ROW\] row 11 of the task has no value "
        r"\[stream='orders', partition=2\]: filter such rows out",
    ):
        RowPlacement(stream="orders", turn=0).place(
            rows(b"a", None, first=10, partitions=[0, 2]), COUNTS
        )


@pytest.mark.parametrize("partition", [-1, 4])
def test_a_partition_that_does_not_exist_is_refused(partition: int) -> None:
    with pytest.raises(
        InvalidRow,
        match=f"row 0 of the task names partition {partition} of a stream that has 4"
        ".*stream='orders'.*correct the column partition",
    ):
        RowPlacement(stream="orders", turn=0).place(rows(b"a", partitions=[partition]), COUNTS)
