"""The digest of rows: the same however they are ordered and shared out, and else another one."""

from __future__ import annotations

from itertools import combinations
from typing import TypeAlias

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from liftbridge_aio.spark.core.row_digest import joined_digest, rows_digest
from liftbridge_aio.spark.core.row_placement import Rows

Row: TypeAlias = tuple[str, int | None, tuple[tuple[str, bytes], ...] | None, bytes | None, bytes]
"""Stream, partition, headers, key and value."""

names = st.sampled_from(["a", "b"])
contents = st.binary(max_size=2)
rows = st.tuples(
    names,
    st.none() | st.integers(0, 2),
    st.none() | st.dictionaries(names, contents, min_size=1).map(lambda one: (*one.items(),)),
    st.none() | st.binary(min_size=1, max_size=2),
    contents,
)


def digest(given_rows: list[Row], stream: str | None = None) -> int:
    """Return the digest of rows as Arrow has them: a part that no row has is left out."""
    if not given_rows:
        return 0
    streams, partitions, headers, keys, values = (
        list(part) for part in zip(*given_rows, strict=True)
    )
    return rows_digest(
        Rows(
            0,
            values,
            keys if any(keys) else None,
            [None if one is None else dict(one) for one in headers] if any(headers) else None,
            partitions if partitions.count(None) < len(partitions) else None,
            streams if stream is None else None,
        ),
        stream,
    )


@given(
    st.lists(rows, max_size=6).flatmap(lambda one: st.tuples(st.just(one), st.permutations(one))),
    st.integers(0, 6),
)
def test_order_and_tasks_do_not_matter(both: tuple[list[Row], list[Row]], cut: int) -> None:
    before, after = both
    shares = after[:cut], after[cut:]
    assert joined_digest(map(digest, shares)) == digest(before)


@given(st.lists(rows, min_size=1, max_size=4), st.lists(rows, min_size=1, max_size=4))
def test_other_rows_have_another_digest(some: list[Row], others: list[Row]) -> None:
    assume(sorted(some, key=repr) != sorted(others, key=repr))
    assert digest(some) != digest(others)


def test_rows_that_exchange_parts_have_another_digest() -> None:
    """However alike they are: plain sums of CRCs would be the same for 80 of these pairs."""
    for pair in combinations([b"%03d" % number for number in range(200)], 2):
        straight, crossed = (
            rows_digest(Rows(0, [a + b"-------", b + b"-------"], None, None, None, None), "s")
            for a, b in (
                (pair[0] + b"a", pair[1] + b"c"),
                (pair[0] + b"c", pair[1] + b"a"),
            )
        )
        assert straight != crossed


def test_the_stream_is_the_same_from_an_option_and_from_a_column() -> None:
    row: Row = ("s", None, None, b"k", b"v")
    assert digest([row], "s") == digest([row])
    assert digest([row], "t") != digest([row])


@pytest.mark.parametrize("place", [0, 500, 4_999, 9_999])
def test_large_values_count_by_their_ends_and_lengths(place: int) -> None:
    value = bytearray(10_000)
    before = digest([("s", None, None, None, bytes(value))])
    assert digest([("s", None, None, None, bytes(value[1:]))]) != before
    value[place] = 1
    changed = digest([("s", None, None, None, bytes(value))]) != before
    assert changed == (place != 4_999)
