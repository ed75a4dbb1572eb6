"""What committed readings show: followers and readers of ranges agree on random logs."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liftbridge_aio.transactions.core.visibility import (
    Event,
    Follower,
    Replay,
    Row,
)
from support.examples import examples
from support.transaction_logs import (
    BASE,
    STEP,
    Producers,
    followed,
    log_of,
    producer,
    range_of,
    shown,
)

STEPS = (1, STEP, 2**35 + STEP)
"""Clocks with a counter, without one, and such that the lowest word of the time does not rise."""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("- A1c - A2c A3/1/0", "- - A1c A2c"),
        ("A1c B1c A2c B2/1/0 A3/0/0", "B1c A1c A2c"),
        ("A1o A2o A1o A3o", "A1o A2o A3o"),
        ("A1c A2c A0/-1/0 A3/0/0", ""),  # a rollback in between
        ("A1c A2/0/0 A2/0/0", "A1c"),  # a repeated ack
        ("A1c A2c A3c A2/0/0 A4/-1/2", "A1c A2c"),  # the rest is rolled back
        ("A1c A1c A2c A1c A3/0/0", "A1c A2c"),  # repeats
        ("A1c B1c A2/0/0+B2/1/0", "A1c B1c"),
        ("A1c A2o A3/0/0", "A2o"),  # a single message discards the transaction
        ("A1c A0/0/0! A2c A3/0/0", ""),  # the second half of what was aborted
        ("A1c A0/0/0! A2c A3/2/0", "A2c"),  # another transaction after it
        ("A1c A2/-1/0", ""),
        ("A1c A0/0/0", ""),
        ("A1c A2/1/0", ""),  # the ack of another log
        ("A1c A2/7/0 A3/0/0", ""),
        ("A1c A2/0/2", ""),
        ("A1c A2c A3/0/1", "A2c"),  # the first one was committed before
        ("A1c A2c A3c A2/0/0", "A1c A2c"),
        ("A2c A1c A3/0/0", "A2c"),
    ],
)
@pytest.mark.parametrize("step", STEPS)
def test_what_is_shown(step: int, words: str, expected: str) -> None:
    log = log_of(words, step)
    assert shown(followed(log)) == expected
    assert shown(range_of(log, 0, len(log))) == expected


def test_bytes_that_are_no_uuid_make_a_plain_message() -> None:
    events = [Event(0, "short", b"short"), Event(1, "empty", b"")]
    assert shown(followed(events)) == "short empty"


def test_memory_is_bounded_and_the_oldest_transaction_is_read_again() -> None:
    follower: Follower[str] = Follower(max_messages=3)
    log = log_of("A1c A2c B1c B2c A3/0/0 B3/2/0")
    for event in log[:4]:
        assert list(follower.feed(event)) == []
    assert follower.open_spans == {producer("B"): 2}
    (replay,) = follower.feed(log[4])
    assert isinstance(replay, Replay)
    assert (replay.entry.begin, replay.position) == (0, 4)
    assert shown(row for row in follower.feed(log[5]) if isinstance(row, Row)) == "B1c B2c"


def test_a_follower_deduplicates_by_bounded_state() -> None:
    follower: Follower[str] = Follower(max_producers=2)
    assert shown(followed(log_of("A5o B5o C5o"), follower)) == "A5o B5o C5o"
    assert follower.outside == [(producer("B"), BASE + 5 * STEP), (producer("C"), BASE + 5 * STEP)]
    again: Follower[str] = Follower(outside=follower.outside)
    assert shown(followed(log_of("A5o B5o C5o"), again)) == "A5o"


@settings(max_examples=examples(600), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 70))
def test_followers_and_readers_of_ranges_agree(chance: random.Random, length: int) -> None:
    producers = Producers(chance)
    while len(producers.words) < length:
        producers.write()
    log = log_of(" ".join(producers.words), chance.choice(STEPS))
    expected = followed(log)
    assert [row[:3] for row in expected] == sorted(row[:3] for row in expected)
    bounded: Follower[str] = Follower(max_messages=chance.randrange(1, 6))
    assert followed(log, bounded) == expected
    cuts = sorted({0, len(log), *(chance.randrange(len(log) + 1) for _ in range(3))})
    pieces = [
        row
        for start, end in itertools.pairwise(cuts)
        for row in range_of(log, start, end, look_back=len(log))
    ]
    assert pieces == expected
    start = chance.randrange(len(log))
    late = [row for row in followed(log, start=start) if not row.message.endswith("o")]
    assert late == [
        row for row in expected if row.position >= start and not row.message.endswith("o")
    ]
