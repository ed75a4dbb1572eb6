from __future__ import annotations

from math import inf

import pytest

from liftbridge_aio.reading_patience import GiveUp, ReadingPatience

START, RESUME, NOT_FOUND = 10.0, 30.0, 5.0


@pytest.fixture
def patience() -> ReadingPatience:
    """A reading that begins at 100."""
    return ReadingPatience(100.0, START, RESUME, NOT_FOUND)


def test_beginning_takes_no_longer_than_its_timeout(patience: ReadingPatience) -> None:
    assert patience.left(100.0) == START
    assert patience.left(107.0) == START - 7
    assert patience.try_again(108.0, 2.0, not_found=False) is None
    assert patience.try_again(108.0, 2.1, not_found=False) is GiveUp.OUT_OF_TIME
    patience.begin(200.0)
    assert patience.left(200.0) == START


def test_going_on_is_counted_from_the_break(patience: ReadingPatience) -> None:
    assert patience.accepted(101.0) == 0
    assert patience.try_again(500.0, 1.0, not_found=False) is None
    assert patience.left(500.0) == START  # of one step
    assert patience.left(525.0) == 5.0
    assert patience.try_again(529.0, 1.0, not_found=False) is None
    assert patience.accepted(529.5) == 29.5
    assert patience.try_again(600.0, 1.0, not_found=False) is None
    assert patience.try_again(629.0, 1.1, not_found=False) is GiveUp.OUT_OF_TIME


def test_a_reading_may_try_for_ever() -> None:
    patience = ReadingPatience(0.0, START, inf, NOT_FOUND)
    patience.accepted(0.0)
    assert patience.try_again(1.0, 1.0, not_found=False) is None
    assert patience.try_again(1e9, 1.0, not_found=False) is None


def test_not_found_is_believed_after_a_while(patience: ReadingPatience) -> None:
    patience.accepted(100.0)
    assert patience.try_again(200.0, 1.0, not_found=True) is None
    assert patience.try_again(204.0, 1.0, not_found=True) is None
    assert patience.try_again(204.0, 1.1, not_found=True) is GiveUp.NOT_FOUND


def test_not_found_is_counted_anew_after_any_other_failure(patience: ReadingPatience) -> None:
    patience.accepted(100.0)
    assert patience.try_again(200.0, 1.0, not_found=True) is None
    assert patience.try_again(202.0, 1.0, not_found=False) is None
    assert patience.try_again(204.5, 1.0, not_found=True) is None


def test_tries_are_forgotten_once_it_has_delivered_or_stood(patience: ReadingPatience) -> None:
    patience.attempts = 3
    patience.broke(1.0)
    assert patience.attempts == 3
    patience.broke(1.1)
    assert patience.attempts == 0
    patience.attempts = 3
    patience.delivered()
    assert patience.attempts == 0


def test_tls_that_fails_is_believed_at_once_before_the_reading_stood_and_later_after_a_while() -> (
    None
):
    patience = ReadingPatience(0.0, START, inf, NOT_FOUND)
    assert patience.try_again(1.0, 0.1, not_found=False, untrusted=True) is GiveUp.UNTRUSTED
    patience.accepted(2.0)
    assert patience.try_again(100.0, 1.0, not_found=False, untrusted=True) is None
    assert patience.try_again(104.0, 1.0, not_found=False, untrusted=True) is None
    assert patience.try_again(104.0, 1.0, not_found=False) is None  # another failure between
    assert patience.try_again(105.0, 1.0, not_found=False, untrusted=True) is None
    assert patience.try_again(109.5, 1.0, not_found=False, untrusted=True) is GiveUp.UNTRUSTED
