"""The checker against runs whose truth is known: right ones, and right ones with one defect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from liftbridge_aio.testing import (
    Defect,
    DefectKind,
    Event,
    EventKind,
    Guarantee,
    History,
    HistoryBroken,
    OrderScope,
    check_history,
)
from support.history_model import GROUPS, Made, Send, made_runs

ALL = range(2)
NO_REPEATS = (Guarantee.EXACTLY_ONCE, Guarantee.AT_MOST_ONCE)
NO_LOSSES = (Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE)


def only_defect(
    made: Made, kind: DefectKind, reader: str | None, partition: int, value: bytes
) -> Defect:
    """Check a spoiled run: what was spoiled is found, in its place, and nothing else is."""
    before = made.truth()
    report = check_history(made.run.history(made.random), made.guarantee, groups=GROUPS)
    total = report.total
    assert not report.ok
    expected = dict.fromkeys(DefectKind, 0) | {kind: 1}
    if made.guarantee is Guarantee.AT_LEAST_ONCE:
        expected[DefectKind.REPEATED] = before.repeated
    if made.guarantee is Guarantee.AT_MOST_ONCE:
        expected[DefectKind.LOST] = before.lost
    assert {kind: total.of(kind) for kind in DefectKind} == expected
    (defect,) = report.defects
    assert (defect.kind, defect.reader, defect.partition) == (kind, reader, partition)
    if kind is not DefectKind.REORDERED:
        assert defect.value == value
    assert any(row.concerned and row.event.value == defect.value for row in defect.timeline)
    times = [row.event.time for row in defect.timeline]
    assert times == sorted(times)
    with pytest.raises(HistoryBroken, match=f"1 {kind.value}"):
        report.raise_for_defects(allow_unread=True)
    return defect


def pick(data: st.DataObject, sends: list[Send]) -> Send:
    assume(sends)
    return data.draw(st.sampled_from(sends))


@given(made=made_runs(), order=st.sampled_from(OrderScope))
def test_what_keeps_its_promise_has_no_defects(made: Made, order: OrderScope) -> None:
    report = check_history(
        made.run.history(made.random), made.guarantee, order=order, groups=GROUPS
    )
    assert report.ok, str(report)
    assert report.defects == ()


@given(made=made_runs())
def test_what_is_allowed_is_counted(made: Made) -> None:
    total = check_history(made.run.history(made.random), made.guarantee, groups=GROUPS).total
    truth = made.truth()
    assert (total.repeated, total.lost, total.unread) == (truth.repeated, truth.lost, truth.unread)
    assert total.sent == len(made.run.sends)
    outcomes = [send.outcome for send in made.run.sends]
    assert total.acked == outcomes.count(EventKind.ACKED)
    assert total.unknown == outcomes.count(EventKind.UNKNOWN)
    assert total.refused == outcomes.count(EventKind.REFUSED)
    assert total.unsettled == outcomes.count(None)
    assert total.delivered == sum(map(len, made.run.given.values()))
    stored = [s for s in made.run.sends if s.stored and s.outcome is not EventKind.ACKED]
    assert total.unknown_stored == len(stored)


@given(made=made_runs(NO_LOSSES), data=st.data())
def test_one_loss(made: Made, data: st.DataObject) -> None:
    run = made.run
    send = pick(data, [send for p in ALL for send in run.of(p, EventKind.ACKED)])
    values = run.given["whole", send.partition]
    run.given["whole", send.partition] = [value for value in values if value != send.value]
    defect = only_defect(made, DefectKind.LOST, "whole", send.partition, send.value)
    passed = [v for v in run.acked_by(send.producer, send.partition) if v in values]
    later = passed[passed.index(send.value) + 1 :]
    given = run.given["whole", send.partition]
    assert defect.position == min((given.index(value) for value in later), default=len(given))


@given(made=made_runs(NO_REPEATS), data=st.data())
def test_one_repeat(made: Made, data: st.DataObject) -> None:
    partition = data.draw(st.sampled_from(sorted({p for _, p in made.run.given} | {0})))
    values = made.run.given.get(("whole", partition), [])
    assume(values)
    first = data.draw(st.integers(0, len(values) - 1))
    again = data.draw(st.integers(first + 1, len(values)))
    values.insert(again, values[first])
    defect = only_defect(made, DefectKind.REPEATED, "whole", partition, values[first])
    assert defect.position == again


@given(made=made_runs(at_least=6), data=st.data())
def test_one_message_out_of_order(made: Made, data: st.DataObject) -> None:
    """Moved over one or more messages of its producer, it is one defect."""
    moves = list(moves_out_of_order(made))
    assume(moves)
    partition, here, there = data.draw(st.sampled_from(moves))
    values = made.run.given["whole", partition]
    moved = values.pop(here)
    values.insert(there, moved)
    defect = only_defect(made, DefectKind.REORDERED, "whole", partition, moved)
    assert defect.position is not None
    assert values[defect.position] == defect.value


def moves_out_of_order(made: Made) -> Iterator[tuple[int, int, int]]:
    """Partition, old and new place, of what came once to the reader of everything."""
    for partition in ALL:
        values = made.run.given.get(("whole", partition), [])
        for producer in ("p", "q"):
            acked = set(made.run.acked_by(producer, partition))
            lane = [place for place, value in enumerate(values) if value in acked]
            for here, there in permutations(lane, 2):
                if values.count(values[here]) == 1 and values[there] != values[here]:
                    passed = values[min(here, there) : max(here, there) + 1]
                    if any(
                        v in acked and values.count(v) == 1 for v in passed if v != values[here]
                    ):
                        yield partition, here, there


@given(made=made_runs(), data=st.data())
def test_one_delivery_of_what_was_never_sent(made: Made, data: st.DataObject) -> None:
    values = made.run.given["whole", 0]
    place = data.draw(st.integers(0, len(values)))
    values.insert(place, b"never sent")
    defect = only_defect(made, DefectKind.INVENTED, "whole", 0, b"never sent")
    assert defect.position == place


@given(made=made_runs(), data=st.data())
def test_one_delivery_of_what_was_refused(made: Made, data: st.DataObject) -> None:
    send = Send("p", 0, b"refused", EventKind.REFUSED, stored=False, key=None)
    made.run.sends.append(send)
    values = made.run.given["whole", send.partition]
    place = data.draw(st.integers(0, len(values)))
    values.insert(place, send.value)
    defect = only_defect(made, DefectKind.INVENTED, "whole", send.partition, send.value)
    assert defect.position == place


@given(made=made_runs(), data=st.data())
def test_one_delivery_in_another_partition(made: Made, data: st.DataObject) -> None:
    send = pick(data, [send for send in made.run.sends if send.partition == 0])
    values = made.run.given.setdefault(("whole", 1), [])
    values.insert(data.draw(st.integers(0, len(values))), send.value)
    only_defect(made, DefectKind.INVENTED, "whole", 1, send.value)


@given(made=made_runs(), data=st.data())
def test_one_outcome_too_many(made: Made, data: st.DataObject) -> None:
    send = pick(data, [send for send in made.run.sends if send.outcome is not None])
    again = data.draw(st.sampled_from([EventKind.ACKED, EventKind.UNKNOWN, EventKind.REFUSED]))
    made.run.more.append(Event(again, 0.0, send.producer, send.partition, send.value))
    only_defect(made, DefectKind.UNFOUNDED, None, send.partition, send.value)


@given(made=made_runs(NO_LOSSES), data=st.data())
def test_one_loss_in_a_group(made: Made, data: st.DataObject) -> None:
    run = made.run
    send = pick(data, [send for p in ALL for send in run.of(p, EventKind.ACKED)])
    for member in GROUPS:
        values = run.given[member, send.partition]
        run.given[member, send.partition] = [value for value in values if value != send.value]
    only_defect(made, DefectKind.LOST, "group", send.partition, send.value)


@given(made=made_runs(NO_REPEATS), data=st.data())
def test_one_repeat_in_a_group(made: Made, data: st.DataObject) -> None:
    values = made.run.given["a", 0]
    assume(values)
    value = data.draw(st.sampled_from(values))
    made.run.given["b", 0].append(value)
    report = check_history(made.run.history(made.random), made.guarantee, groups=GROUPS)
    assert report.total.repeated == 1
    assert report.total.reordered == report.total.invented == report.total.unfounded == 0
    (defect,) = report.defects
    assert defect.value == value
    assert defect.reader in GROUPS


@given(made=made_runs(), data=st.data())
def test_times_decide_nothing(made: Made, data: st.DataObject) -> None:
    events = made.run.events(made.random)
    times = data.draw(st.randoms(use_true_random=True))
    history, other = History(), History()
    history.extend(events)
    other.extend(event._replace(time=times.uniform(-9, 9)) for event in events)
    first = check_history(history, made.guarantee, groups=GROUPS)
    second = check_history(other, made.guarantee, groups=GROUPS)
    assert replace(first, findings=()) == replace(second, findings=())
