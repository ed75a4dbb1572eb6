from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio._subscribe.core.memory_budget import MemoryBudget
from liftbridge_aio.telemetry import SubscriptionStatistics

NARROWEST = 4 * 2**10
WIDEST = 4 * 2**20
totals = st.integers(1, 2**40)
counts = st.integers(1, 300)
places = st.sampled_from([1, 2])
MIB = 2**20


class Idle:
    """A reader that has nothing to tell."""

    def statistics(self) -> SubscriptionStatistics:
        return SubscriptionStatistics("s", 0, None, None, None)


def budget_of(total: int, subscriptions: int, places: int = 1) -> MemoryBudget:
    budget = MemoryBudget(total, places=places)
    for _ in range(subscriptions):
        budget.join(Idle())
    return budget


@given(totals, counts, places)
def test_all_that_may_lie_unread_takes_half_of_the_total(
    total: int, count: int, places: int
) -> None:
    share = budget_of(total, count, places).share
    assert NARROWEST <= share <= WIDEST
    assert share == NARROWEST or 2 * places * share * count <= total


@given(totals)
def test_more_subscriptions_never_get_more_and_changes_are_rare(total: int) -> None:
    budget = MemoryBudget(total)
    shares = []
    for count in range(1, 130):
        before = budget.share
        changed = budget.join(Idle())
        assert len(budget.readers) == count
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
    reader = Idle()
    joined = budget.join(reader)
    assert budget.leave(reader) == joined
    assert budget.share == before
    assert len(budget.readers) == count


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


def test_a_crowded_budget_gives_little_until_half_of_it_is_free() -> None:
    total = 64 * MIB
    budget = budget_of(total, 1)
    assert not budget.account(total * 3 // 4 - 1)
    assert budget.share == WIDEST
    assert budget.account(1)
    assert budget.share == NARROWEST
    assert not budget.account(1 - total // 4)
    assert budget.share == NARROWEST
    assert budget.account(-1)
    assert budget.share == WIDEST


def test_on_the_plain_path_what_lies_in_a_buffer_lies_in_the_window_too() -> None:
    budget = budget_of(64 * MIB, 1, places=2)
    assert not budget.account(24 * MIB - 1)
    assert budget.account(1)
    assert budget.share == NARROWEST


@given(st.integers(64 * NARROWEST, 2**34), places, st.lists(st.booleans(), max_size=200))
def test_readers_that_fill_their_shares_in_turn_stay_within_the_total(
    total: int, places: int, reads: list[bool]
) -> None:
    """Each joins and holds all that it may; some that hold much then read it."""
    budget = MemoryBudget(total, places=places)
    held: list[int] = []
    for someone_reads in [*reads, *[False] * 20]:
        budget.join(Idle())
        share = budget.share
        held.append(share)
        budget.account(share)
        if someone_reads:
            budget.account(-held.pop(0))
        little = NARROWEST * places * len(held)
        assert places * sum(held) <= total * 5 // 4 + little
    assert len(budget.readers) == len(reads) + 20
