"""Plans: the same by their seed, and with all kinds of faults."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from chaos.outages import OUTAGES, USUAL, plan

SEEDS = st.integers(0, 10**6)


@given(seed=SEEDS)
def test_a_seed_makes_the_same_plan_again(seed: int) -> None:
    assert [*islice(plan(seed), 50)] == [*islice(plan(seed), 50)]


@given(seed=SEEDS)
def test_each_round_has_every_kind(seed: int) -> None:
    counts = Counter(fault.kind for fault in islice(plan(seed), 3 * len(OUTAGES)))
    assert counts == dict.fromkeys(OUTAGES, 3)


@given(seed=SEEDS)
def test_even_a_minute_has_faults_of_nodes_and_of_links(seed: int) -> None:
    kinds = {fault.kind for fault in islice(plan(seed), 8)}
    assert len(kinds) == 8
    assert kinds & USUAL.keys()
    assert kinds - USUAL.keys()
