from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.retry import DEFAULT_BACKOFF, Backoff, Retry, wait_before_try

lengths = st.floats(1e-9, 1e9)
factors = st.floats(1, 1e300)
fractions = st.floats(0, 1, exclude_max=True)
attempts = st.integers(0, 10**6)


def backoff_of(one: float, other: float, factor: float) -> Backoff:
    return Backoff(min(one, other), max(one, other), factor)


@given(lengths, lengths, factors, attempts, fractions)
def test_a_wait_is_never_negative_and_never_above_the_maximum(
    one: float, other: float, factor: float, attempt: int, fraction: float
) -> None:
    backoff = backoff_of(one, other, factor)
    assert 0 <= backoff.delay(attempt, fraction) <= backoff.maximum


@given(lengths, lengths, factors, attempts)
def test_ceilings_only_grow(one: float, other: float, factor: float, attempt: int) -> None:
    backoff = backoff_of(one, other, factor)
    assert backoff.initial == backoff.delay(0, 1.0)
    assert backoff.delay(attempt, 1.0) <= backoff.delay(attempt + 1, 1.0)


@given(lengths, lengths, st.floats(1.001, 1e300))
def test_the_maximum_is_reached(one: float, other: float, factor: float) -> None:
    backoff = backoff_of(one, other, factor)
    enough = math.ceil(math.log(backoff.maximum / backoff.initial) / math.log(factor)) + 1
    assert backoff.delay(enough, 1.0) == backoff.maximum


@given(attempts, fractions)
def test_the_wait_is_the_given_part_of_the_ceiling(attempt: int, fraction: float) -> None:
    assume(fraction > 0)
    ceiling = DEFAULT_BACKOFF.delay(attempt, 1.0)
    assert DEFAULT_BACKOFF.delay(attempt, fraction) == pytest.approx(ceiling * fraction)


def test_the_default_goes_from_50_ms_to_2_s() -> None:
    ceilings = [DEFAULT_BACKOFF.delay(attempt, 1.0) for attempt in range(8)]
    assert ceilings == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


@pytest.mark.parametrize(
    ("initial", "maximum", "factor", "named"),
    [
        (0, 1, 2, "initial"),
        (-1, 1, 2, "initial"),
        (2, 1, 2, "maximum"),
        (1, math.inf, 2, "maximum"),
        (math.inf, math.inf, 2, "initial"),
        (math.nan, 1, 2, "initial"),
        (1, math.nan, 2, "maximum"),
        (1, 2, 0.5, "factor"),
        (1, 2, math.nan, "factor"),
    ],
)
def test_backoffs_that_make_no_sense_are_refused(
    initial: float, maximum: float, factor: float, named: str
) -> None:
    with pytest.raises(InvalidRequest, match=f"^{named} must be"):
        Backoff(initial, maximum, factor)


@pytest.mark.parametrize("attempts", [0, -1])
def test_there_is_at_least_one_attempt(attempts: int) -> None:
    with pytest.raises(InvalidRequest, match="at least 1"):
        Retry(attempts)
    assert Retry(1).attempts == 1


@given(st.lists(st.floats(0.001, 5), min_size=50), st.floats(0.3, 10))
def test_the_last_of_all_tries_comes_shortly_before_the_end(
    delays: list[float], time: float
) -> None:
    now = 0.0
    for delay in delays:
        wait = wait_before_try(delay, time - now)
        if wait is None:
            assert 0 < time - now <= 0.25 + 1e-9
            return
        assert 0 < wait <= delay
        now += wait
    assert now < time
