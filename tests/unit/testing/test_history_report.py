"""The text of the report of a broken history."""

from __future__ import annotations

from textwrap import dedent

import pytest

from liftbridge_aio.testing import (
    DefectKind,
    EventKind,
    Guarantee,
    History,
    HistoryBroken,
    check_history,
)


def history_of(count: int, *, sent: bool = True, given: bool = True) -> History:
    history = History(clock=iter(range(10**9)).__next__)
    for number in range(count):
        if sent:
            history.sent(b"%d" % number, 0)
            history.acked(b"%d" % number, 0)
        if given:
            history.delivered(b"%d" % number, 0, offset=100 + number)
    history.finished(0)
    return history


def test_a_history_that_holds_says_so_and_how_much_it_was() -> None:
    report = check_history(history_of(1_500))
    assert report.ok
    assert report.complete
    report.raise_for_defects()
    assert str(report) == (
        "The history (exactly once; order: per producer and partition) holds\n"
        "  sent 1,500, acked 1,500, delivered 1,500"
    )


def test_nothing_at_all_holds() -> None:
    report = check_history(History())
    report.raise_for_defects()
    assert "nothing happened" in str(report)


@pytest.mark.parametrize(
    ("sent", "given", "kind"),
    [(True, False, DefectKind.LOST), (False, True, DefectKind.INVENTED)],
)
def test_the_text_stays_short_however_much_is_broken(
    sent: bool, given: bool, kind: DefectKind
) -> None:
    report = check_history(history_of(2_000, sent=sent, given=given))
    assert report.total.of(kind) == 2_000
    assert len(report.findings) == 3
    with pytest.raises(HistoryBroken, match=f"broken: 2,000 {kind.value}") as caught:
        report.raise_for_defects()
    assert len(str(caught.value).splitlines()) < 100


def test_long_values_are_cut() -> None:
    history = History(clock=lambda: 0.0)
    history.delivered(b"x" * 10_000, 0)
    text = str(check_history(history))
    assert "of 10,000 bytes" in text
    assert len(text) < 2_000


def test_the_timeline_shows_what_happened_side_by_side() -> None:
    history = History()
    for number, moment in ((1, 0.5), (2, 1.0), (3, 1.5)):
        history.sent(b"%d" % number, 7, producer="p", time=moment)
    for number, moment in ((1, 0.75), (2, 1.25), (3, 2.0)):
        history.acked(b"%d" % number, 7, producer="p", time=moment)
    history.delivered(b"1", 7, reader="r", offset=40, time=1.1)
    history.delivered(b"3", 7, reader="r", offset=42, time=2.5)
    history.delivered(b"1", 7, reader="somebody else", time=2.6)
    history.delivered(b"another partition", 8, time=2.7)
    history.finished(7, reader="r", time=3.0)
    (lost,) = [one for one in check_history(history).defects if one.kind is DefectKind.LOST]
    headline, _, timeline = str(lost).partition("\n")
    assert headline == (
        "LOST b'2' (partition 7, reader r, position 1): acked once, delivered 0 times; b'3', which "
        "p sent later, came at position 1; the partition was read to its end"
    )
    assert dedent(timeline) == dedent(
        """\
                      time  sent     outcome     delivered
                  0.500000  p: b'1'
                  0.750000           acked b'1'
          >       1.000000  p: b'2'
                  1.100000                       r: b'1' at 0 (offset 40)
          >       1.250000           acked b'2'
                  1.500000  p: b'3'
                  2.000000           acked b'3'
                  2.500000                       r: b'3' at 1 (offset 42)
                  3.000000                       r: finished"""
    )


@pytest.mark.parametrize(("context", "rows", "gaps"), [(1, 6, 1), (6, 17, 0)])
def test_the_timeline_shows_as_much_as_was_asked_for(context: int, rows: int, gaps: int) -> None:
    """Around the send of 50, and four events later around the delivery of 51."""
    history = History()
    history.extend(
        event
        for event in history_of(100).events
        if (event.kind, event.value) != (EventKind.DELIVERED, b"50")
    )
    (defect,) = check_history(history, context=context).defects
    assert [row.event.value for row in defect.timeline if row.concerned] == [b"50", b"50"]
    assert len(defect.timeline) == rows
    assert [row.after_gap for row in defect.timeline].count(True) == gaps


def test_what_a_guarantee_allows_is_not_told_as_a_defect() -> None:
    history = history_of(3)
    history.delivered(b"1", 0)
    report = check_history(history, Guarantee.AT_LEAST_ONCE)
    assert "repeated 1" in str(report)
    assert "REPEATED" not in str(report)
    assert [finding.kind for finding in report.findings] == [DefectKind.REPEATED]


def test_counts_are_kept_by_partition() -> None:
    history = history_of(4)
    history.sent(b"a", 3)
    history.refused(b"a", 3)
    history.acked(b"unfounded", 9)
    partitions = dict(check_history(history).partitions)
    assert list(partitions) == [0, 3, 9]
    assert (partitions[0].acked, partitions[0].delivered) == (4, 4)
    assert (partitions[3].sent, partitions[3].refused) == (1, 1)
    assert partitions[9].unfounded == 1
