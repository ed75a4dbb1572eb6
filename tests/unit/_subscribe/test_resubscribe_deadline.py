from __future__ import annotations

from math import inf

import pytest

from liftbridge_aio._subscribe.core.resubscribe_deadline import GiveUp, ResubscribeDeadline

START, RESUME = 10.0, 30.0


@pytest.fixture
def deadline() -> ResubscribeDeadline:
    """A reading that begins at 100."""
    return ResubscribeDeadline(100.0, START, RESUME)


def test_beginning_takes_no_longer_than_its_timeout(deadline: ResubscribeDeadline) -> None:
    assert deadline.left(100.0) == START
    assert deadline.left(107.0) == START - 7
    assert deadline.try_again(108.0, 2.0) is None
    assert deadline.try_again(108.0, 2.1) is GiveUp.OUT_OF_TIME
    deadline.begin(200.0)
    assert deadline.left(200.0) == START


def test_going_on_is_counted_from_the_break(deadline: ResubscribeDeadline) -> None:
    assert deadline.accepted(101.0) == 0
    assert deadline.try_again(500.0, 1.0) is None
    assert deadline.left(500.0) == START  # of one step
    assert deadline.left(525.0) == 5.0
    assert deadline.try_again(529.0, 1.0) is None
    assert deadline.accepted(529.5) == 29.5
    assert deadline.try_again(600.0, 1.0) is None
    assert deadline.try_again(629.0, 1.1) is GiveUp.OUT_OF_TIME


def test_a_reading_may_try_for_ever() -> None:
    deadline = ResubscribeDeadline(0.0, START, inf)
    deadline.accepted(0.0)
    assert deadline.try_again(1.0, 1.0) is None
    assert deadline.try_again(1e9, 1.0) is None


def test_tries_are_forgotten_once_it_has_delivered_or_stood(deadline: ResubscribeDeadline) -> None:
    deadline.attempts = 3
    deadline.broke(1.0)
    assert deadline.attempts == 3
    deadline.broke(1.1)
    assert deadline.attempts == 0
    deadline.attempts = 3
    deadline.delivered()
    assert deadline.attempts == 0


def test_a_tls_failure_is_final_at_once_at_first_and_after_a_while_later() -> None:
    deadline = ResubscribeDeadline(0.0, START, inf)
    assert deadline.try_again(1.0, 0.1, untrusted=True) is GiveUp.UNTRUSTED
    deadline.accepted(2.0)
    assert deadline.try_again(100.0, 1.0, untrusted=True) is None
    assert deadline.try_again(104.0, 1.0, untrusted=True) is None
    assert deadline.try_again(104.0, 1.0) is None  # another failure between
    assert deadline.try_again(105.0, 1.0, untrusted=True) is None
    assert deadline.try_again(109.5, 1.0, untrusted=True) is GiveUp.UNTRUSTED
