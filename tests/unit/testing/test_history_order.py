from __future__ import annotations

import time
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.testing.history.order import displaced, out_of_order_with


def longest_rising(ranks: list[int]) -> int:
    """By trying all choices."""
    return next(
        length
        for length in range(len(ranks), -1, -1)
        if any(list(chosen) == sorted(chosen) for chosen in combinations(ranks, length))
    )


@given(st.lists(st.integers(0, 20), unique=True, max_size=8))
def test_as_few_as_possible_are_displaced(ranks: list[int]) -> None:
    misplaced = displaced(ranks)
    rest = [rank for place, rank in enumerate(ranks) if place not in misplaced]
    assert rest == sorted(rest)
    assert len(rest) == longest_rising(ranks)
    assert misplaced == sorted(set(misplaced))


@given(st.lists(st.integers(), unique=True, max_size=30))
def test_each_displaced_one_contradicts_one_that_stands_right(ranks: list[int]) -> None:
    misplaced = displaced(ranks)
    for place in misplaced:
        other = out_of_order_with(place, ranks, frozenset(misplaced))
        assert other not in misplaced
        assert (place < other) is (ranks[place] > ranks[other])


def test_what_stands_right_contradicts_nothing() -> None:
    with pytest.raises(ValueError, match="in order"):
        out_of_order_with(1, [1, 2, 3], frozenset())


def test_the_worst_order_takes_no_square_of_time() -> None:
    begin = time.perf_counter()
    assert len(displaced(range(200_000, 0, -1))) == 199_999
    assert time.perf_counter() - begin < 10  # a quadratic way takes minutes
