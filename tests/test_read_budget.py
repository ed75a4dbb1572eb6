from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.read_budget import ReadBudget

NARROWEST = 4 * 2**10
WIDEST = 4 * 2**20
totals = st.integers(1, 2**40)
counts = st.integers(1, 300)


def budget_of(total: int, subscriptions: int) -> ReadBudget:
    budget = ReadBudget(total)
    for _ in range(subscriptions):
        budget.join()
    return budget


@given(totals, counts)
def test_all_windows_and_buffers_together_stay_within_the_total(total: int, count: int) -> None:
    share = budget_of(total, count).share
    assert NARROWEST <= share <= WIDEST
    assert share == NARROWEST or 2 * share * count <= total


@given(totals)
def test_more_subscriptions_never_get_more_and_changes_are_rare(total: int) -> None:
    budget = ReadBudget(total)
    shares = []
    for count in range(1, 130):
        before = budget.share
        changed = budget.join()
        assert budget.subscriptions == count
        assert changed == (budget.share != before)
        if changed:
            # One more than a power of two: windows are seldom renegotiated.
            assert (count - 1) & (count - 2) == 0
        shares.append(budget.share)
    assert shares == sorted(shares, reverse=True)


@given(totals, counts)
def test_leaving_gives_back_what_joining_took(total: int, count: int) -> None:
    budget = budget_of(total, count)
    before = budget.share
    joined = budget.join()
    assert budget.leave() == joined
    assert budget.share == before
    assert budget.subscriptions == count


@pytest.mark.parametrize(
    ("total", "count", "share"),
    [
        (64 * 2**20, 1, WIDEST),
        (64 * 2**20, 8, WIDEST),
        (64 * 2**20, 9, WIDEST // 2),
        (64 * 2**20, 16, WIDEST // 2),
        (64 * 2**20, 10_000, NARROWEST),
        (2**20, 1, 2**19),
        (2**20, 2, 2**18),
        (2**20, 3, 2**17),
        (1, 1, NARROWEST),
    ],
)
def test_the_share_uses_the_total(total: int, count: int, share: int) -> None:
    assert budget_of(total, count).share == share
