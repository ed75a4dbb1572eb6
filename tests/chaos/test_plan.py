"""Plans: the same by their seed, and with all kinds of faults."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.inflict import DEEDS
from chaos.plan import LONG, LONGEST, SHORT, Kind, plan

SEEDS = st.integers(0, 10**6)
ROUND = len(SHORT) + len(LONG) + 1


@given(seed=SEEDS)
def test_a_seed_makes_the_same_plan_again(seed: int) -> None:
    assert list(islice(plan(seed), 3 * ROUND)) == list(islice(plan(seed), 3 * ROUND))


def test_seeds_make_different_plans() -> None:
    kinds = {tuple(fault.kind for fault in islice(plan(seed), 10)) for seed in range(20)}
    assert len(kinds) == 20


@given(seed=SEEDS)
def test_three_rounds_have_every_kind(seed: int) -> None:
    faults = list(islice(plan(seed), 3 * ROUND))
    assert [fault.number for fault in faults] == list(range(1, len(faults) + 1))
    counts = Counter(fault.kind for fault in faults)
    assert counts == {kind: 1 if kind in LONGEST else 3 for kind in Kind}


@given(seed=SEEDS)
def test_even_a_minute_has_faults_of_many_kinds(seed: int) -> None:
    faults = list(islice(plan(seed), 8))
    assert len({fault.kind for fault in faults}) == 8
    assert {fault.kind for fault in faults} & {*LONG, *LONGEST}
    assert {fault.kind for fault in faults} & {*SHORT}


@given(seed=SEEDS)
def test_chance_always_chooses_something(seed: int) -> None:
    for fault in islice(plan(seed), ROUND):
        assert fault.choose(["a"]) == "a"
        assert fault.choose(["a", "b", "c"]) in {"a", "b", "c"}


@given(seed=SEEDS)
def test_what_is_not_noticed_at_once_lasts_until_it_is(seed: int) -> None:
    for fault in islice(plan(seed), ROUND):
        late = fault.kind in {Kind.HALF_OPEN, Kind.STALL, Kind.SILENT}
        # Clients notice within 2.5 seconds, see `crew.OPTIONS`.
        assert (fault.lasts >= 3.0) is late


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_can_be_done(kind: Kind) -> None:
    assert kind in DEEDS
