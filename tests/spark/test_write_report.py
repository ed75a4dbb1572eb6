"""Repeats of rows are counted by the identities that a sink gives to rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.spark.write_id import WRITE_ID_HEADER, TaskAttempt, WriteId
from liftbridge_aio.spark.write_report import RepeatCounter

QUERY = "0ffee"


def attempt(batch: int, task: int, name: str = "first") -> TaskAttempt:
    return TaskAttempt(QUERY, batch, task, 0, name)


def test_an_identity_says_query_batch_task_and_row() -> None:
    written = TaskAttempt("write/of mine", 7, 3, 1, "abc").headers(first=100, count=2)
    assert [WriteId.decode(headers[WRITE_ID_HEADER]) for headers in written] == [
        WriteId("write/of mine", 7, 3, 100),
        WriteId("write/of mine", 7, 3, 101),
    ]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(0, 2),
            st.integers(0, 5) | st.integers(4090, 4100),  # a block ends at 4096
            st.integers(0, 9),
        ),
        max_size=12,
    )
)
def test_every_message_is_a_row_or_a_repeat_and_gaps_are_seen(
    runs: list[tuple[int, int, int, int]],
) -> None:
    counter = RepeatCounter()
    seen: set[tuple[int, int, int]] = set()
    repeats = 0
    for number, (batch, task, first, count) in enumerate(runs):
        for row, headers in enumerate(
            attempt(batch, task, f"{number}").headers(first, count), start=first
        ):
            repeated = counter.add(headers)
            assert repeated == ((batch, task, row) in seen)
            repeats += repeated
            seen.add((batch, task, row))
    report = counter.report()
    highest: dict[tuple[int, int], int] = {}
    for batch, task, row in seen:
        highest[batch, task] = max(row, highest.get((batch, task), 0))
    assert (report.rows, report.repeats, report.unmarked) == (len(seen), repeats, 0)
    assert report.gaps == sum(last + 1 for last in highest.values()) - len(seen)


def test_batches_are_told_apart_and_attempts_are_counted() -> None:
    counter = RepeatCounter()
    for headers in (
        *attempt(0, 0).headers(0, 3),
        *attempt(1, 0, "failed").headers(0, 2),
        *attempt(1, 0, "again").headers(0, 4),
        *attempt(1, 1).headers(0, 1),
    ):
        counter.add(headers)
    first, second = counter.report().batches
    assert (first.batch, first.rows, first.repeats, first.attempts) == (0, 3, 0, 1)
    assert (second.batch, second.rows, second.repeats, second.attempts) == (1, 5, 2, 3)
    assert str(counter.report()).splitlines() == [
        "8 rows, 2 repeats, 0 gaps, 0 messages without an identity",
        f"  batch 1 of query {QUERY}: 5 rows, 2 repeats, 0 gaps, 3 attempts",
    ]


def test_messages_of_others_are_counted_apart() -> None:
    counter = RepeatCounter()
    for headers in ({}, {WRITE_ID_HEADER: b"nonsense"}, {WRITE_ID_HEADER: b"q/0/0/-1"}):
        assert not counter.add(headers)
    assert counter.report().unmarked == 3
    assert counter.report().rows == 0


def test_the_number_of_a_row_that_somebody_made_up_takes_no_memory() -> None:
    counter = RepeatCounter()
    assert not counter.add({WRITE_ID_HEADER: b"q/0/0/%d" % 10**15})
    assert counter.add({WRITE_ID_HEADER: b"q/0/0/%d" % 10**15})
    report = counter.report()
    assert (report.rows, report.repeats, report.gaps) == (1, 1, 10**15)
