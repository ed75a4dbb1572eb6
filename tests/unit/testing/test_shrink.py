"""The fewest parts that fail."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.testing.simulation.shrink import fewest


@given(st.integers(0, 40), st.sets(st.integers(0, 39)))
def test_only_the_parts_that_fail_together_are_left(count: int, needed: set[int]) -> None:
    needed = {each for each in needed if each < count}
    assert fewest(range(count), lambda parts: needed <= set(parts)) == tuple(sorted(needed))


def test_one_of_several_causes_is_left() -> None:
    assert len(fewest(range(100), lambda parts: bool({7, 50, 93} & set(parts)))) == 1
