"""Rounds put together, and ratios between clients."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cases import Case, Kind
from benchmarks.outcome import Unsupported
from benchmarks.summary import REFERENCE, Failed, Run, Spread, ratio_of, significant, summarize
from support.benchmark_runs import measured

CASE = Case(Kind.CONSUME, 1_000)
RATES = st.lists(st.floats(1, 1e6), min_size=1, max_size=7)


@given(RATES)
def test_a_spread_is_least_median_and_most(values: list[float]) -> None:
    spread = Spread.of(values)
    assert spread.least == min(values)
    assert spread.median == statistics.median(values)
    assert spread.most == max(values)


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(1, 1e6)), min_size=1, max_size=7))
def test_a_ratio_is_that_of_the_medians_within_what_the_rounds_show(
    rounds: list[tuple[float, float]],
) -> None:
    ours, theirs = ([measured(each) for each in rates] for rates in zip(*rounds, strict=True))
    ratio = ratio_of(ours, theirs)
    assert ratio is not None
    expected = statistics.median(a for a, _ in rounds) / statistics.median(b for _, b in rounds)
    assert ratio.median == pytest.approx(expected)
    assert ratio.least <= ratio.median <= ratio.most
    assert ratio.least <= min(a / b for a, b in rounds) * (1 + 1e-9)
    assert ratio.most >= max(a / b for a, b in rounds) * (1 - 1e-9)


def test_rounds_are_compared_with_each_other_and_not_with_the_medians() -> None:
    # The machine was half as fast in the second round: both clients were, and the ratio held.
    ours, theirs = [measured(200), measured(100)], [measured(100), measured(50)]
    assert ratio_of(ours, theirs) == Spread(2, 2, 2)


def test_a_failed_round_is_left_out_of_the_figures_and_told() -> None:
    runs: list[Run] = [measured(100), Failed("lost"), measured(300)]
    summary = summarize(CASE, {"ours": runs, REFERENCE: [measured(100)] * 3})
    ours, reference = summary.clients
    assert ours.figures["messages_per_second"] == Spread(100, 200, 300)
    assert ours.ratio == Spread(1, 2, 3)
    assert ours.remark == "1 of 3 runs failed: lost"
    assert ours.failed
    assert not reference.failed
    assert reference.remark == ""


def test_what_a_client_could_do_at_times_is_told_with_how_often() -> None:
    runs: list[Run] = [measured(100), Unsupported("too slow"), Unsupported("too slow")]
    [peer] = summarize(CASE, {"peer": runs}).clients
    assert peer.remark == "could not do 2 of 3 runs: too slow"
    assert not peer.failed


def test_processor_time_is_per_message_and_the_servers_has_the_warm_up() -> None:
    run = measured(100, cpu=7.5, messages=8_000, server_cpu=0.1, server_messages=2_000)
    [ours] = summarize(CASE, {"ours": [run]}).clients
    assert ours.figures["client_cpu_seconds_per_million"].median == pytest.approx(7.5)
    assert ours.figures["server_cpu_seconds_per_million"].median == pytest.approx(10)


@given(st.floats(1e-6, 1e12))
def test_significant_figures_are_close(value: float) -> None:
    assert significant(value) == pytest.approx(value, rel=1e-3)
    assert len(f"{significant(value):e}".split("e")[0].rstrip("0").replace(".", "")) <= 4
