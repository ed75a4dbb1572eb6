from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.model import StreamPartition
from liftbridge_aio.spark.core.data_loss import (
    Finding,
    LogState,
    Loss,
    judge_gap,
    judge_position,
    judge_range,
    judge_streams,
    raise_or_warn,
    readable,
)
from liftbridge_aio.spark.core.offsets import OffsetRange, Offsets
from liftbridge_aio.spark.errors import CheckpointMismatch, DataLoss, StreamMissing

PLACE = StreamPartition("orders", 1)
small = st.integers(0, 30)


@st.composite
def logs(draw: st.DrawFn) -> LogState:
    earliest, end, stored = sorted(draw(st.tuples(small, small, small)))
    return LogState(earliest, end, draw(st.sampled_from([None, stored])))


def found(finding: Finding | None) -> Finding:
    assert finding is not None
    return finding


@given(small, logs())
def test_a_position_is_fine_exactly_where_no_message_behind_it_is_gone(
    position: int, log: LogState
) -> None:
    finding = judge_position(PLACE, position, log)
    assert (finding is None) == (log.earliest <= position <= log.reach)


@given(small, logs(), st.booleans())
def test_a_query_that_accepts_the_loss_can_go_on_and_reads_nothing_twice(
    position: int, log: LogState, recreated: bool
) -> None:
    finding = judge_position(PLACE, position, log, recreated=recreated)
    if finding is None:
        return
    assert finding.resume_at is not None
    if recreated:
        assert finding.resume_at == log.earliest  # other messages than those that were read
    else:
        assert finding.resume_at >= min(position, log.reach)
        assert log.earliest <= finding.resume_at <= log.reach


@given(small, small, logs())
def test_what_is_readable_of_a_range_is_all_that_is_there_of_it(
    start: int, count: int, log: LogState
) -> None:
    wanted = OffsetRange(*PLACE, start, start + count)
    rest = readable(wanted, log)
    there = set(range(wanted.start, wanted.end)) & set(range(log.earliest, log.reach))
    assert set(range(rest.start, rest.end)) == there
    assert wanted.start <= rest.start <= rest.end <= wanted.end
    assert (judge_range(wanted, log) is None) == (rest.count == wanted.count)
    if judge_range(wanted, log) is not None:
        assert judge_range(rest, log) is None


def test_a_range_of_a_stream_that_was_created_anew_cannot_be_read_at_all() -> None:
    wanted, log = OffsetRange(*PLACE, 3, 8), LogState(0, 100)
    finding = found(judge_range(wanted, log, recreated=True))
    assert finding.loss is Loss.RECREATED
    assert finding.resume_at == 8
    assert readable(wanted, log, recreated=True).count == 0


def test_a_new_leader_that_does_not_know_its_high_watermark_lost_nothing() -> None:
    assert judge_position(PLACE, 10, LogState(0, 4, stored_end=10)) is None
    assert judge_range(OffsetRange(*PLACE, 5, 10), LogState(0, 4, stored_end=10)) is None


def test_compaction_is_no_loss() -> None:
    wanted = OffsetRange(*PLACE, 0, 100)
    assert judge_gap(wanted, expected=20, seen=60, earliest=3) is None
    assert judge_gap(wanted, expected=20, seen=60, earliest=20) is None
    assert judge_gap(wanted, expected=20, seen=20, earliest=90) is None


def test_retention_in_the_middle_of_a_range_is_loss() -> None:
    finding = found(judge_gap(OffsetRange(*PLACE, 0, 50), expected=20, seen=60, earliest=55))
    assert finding.loss is Loss.AGED_OUT
    assert (finding.offset, finding.resume_at) == (20, 50)
    assert "offsets 20 to 49" in finding.detail


@pytest.mark.parametrize(
    ("finding", "kind", "words"),
    [
        (
            judge_position(PLACE, 5, LogState(7, 9)),
            DataLoss,
            [
                "offsets 5 to 6",
                "offset=5",
                "retention",
                "failOnDataLoss=false the query continues at",
            ],
        ),
        (
            judge_position(PLACE, 50, LogState(7, 9)),
            DataLoss,
            ["ends before offset 9", "checkpointLocation", "startingOffsets", "at offset 9"],
        ),
        (
            judge_position(PLACE, 5, LogState(2, 9), recreated=True),
            DataLoss,
            ["created again", "offset=5", "checkpointLocation", "at offset 2"],
        ),
        (
            judge_streams(Offsets({PLACE: 5}), {})[0],
            StreamMissing,
            ["no longer exists", "create", "failOnDataLoss=false the query continues without it"],
        ),
        (
            judge_streams(Offsets({PLACE: 5}), {"orders": 1})[0],
            CheckpointMismatch,
            ["the stream now ends at partition 0", "checkpointLocation", "without it"],
        ),
        (
            judge_streams(Offsets({PLACE: 5}), {"orders": 2}, [StreamPartition("totals", 0)])[0],
            CheckpointMismatch,
            ["options do not name", "checkpointLocation", "subscribe"],
        ),
    ],
)
def test_the_text_says_what_where_and_which_option_to_change(
    finding: Finding | None, kind: type[Exception], words: list[str]
) -> None:
    error = found(finding).error(streaming=True)
    assert type(error) is kind
    for word in [f"[{error.code}]", "stream='orders'", "partition=1", *words]:
        assert word in str(error)


def test_a_batch_read_is_told_of_the_offsets_it_was_given() -> None:
    below = found(judge_range(OffsetRange(*PLACE, 1, 9), LogState(5, 9)))
    assert "set startingOffsets" in str(below.error(streaming=False))
    above = found(judge_range(OffsetRange(*PLACE, 5, 12), LogState(5, 9)))
    assert "endingOffsets" in str(above.error(streaming=False))
    assert above.offset == 9


def test_streams_that_are_there_and_meant_are_fine() -> None:
    positions = Offsets({("orders", 0): 5, PLACE: 6})
    assert judge_streams(positions, {"orders": 2, "totals": 1}) == []
    assert judge_streams(positions, {"orders": 2}, list(positions)) == []


def test_each_stream_that_is_gone_is_told_once() -> None:
    positions = Offsets({("a", 0): 1, ("a", 1): 1, ("b", 0): 1, ("c", 0): 1})
    findings = judge_streams(positions, {"c": 1})
    assert [(finding.loss, finding.place) for finding in findings] == [
        (Loss.STREAM_GONE, ("a", 0)),
        (Loss.STREAM_GONE, ("b", 0)),
    ]


def test_each_stream_that_is_not_meant_any_more_is_told_once() -> None:
    positions = Offsets({("a", 0): 1, ("a", 1): 2, ("a", 2): 3})
    findings = judge_streams(positions, {"a": 3}, [StreamPartition("a", 0)])
    assert [(finding.loss, finding.place) for finding in findings] == [
        (Loss.NOT_SELECTED, ("a", 1))
    ]


def test_a_loss_ends_the_query_unless_it_accepts_losses() -> None:
    findings = [
        found(judge_position(PLACE, 5, LogState(7, 9))),
        *judge_streams(Offsets({("totals", 0): 3}), {}),
    ]
    with pytest.raises(DataLoss, match="offsets 5 to 6"):
        raise_or_warn(findings, fail_on_data_loss=True, streaming=True)
    told = raise_or_warn(findings, fail_on_data_loss=False, streaming=True)
    assert [text.split(" ")[0] for text in told] == [
        "[LIFTBRIDGE_DATA_LOSS]",
        "[LIFTBRIDGE_STREAM_MISSING]",
    ]
    assert "continues at offset 7" in told[0]
    assert "stream='totals', partition=0, offset=3" in told[1]


def test_without_a_loss_there_is_nothing_to_tell() -> None:
    assert raise_or_warn([], fail_on_data_loss=True, streaming=True) == []
