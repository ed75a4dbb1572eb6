from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.durable_streams.core.stream_log import Append, ProducerTuple, StreamLog

PRODUCERS = st.builds(
    ProducerTuple, st.sampled_from(["till-1", "till-2"]), st.integers(0, 2), st.integers(0, 3)
)
APPENDS = st.builds(
    Append,
    st.sampled_from([b"", b"a", b"b"]),
    st.none() | PRODUCERS,
    st.none() | st.sampled_from(["1", "2", "a", "B"]),
    st.booleans(),
).filter(lambda each: bool(each.value or each.closes))


def stored(appends: list[Append]) -> list[tuple[Append, dict[str, bytes]]]:
    """Return the appends that a stream takes, with the headers of their messages."""
    log, taken = StreamLog(), []
    for append in appends:
        if log.judge(append).stored:
            headers = append.headers()
            log.apply(log.next_offset, append.value, headers)
            taken.append((append, headers))
    return taken


def replayed(messages: list[tuple[Append, dict[str, bytes]]]) -> StreamLog:
    log = StreamLog()
    for offset, (append, headers) in enumerate(messages):
        log.apply(offset, append.value, headers)
    return log


@given(st.lists(APPENDS, max_size=12), APPENDS)
def test_what_is_stored_decides_about_what_follows(appends: list[Append], last: Append) -> None:
    messages = stored(appends)
    log = replayed(messages)
    again = replayed(stored([append for append, _ in messages]))
    assert log.judge(last) == again.judge(last)
    assert (log.closed, log.tail) == (again.closed, again.tail)


@given(st.lists(APPENDS, max_size=20))
def test_the_batch_of_a_producer_is_stored_once(appends: list[Append]) -> None:
    taken = [append.producer for append, _ in stored(appends) if append.producer]
    assert len(taken) == len(set(taken))


@given(st.lists(APPENDS, max_size=20))
def test_nothing_follows_the_close(appends: list[Append]) -> None:
    closing = [append.closes for append, _ in stored(appends)]
    assert True not in closing[:-1]


@given(st.lists(APPENDS, max_size=20))
def test_stream_seq_increases(appends: list[Append]) -> None:
    found = [append.stream_seq.encode() for append, _ in stored(appends) if append.stream_seq]
    assert found == sorted(set(found))


@given(st.lists(APPENDS, max_size=20))
def test_a_repeat_of_what_is_stored_is_not_stored(appends: list[Append]) -> None:
    messages = stored(appends)
    log = replayed(messages)
    for append, _ in messages:
        if append.producer is not None:
            outcome = log.judge(append)
            assert not outcome.stored
            assert outcome.status in {204, 403, 409}
    if messages and messages[-1][0].producer is not None:
        assert log.judge(messages[-1][0]).status == 204


@given(st.lists(APPENDS, max_size=12), st.integers(0, 12), APPENDS)
def test_a_snapshot_stands_for_all_before_it(
    appends: list[Append], count: int, last: Append
) -> None:
    messages = stored(appends)
    whole = replayed(messages)
    log = StreamLog.from_snapshot(replayed(messages[:count]).snapshot(10_000))
    for append, headers in messages[count:]:
        log.apply(log.next_offset, append.value, headers)
    assert log.judge(last) == whole.judge(last)
    assert log.snapshot(10_000) == whole.snapshot(10_000)


def test_a_snapshot_has_the_producers_that_appended_last() -> None:
    log = StreamLog()
    for n in (*range(100), 0):
        by = ProducerTuple(f"till-{n}", 0, int(n == 0 and log.next_offset > 0))
        log.apply(log.next_offset, b"a", Append(b"a", by).headers())
    found = StreamLog.from_snapshot(log.snapshot(1_000))
    assert found.judge(Append(b"a", ProducerTuple("till-0", 0, 1))).status == 204
    assert found.judge(Append(b"a", ProducerTuple("till-99", 0, 0))).status == 204
    assert found.judge(Append(b"a", ProducerTuple("till-1", 0, 0))).status == 200


def test_a_message_without_data_moves_no_end() -> None:
    log = StreamLog()
    log.apply(0, b"a", {})
    log.apply(1, b"", Append(b"", closes=True).headers())
    assert (log.tail, log.next_offset, log.closed) == (1, 2, True)


def test_a_stale_epoch_is_refused_even_if_the_stream_is_closed() -> None:
    log = StreamLog()
    log.apply(0, b"a", Append(b"a", ProducerTuple("p", 3, 0), closes=True).headers())
    assert log.judge(Append(b"b", ProducerTuple("p", 2, 0))).status == 403
    assert log.judge(Append(b"b", ProducerTuple("p", 3, 1))).status == 409
    assert log.judge(Append(b"b", ProducerTuple("p", 3, 0))).status == 204


def test_another_content_type_is_refused_before_numbers_are() -> None:
    outcome = StreamLog().judge(Append(b"a", ProducerTuple("p", 0, 5)), type_matches=False)
    assert (outcome.status, outcome.text) == (409, "the content type is not the stream's")


@pytest.mark.parametrize("number", [b"", b"x", b"9" * 5_000, b"\xff", b"-1"])
def test_a_foreign_message_changes_no_producer(number: bytes) -> None:
    log = StreamLog()
    headers = {"ds-producer": b"\xff", "ds-epoch": number, "ds-stream-seq": b"\xff"}
    log.apply(0, b"x", headers)
    assert log.tail == 1
    assert log.judge(Append(b"y", ProducerTuple("p", 0, 0))).stored
