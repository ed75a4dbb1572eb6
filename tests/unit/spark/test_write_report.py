"""Repeats of rows are counted by the identities that a sink gives to rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.spark.core.write_id import ATTEMPT_BYTES, WRITE_ID_HEADER, TaskAttempt, WriteId
from liftbridge_aio.spark.write_report import RepeatCounter

QUERY = UUID("0ffee000-1111-4222-8333-444444444444")


def written(
    batch: int, task: int, rows: Iterable[int], name: str = "first"
) -> Iterator[dict[str, bytes]]:
    """The headers of messages that an attempt of a task published."""
    attempt = TaskAttempt(QUERY, batch, task, 0, name.encode().ljust(ATTEMPT_BYTES))
    return ({WRITE_ID_HEADER: content} for content in attempt.write_ids(rows))


def test_an_identity_has_the_bytes_that_the_guide_describes() -> None:
    attempt = TaskAttempt(QUERY, 7, 3, 1, b"attempt1")
    again = TaskAttempt(QUERY, 7, 3, 0, b"attempt2")
    assert list(attempt.write_ids([100, 2**40])) == [
        b"\x01" + QUERY.bytes + bytes([0] * 7 + [7] + [0] * 3 + [3]) + row + b"attempt1"
        for row in ((100).to_bytes(8, "big"), (2**40).to_bytes(8, "big"))
    ]
    for one, other in zip(attempt.write_ids(range(3)), again.write_ids(range(3)), strict=True):
        assert (len(one), one[:37], one[37:]) == (45, other[:37], b"attempt1")


@given(
    st.builds(
        TaskAttempt,
        st.uuids(),
        st.integers(0, 2**63 - 1),
        st.integers(0, 2**31 - 1),
        st.integers(0, 9),
        st.binary(min_size=ATTEMPT_BYTES, max_size=ATTEMPT_BYTES),
    ),
    st.lists(st.integers(0, 2**63 - 1), max_size=5),
)
def test_an_identity_says_query_batch_task_row_and_attempt(
    attempt: TaskAttempt, rows: list[int]
) -> None:
    assert [WriteId.decode(content) for content in attempt.write_ids(rows)] == [
        WriteId(attempt.query.bytes, attempt.batch, attempt.task, row, attempt.id) for row in rows
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
        rows = range(first, first + count)
        for row, headers in zip(rows, written(batch, task, rows, f"{number}"), strict=True):
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
        *written(0, 0, range(3)),
        *written(1, 0, range(2), "failed"),
        *written(1, 0, range(4), "again"),
        *written(1, 1, range(1), "other"),
    ):
        counter.add(headers)
    first, second = counter.report().batches
    assert (first.batch, first.rows, first.repeats, first.attempts) == (0, 3, 0, 1)
    assert (second.batch, second.rows, second.repeats, second.attempts) == (1, 5, 2, 3)
    assert str(counter.report()).splitlines() == [
        "8 rows, 2 repeats, 0 gaps, 0 messages without a write id",
        f"  batch 1 of query {QUERY}: 5 rows, 2 repeats, 0 gaps, 3 attempts",
    ]


def test_messages_of_others_are_counted_apart() -> None:
    counter = RepeatCounter()
    [whole] = written(0, 0, [0])
    content = whole[WRITE_ID_HEADER]
    for other in (b"", b"nonsense", content[:-1], content + b"0", b"\x02" + content[1:]):
        assert not counter.add({WRITE_ID_HEADER: other})
    assert not counter.add({})
    assert counter.report().unmarked == 6
    assert counter.report().rows == 0


def test_the_number_of_a_row_that_somebody_made_up_takes_no_memory() -> None:
    counter = RepeatCounter()
    assert [counter.add(headers) for headers in written(0, 0, [10**15, 10**15])] == [False, True]
    report = counter.report()
    assert (report.rows, report.repeats, report.gaps) == (1, 1, 10**15)
