"""Messages that count as lost, repeated, reordered and invented, case by case."""

from __future__ import annotations

from threading import Thread

import pytest

from liftbridge_aio.testing import (
    DefectKind,
    EventKind,
    Guarantee,
    History,
    HistoryBroken,
    HistoryReport,
    OrderScope,
    check_history,
)


def made(*lines: str) -> History:
    """A history of lines such as `sent p 0 a` or `finished r 0`, one second apart."""
    history = History(clock=iter(range(len(lines))).__next__)
    for line in lines:
        kind, actor, partition, *rest = line.split()
        value, key = (part.encode() for part in [*rest, "", ""][:2])
        match EventKind(kind):
            case EventKind.SENT:
                history.sent(value, int(partition), producer=actor, key=key or None)
            case EventKind.ACKED:
                history.acked(value, int(partition), producer=actor)
            case EventKind.UNKNOWN:
                history.unknown(value, int(partition), producer=actor)
            case EventKind.REFUSED:
                history.refused(value, int(partition), producer=actor)
            case EventKind.DELIVERED:
                history.delivered(value, int(partition), reader=actor, key=key or None)
            case EventKind.FINISHED:
                history.finished(int(partition), reader=actor)
    return history


def acked(*values: str, producer: str = "p", partition: int = 0) -> list[str]:
    return [
        f"{kind} {producer} {partition} {value}" for value in values for kind in ("sent", "acked")
    ]


def given(*values: str, reader: str = "r", partition: int = 0, finished: bool = True) -> list[str]:
    lines = [f"delivered {reader} {partition} {value}" for value in values]
    return [*lines, f"finished {reader} {partition}"] if finished else lines


def found(report: HistoryReport) -> dict[str, int]:
    return {kind.value: report.total.of(kind) for kind in DefectKind if report.total.of(kind)}


# Lost


def test_nothing_is_said_about_what_a_reader_has_not_come_to() -> None:
    report = check_history(made(*acked("a", "b", "c"), *given("a", finished=False)))
    assert report.ok
    assert not report.complete
    assert report.total.unread == 2
    report.raise_for_defects(allow_unread=True)
    with pytest.raises(HistoryBroken, match="not checked: 2 acked messages"):
        report.raise_for_defects()


def test_what_a_reader_read_past_is_lost_even_if_it_goes_on() -> None:
    report = check_history(made(*acked("a", "b", "c", "d"), *given("a", "c", finished=False)))
    assert found(report) == {"lost": 1}
    assert report.total.unread == 1
    (defect,) = report.defects
    assert (defect.value, defect.position) == (b"b", 1)
    assert "b'c', which p sent later, came at position 1" in defect.explanation


def test_later_messages_unknown_or_of_other_producers_prove_no_loss() -> None:
    report = check_history(
        made(
            *acked("a"),
            *["sent p 0 b", "unknown p 0 b"],
            *acked("c", producer="q"),
            *given("b", "c", finished=False),
        )
    )
    assert found(report) == {}
    assert report.total.unread == 1


def test_without_order_only_the_end_of_a_reading_proves_a_loss() -> None:
    lines = [*acked("a", "b"), *given("b", finished=False)]
    assert found(check_history(made(*lines), order=OrderScope.NONE)) == {}
    lines.append("finished r 0")
    assert found(check_history(made(*lines), order=OrderScope.NONE)) == {"lost": 1}


def test_a_partition_that_nobody_reads_is_not_judged() -> None:
    report = check_history(made(*acked("a", partition=1), *given(partition=0)))
    assert report.ok
    assert report.total.unread == 1
    assert dict(report.partitions)[1].unread == 1


# Unknown outcomes


def test_what_has_an_unknown_outcome_comes_once_at_most() -> None:
    history = made("sent p 0 a", "unknown p 0 a", *given("a", "a"))
    assert found(check_history(history)) == {"repeated": 1}
    assert check_history(history, Guarantee.AT_LEAST_ONCE).ok


# Repeated


def test_each_send_of_a_value_may_come() -> None:
    history = made(*acked("a", "a"), *given("a", "a"))
    assert found(check_history(history)) == {}


def test_a_delivery_counts_for_the_acked_one_of_equal_sends() -> None:
    lines = ["sent p 0 a", "unknown p 0 a", *acked("a")]
    assert found(check_history(made(*lines, *given("a")))) == {}
    assert found(check_history(made(*lines, *given("a", "a")))) == {}
    assert found(check_history(made(*lines, *given()))) == {"lost": 1}
    assert found(check_history(made(*lines, *given("a", "a", "a")))) == {"repeated": 1}
    assert check_history(made(*lines, *given("a", "a"))).total.unknown_stored == 1
    assert check_history(made(*lines, *given("a"))).total.unknown_stored == 0


def test_equal_sends_of_two_producers_keep_their_outcomes() -> None:
    lines = ["sent p 0 a", "sent q 0 a", "acked q 0 a", "refused p 0 a"]
    assert found(check_history(made(*lines, *given("a")))) == {}
    assert found(check_history(made(*lines, *given("a", "a")))) == {"repeated": 1}
    assert found(check_history(made(*lines, "acked q 0 a", *given("a")))) == {"unfounded": 1}


def test_of_equal_sends_each_that_is_acked_must_come() -> None:
    report = check_history(made(*acked("a", "a", "a"), *given("a")))
    assert found(report) == {"lost": 2}
    assert "acked 3 times, delivered once" in report.defects[0].explanation
    unread = check_history(made(*acked("a", "a", "a"), *given("a", finished=False)))
    assert unread.total.unread == 2


# Reordered


def test_one_late_message_is_one_defect_however_many_overtook_it() -> None:
    report = check_history(made(*acked(*"abcdef"), *given(*"bcdeaf")))
    assert found(report) == {"reordered": 1}
    (defect,) = report.defects
    assert (defect.value, defect.position) == (b"a", 4)
    assert "after b'e' (position 3), which p sent later" in defect.explanation


def test_one_early_message_is_one_defect() -> None:
    report = check_history(made(*acked(*"abcdef"), *given(*"eabcdf")))
    (defect,) = report.defects
    assert (defect.value, defect.position) == (b"e", 0)
    assert "before b'a' (position 1), which p sent earlier" in defect.explanation


def test_order_per_key() -> None:
    history = made(
        *["sent p 0 a k", "sent p 0 b l", "sent p 0 c k", "sent p 0 d"],
        *["acked p 0 a", "acked p 0 b", "acked p 0 c", "acked p 0 d"],
        *given("d", "b", "a", "c"),
    )
    assert found(check_history(history, order=OrderScope.KEY)) == {}
    assert found(check_history(history, order=OrderScope.PARTITION)) == {"reordered": 2}
    swapped = made(
        *["sent p 0 a k", "sent p 0 c k"], *["acked p 0 a", "acked p 0 c"], *given("c", "a")
    )
    assert found(check_history(swapped, order=OrderScope.KEY)) == {"reordered": 1}
    assert found(check_history(swapped, order=OrderScope.NONE)) == {}


def test_order_per_key_is_that_of_one_producer_and_of_messages_with_keys() -> None:
    no_keys = made(*acked("a", "b"), *given("b", "a"))
    assert found(check_history(no_keys, order=OrderScope.KEY)) == {}
    lines = ["sent p 0 a k", "sent q 0 b k", "acked p 0 a", "acked q 0 b"]
    assert found(check_history(made(*lines, *given("b", "a")), order=OrderScope.KEY)) == {}


def test_equal_sends_have_no_place_in_the_order() -> None:
    history = made(*acked("a", "b", "a", "c"), *given("a", "a", "b", "c"))
    assert found(check_history(history)) == {}
    again = made("sent p 0 a", "unknown p 0 a", *acked("b", "a"), *given("b", "a"))
    assert found(check_history(again)) == {}


# Invented


@pytest.mark.parametrize(
    ("sent", "explanation"),
    [
        ([], "never sent"),
        (["sent p 1 a", "unknown p 1 a"], "sent to partition 1"),
        (["sent p 0 a", "refused p 0 a"], "its publish was refused"),
        (["sent p 0 a k", "unknown p 0 a"], "with the key b'l', sent with b'k'"),
    ],
)
def test_what_was_not_sent_like_that_is_invented(sent: list[str], explanation: str) -> None:
    report = check_history(made(*sent, "delivered r 0 a l", "finished r 0"))
    assert found(report) == {"invented": 1}
    (defect,) = report.defects
    assert explanation in defect.explanation
    assert (defect.reader, defect.partition, defect.position) == ("r", 0, 0)


def test_a_key_that_a_reader_does_not_tell_is_not_compared() -> None:
    assert check_history(made("sent p 0 a k", "acked p 0 a", *given("a"))).ok


def test_an_empty_key_is_no_key() -> None:
    """A message without a key comes with an empty one: `Message.key` is never None."""
    history = History(clock=lambda: 0.0)
    for number, key in enumerate([None, b"", b"k"]):
        history.sent(b"%d" % number, 0, key=key)
        history.acked(b"%d" % number, 0)
        history.delivered(b"%d" % number, 0, key=key or b"")
    assert found(check_history(history)) == {}
    assert found(check_history(history, order=OrderScope.KEY)) == {}
    history.sent(b"3", 0, key=b"k")
    history.delivered(b"3", 0, key=b"")
    assert found(check_history(history)) == {"invented": 1}


def test_equal_sends_may_have_several_keys() -> None:
    lines = ["sent p 0 a k", "sent p 0 a l", "acked p 0 a", "acked p 0 a"]
    right = made(*lines, "delivered r 0 a l", "delivered r 0 a k", "finished r 0")
    assert found(check_history(right)) == {}
    wrong = made(*lines, "delivered r 0 a l", "delivered r 0 a m", "finished r 0")
    assert found(check_history(wrong)) == {"invented": 1, "lost": 1}


# Outcomes of nothing


def test_an_outcome_needs_a_send_of_its_own() -> None:
    report = check_history(made(*acked("a"), "unknown p 0 a", "acked p 0 b", *given("a")))
    assert found(report) == {"unfounded": 2}
    assert [defect.value for defect in report.defects] == [b"a", b"b"]
    assert "never sent" in report.defects[1].explanation


# Groups


def test_a_reader_may_not_have_the_name_of_a_group() -> None:
    with pytest.raises(ValueError, match="'g' is the name of both a reader and a group"):
        check_history(made(*given(reader="a"), *given(reader="g")), groups={"a": "g"})


# Recording


def test_an_event_needs_a_time() -> None:
    history = History()
    history.sent(b"a", 0, time=1.5)
    with pytest.raises(ValueError, match="needs a time"):
        history.acked(b"a", 0)
    assert [event.time for event in history.events] == [1.5]


def test_checking_leaves_the_history_as_it_is() -> None:
    history = made(*acked("a", "b"), *given("b"))
    before = list(history.events)
    assert check_history(history) == check_history(history)
    assert history.events == before


def test_threads_record_at_once() -> None:
    history = History(clock=lambda: 0.0)

    def publish(producer: str) -> None:
        for number in range(2_000):
            history.sent(b"%s-%d" % (producer.encode(), number), 0, producer=producer)
            history.acked(b"%s-%d" % (producer.encode(), number), 0, producer=producer)

    threads = [Thread(target=publish, args=(name,)) for name in ("p", "q", "r")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for producer in ("q", "r", "p"):
        for number in range(2_000):
            history.delivered(b"%s-%d" % (producer.encode(), number), 0)
    history.finished(0)
    report = check_history(history)
    report.raise_for_defects()
    assert report.total.acked == report.total.delivered == 6_000
