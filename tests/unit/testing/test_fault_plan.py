"""Plans are made by a seed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.testing import FaultKind, plan_faults


@given(st.integers(), st.integers(0, 30))
def test_the_same_seed_makes_the_same_plan_within_its_bounds(seed: int, count: int) -> None:
    plan = plan_faults(seed, count, max_lasts=2.0, max_pause=1.0)
    assert plan == plan_faults(seed, count, max_lasts=2.0, max_pause=1.0)
    assert len(plan) == count
    assert all(0 <= each.lasts <= 2.0 and 0 <= each.pause <= 1.0 for each in plan)


def test_plans_differ_and_have_every_kind() -> None:
    plan = plan_faults(1, 200)
    assert plan[:100] != plan[100:]
    kinds = {each.kind for each in plan}
    assert FaultKind.FLIP not in kinds
    assert len(kinds) == 8
    assert {each.kind for each in plan_faults(1, kinds=[FaultKind.FLIP])} == {FaultKind.FLIP}


@pytest.mark.parametrize("kinds", [[], [FaultKind.HEAL], [FaultKind.CUT, FaultKind.THAW]])
def test_a_plan_is_made_of_faults(kinds: list[FaultKind]) -> None:
    with pytest.raises(ValueError, match="made of faults"):
        plan_faults(1, kinds=kinds)
