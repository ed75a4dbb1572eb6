from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.spark.core.offsets import OffsetRange, split

counts = st.lists(st.integers(0, 1000) | st.integers(0, 2**62), max_size=12)
ranges = counts.map(
    lambda sizes: [OffsetRange("orders", n, 7 * n, 7 * n + size) for n, size in enumerate(sizes)]
)
few = st.none() | st.integers(1, 100)


@st.composite
def limited(draw: st.DrawFn) -> tuple[list[OffsetRange], int | None]:
    """Ranges, and a limit that makes no more than some hundred tasks of them."""
    wanted = draw(ranges)
    least = max(1, sum(one.count for one in wanted) // 200)
    return wanted, draw(st.none() | st.integers(least, 2**63 - 1))


@given(limited(), few)
def test_the_tasks_together_have_each_offset_once_and_in_order(
    limited: tuple[list[OffsetRange], int | None], min_partitions: int | None
) -> None:
    wanted, max_records = limited
    pieces = split(wanted, min_partitions=min_partitions, max_records=max_records)
    assert all(piece.count > 0 for piece in pieces)
    joined: list[OffsetRange] = []
    for piece in pieces:
        if joined and joined[-1].place == piece.place and joined[-1].end == piece.start:
            start = joined.pop().start
            joined.append(OffsetRange(*piece.place, start, piece.end))
        else:
            joined.append(piece)
    assert joined == [one for one in wanted if one.count]


@given(limited(), few)
def test_both_limits_hold(
    limited: tuple[list[OffsetRange], int | None], min_partitions: int | None
) -> None:
    wanted, max_records = limited
    pieces = split(wanted, min_partitions=min_partitions, max_records=max_records)
    total = sum(one.count for one in wanted)
    assert len(pieces) >= min(min_partitions or 0, total)
    if max_records is not None:
        assert max((piece.count for piece in pieces), default=0) <= max_records


@given(ranges, few)
def test_no_more_tasks_are_made_than_asked_for(
    wanted: list[OffsetRange], min_partitions: int | None
) -> None:
    pieces = split(wanted, min_partitions=min_partitions)
    filled = sum(one.count > 0 for one in wanted)
    total = sum(one.count for one in wanted)
    assert len(pieces) == max(filled, min(min_partitions or 0, total))


@given(ranges, few)
def test_the_pieces_of_a_range_are_of_nearly_equal_size(
    wanted: list[OffsetRange], min_partitions: int | None
) -> None:
    pieces = split(wanted, min_partitions=min_partitions)
    for one, other in pairwise(pieces):
        if one.place == other.place:
            assert abs(one.count - other.count) <= 1


def test_the_largest_ranges_are_cut_first() -> None:
    wanted = [OffsetRange("orders", 0, 0, 10), OffsetRange("orders", 1, 0, 100)]
    assert split(wanted, min_partitions=4) == [
        OffsetRange("orders", 0, 0, 10),
        OffsetRange("orders", 1, 0, 33),
        OffsetRange("orders", 1, 33, 66),
        OffsetRange("orders", 1, 66, 100),
    ]
