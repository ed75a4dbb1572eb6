"""Verdict on a run: figures by kind of fault, and who is to blame."""

from __future__ import annotations

import json

import pytest

from chaos.evidence import Evidence, FaultRecord, Log, Recovery
from chaos.floor import Floor, floor_of
from chaos.journal import Finding, Journal, Place, value_of
from chaos.plan import Kind
from chaos.table import as_json, markdown, text
from chaos.verdict import judge
from liftbridge_aio import AckPolicy, Message

PLACE = Place("all", 0, AckPolicy.ALL)
LEADER = Place("leader", 0, AckPolicy.LEADER)
KILL = FaultRecord(1, Kind.KILL_LEADER, 100.0, "n1", 110.0, [Recovery(1.5, "")])
CUT = FaultRecord(2, Kind.CUT, 110.0, "at n2", 112.0, [Recovery(0.5, "")])


def logged(values: list[bytes], *left_out: int) -> dict[bytes, int]:
    """A log that has values at their places, but for some."""
    return {value: at for at, value in enumerate(values) if at not in left_out}


class Scene:
    """A run that is told by hand: messages are sent a second apart from second 95 on."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.values: list[bytes] = []
        for stream in ("all", "leader"):
            self.journal.sent_to(stream)

    def publish(self, place: Place = PLACE, *, acked: bool = True) -> bytes:
        number = len(self.values)
        now = 95.0 + number
        value = value_of(place, number, now)
        self.values.append(value)
        sends = self.journal.sent_to(place.stream)
        sends.sent(value, place.partition, producer=str(place), time=now)
        outcome = sends.acked if acked else sends.unknown
        outcome(value, place.partition, producer=str(place), time=now)
        if acked:
            self.journal.offsets[place.stream, place.partition, value] = number
        return value

    def deliver(
        self, value: bytes, offset: int, reader: str = "plain", stream: str = "all"
    ) -> None:
        message = Message(stream, 0, offset, b"", value, timestamp=0)
        self.journal.delivered(reader, message, 200.0 + offset)

    def evidence(self, log: Log | None = None, *faults: FaultRecord) -> Evidence:
        for stream, reader in list(self.journal.readings):
            self.journal.finished(stream, 0, reader, 300.0)
        return Evidence(
            seed=7,
            began=90.0,
            ended=300.0,
            faults=list(faults or (KILL, CUT)),
            journal=self.journal,
            lanes={},
            log=log if log is not None else {("all", 0): logged(self.values)},
            streams_all=("all",),
            streams_leader=("leader",)
            if self.journal.sends["leader"].events or not self.values
            else (),
            groups={"member": "group"},
            findings=[],
            servers=[],
            extra={},
        )


@pytest.fixture
def scene() -> Scene:
    """A run in which twenty messages were published."""
    scene = Scene()
    for _ in range(20):
        scene.publish()
    return scene


def deliver_all(scene: Scene, *left_out: int) -> None:
    for number, value in enumerate(scene.values):
        if number not in left_out:
            scene.deliver(value, number)


def test_a_run_in_which_all_was_delivered_in_order_holds(scene: Scene) -> None:
    deliver_all(scene)
    verdict = judge(scene.evidence())
    assert verdict.ok
    assert (verdict.total.sent, verdict.total.acked, verdict.total.lost) == (20, 20, 0)


def test_messages_count_for_the_fault_in_which_they_were_sent(scene: Scene) -> None:
    deliver_all(scene)
    rows = {row.name: row.sent for row in judge(scene.evidence()).rows}
    assert rows == {"before the first fault": 5, Kind.KILL_LEADER.value: 10, Kind.CUT.value: 5}


@pytest.mark.parametrize(
    ("defect", "deliveries"),
    [
        ("lost", [0, 1, 2, 3, 4, 6]),
        ("repeated", [0, 1, 2, 3, 4, 5, 5, 6]),
        ("reordered", [0, 1, 2, 3, 4, 6, 5]),
    ],
)
def test_each_defect_breaks_the_run_and_is_told(defect: str, deliveries: list[int]) -> None:
    scene = Scene()
    values = [scene.publish() for _ in range(7)]
    for number in deliveries:
        scene.deliver(values[number], number)
    verdict = judge(scene.evidence())
    assert not verdict.ok
    row = next(row for row in verdict.rows if row.name == Kind.KILL_LEADER.value)
    assert getattr(row, defect) == getattr(verdict.total, defect) == 1
    assert defect.upper() in verdict.failures[0]
    assert "seed 7" in text(verdict)
    assert any(line.lstrip().startswith("10.00 s") for line in verdict.timeline)


def test_what_nobody_published_is_invented(scene: Scene) -> None:
    deliver_all(scene)
    scene.deliver(b"p:all/0:99:99000000", 20)
    verdict = judge(scene.evidence())
    assert verdict.total.invented == 1
    assert not verdict.ok


def test_what_the_servers_confirmed_and_lost_does_not_count(scene: Scene) -> None:
    deliver_all(scene, 7)
    # Somebody was given it from the offset that the ack named, so the servers had it.
    for number, value in enumerate(scene.values):
        scene.deliver(value, number, reader="another")
    verdict = judge(scene.evidence({("all", 0): logged(scene.values, 7)}))
    assert (verdict.lost_by_servers, verdict.total.lost) == (1, 0)
    assert verdict.ok


def test_what_was_acked_and_never_seen_counts_against_the_client(scene: Scene) -> None:
    deliver_all(scene, 7)
    verdict = judge(scene.evidence({("all", 0): logged(scene.values, 7)}))
    assert (verdict.lost_by_servers, verdict.total.lost) == (0, 1)
    assert not verdict.ok


def test_what_happens_while_servers_fail_is_told_as_theirs(scene: Scene) -> None:
    deliver_all(scene)
    spoiled = FaultRecord(1, Kind.CUT, 100.0, "at n1", 110.0, [], spoiled="n1 ended by itself")
    evidence = scene.evidence(None, spoiled, CUT)
    evidence.findings += [Finding(105.0, "stuck"), Finding(105.5, "stuck")]
    verdict = judge(evidence)
    assert verdict.ok
    assert verdict.servers == ["stuck (2 times)"]
    evidence.findings.append(Finding(111.0, "stuck later"))
    assert judge(evidence).failures == ["stuck later"]


def test_what_is_found_after_a_spoiled_fault_is_the_clients_fault(
    scene: Scene,
) -> None:
    deliver_all(scene)
    spoiled = FaultRecord(2, Kind.CUT, 110.0, "at n1", 112.0, [], spoiled="n1 ended by itself")
    evidence = scene.evidence(None, KILL, spoiled)
    evidence.findings += [
        Finding(111.0, "+40 tasks", excusable=False),
        Finding(112.5, "stuck, and the node is back"),
    ]
    assert judge(evidence).failures == ["+40 tasks", "stuck, and the node is back"]


def test_a_run_that_ends_within_a_spoiled_fault_excuses_what_it_may(
    scene: Scene,
) -> None:
    deliver_all(scene)
    broken_off = FaultRecord(2, Kind.CUT, 110.0, "at n1", 0.0, [], spoiled="no acks")
    evidence = scene.evidence(None, KILL, broken_off)
    evidence.findings += [
        Finding(150.0, "stuck"),
        Finding(150.0, "the servers did not come to work again", excusable=False),
    ]
    assert judge(evidence).failures == ["the servers did not come to work again"]


def test_a_reader_may_say_that_a_log_is_another_one_only_if_it_was_cut(scene: Scene) -> None:
    deliver_all(scene)
    for number, value in enumerate(scene.values):
        scene.deliver(value, number, reader="another")
    for left_out in ((), (7,)):
        evidence = scene.evidence({("all", 0): logged(scene.values, *left_out)})
        evidence.findings.append(Finding(105.0, "StreamReset", reset=("all", 0)))
        assert judge(evidence).ok is bool(left_out)


def test_publishes_without_any_outcome_break_the_run(scene: Scene) -> None:
    deliver_all(scene)
    for number in range(5):
        value = value_of(PLACE, 100 + number, 116.0)
        scene.journal.sent_to("all").sent(value, 0, producer=str(PLACE), time=116.0)
    assert judge(scene.evidence()).failures == ["5 publishes to all had no outcome"]


def test_a_log_that_was_cut_excuses_only_what_is_gone_or_replaced(
    scene: Scene,
) -> None:
    deliver_all(scene, 1, 2, 7, 15)
    for number, value in enumerate(scene.values):
        if number != 15:
            scene.deliver(value, number, reader="another")
    log = logged(scene.values, 7)
    log[scene.values[15]] = 7  # somebody was given 7 from there, so who had read it missed this
    for value in scene.values[15:16]:
        scene.journal.offsets["all", 0, value] = 7
    scene.deliver(scene.values[15], 7, reader="another")
    verdict = judge(scene.evidence({("all", 0): log}))
    assert (verdict.lost_by_servers, verdict.total.lost) == (2, 2)
    assert not verdict.ok


def test_losses_beyond_those_that_are_judged_break_the_run(scene: Scene) -> None:
    deliver_all(scene, *range(3, 9))
    for number, value in enumerate(scene.values):
        scene.deliver(value, number, reader="another")
    evidence = scene.evidence({("all", 0): logged(scene.values, *range(3, 9))})
    assert judge(evidence).ok
    assert judge(evidence, examples=5).failures == [
        "1 more of all lost than can be judged one by one"
    ]


def test_many_losses_of_the_servers_hide_none_of_the_client() -> None:
    scene = Scene()
    for _ in range(300):
        scene.publish()
    deliver_all(scene, *range(250))
    for number, value in enumerate(scene.values):
        scene.deliver(value, number, reader="another")
    other = Place("all", 1, AckPolicy.ALL)
    values = [value_of(other, number, 105.0) for number in range(20)]
    for number, value in enumerate(values):
        scene.journal.sent_to("all").sent(value, 1, producer="1", time=105.0)
        scene.journal.sent_to("all").acked(value, 1, producer="1", time=105.0)
        for reader in ("plain", "another"):
            if reader == "another" or not 3 <= number < 8:
                message = Message("all", 1, number, b"", value, timestamp=0)
                scene.journal.delivered(reader, message, 600.0 + number)
    evidence = scene.evidence(
        {("all", 0): logged(scene.values, *range(250)), ("all", 1): logged(values)}
    )
    verdict = judge(evidence)
    assert (verdict.lost_by_servers, verdict.total.lost) == (250, 5)
    assert not verdict.ok


def test_what_a_leader_acked_and_the_log_holds_must_be_delivered(scene: Scene) -> None:
    deliver_all(scene)
    values = [scene.publish(LEADER) for _ in range(10)]
    for number in (0, 9):
        scene.deliver(values[number], number, stream="leader")
    log = {("all", 0): logged(scene.values[:20]), ("leader", 0): logged(values)}
    verdict = judge(scene.evidence(log))
    assert (verdict.leader_lost, verdict.total.lost) == (0, 8)
    assert not verdict.ok


def test_what_was_acked_by_a_leader_and_never_read_breaks_the_run(scene: Scene) -> None:
    deliver_all(scene)
    for _ in range(3):
        scene.publish(LEADER)
    assert judge(scene.evidence()).failures == ["3 messages of leader were never read"]


def test_acks_name_the_offsets_of_the_log(scene: Scene) -> None:
    deliver_all(scene)
    for value in scene.values:
        scene.journal.offsets["all", 0, value] += 1000
    [first, more] = judge(scene.evidence()).failures
    assert "an ack named 1000" in first
    assert more == "19 more such offsets in all/0"


def test_messages_are_delivered_from_their_offsets_in_the_log(scene: Scene) -> None:
    for value in scene.values:
        scene.deliver(value, 5)
    assert "plain was given it from 5" in judge(scene.evidence()).failures[0]


def test_faults_that_the_servers_spoiled_are_none(scene: Scene) -> None:
    deliver_all(scene)
    faults = [
        FaultRecord(number, Kind.CUT, 100.0 + number, "", 100.5 + number, [], spoiled="n1 ended")
        for number in range(1, 61)
    ]
    verdict = judge(scene.evidence(None, *faults), floor=Floor(1, 1))
    assert (verdict.total.faults, verdict.total.spoiled) == (0, 60)
    assert len(verdict.failures) == 2
    assert "Faults that the servers spoiled, not counted: connections cut 60." in text(verdict)
    assert text(verdict).startswith("Chaos of 210 s, seed 7: 0 faults of 0 kinds")


def test_a_fault_of_which_no_recovery_was_measured_breaks_the_run(scene: Scene) -> None:
    deliver_all(scene)
    fault = FaultRecord(1, Kind.CUT, 100.0, "", 101.0, [])
    assert "nobody measured" in judge(scene.evidence(None, fault)).failures[0]


def test_whoever_should_have_read_and_was_given_nothing_breaks_the_run(scene: Scene) -> None:
    for number, value in enumerate(scene.values):
        scene.deliver(value, number, reader="another")
    for number in range(5):
        scene.deliver(scene.values[number], number)
    scene.journal.give_up("all", 0, "plain")
    scene.publish(LEADER)
    scene.deliver(scene.values[-1], 0, stream="leader")
    evidence = scene.evidence({("all", 0): logged(scene.values[:20])})
    evidence.readers = [("all", 0, "plain"), ("all", 0, "another")]
    evidence.grouped = [("all", 0)]
    assert judge(evidence).failures == [
        "plain was given nothing of all/0",
        "the group was given nothing of all/0",
    ]


def test_a_run_in_which_nothing_was_sent_breaks() -> None:
    failures = judge(Scene().evidence()).failures
    assert failures == ["nothing was acked of all", "nothing was acked of leader"]


def test_what_a_group_has_not_read_breaks_the_run(scene: Scene) -> None:
    deliver_all(scene)
    evidence = scene.evidence()
    for number in range(3):
        scene.deliver(scene.values[number], number, reader="member")
    assert "17 messages of all were never read by the group" in judge(evidence).failures


def test_longer_runs_need_more_faults_of_more_kinds() -> None:
    assert floor_of(10.0) == Floor(60, 8)
    assert floor_of(3.0) == Floor(15, 8)
    assert floor_of(1.0) == Floor(1, 1)


def test_a_reader_that_ended_is_left_out_and_another_takes_its_place(scene: Scene) -> None:
    for number in range(5):
        scene.deliver(scene.values[number], number)
    scene.journal.give_up("all", 0, "plain")
    for number, value in enumerate(scene.values):
        scene.deliver(value, number, reader="plain again 2")
    assert judge(scene.evidence()).ok


def test_losses_with_ack_leader_are_shown_and_break_nothing(scene: Scene) -> None:
    deliver_all(scene)
    values = [scene.publish(LEADER) for _ in range(3)]
    scene.deliver(values[0], 0, stream="leader")
    scene.deliver(values[2], 1, stream="leader")
    log = {
        ("all", 0): logged(scene.values[:20]),
        ("leader", 0): {values[0]: 0, values[2]: 1},
    }
    verdict = judge(scene.evidence(log))
    assert verdict.ok
    assert (verdict.leader_acked, verdict.leader_lost) == (3, 1)


def test_a_group_may_be_given_a_message_twice_but_must_be_given_it(scene: Scene) -> None:
    deliver_all(scene)
    for number in (*range(20), 3):
        scene.deliver(scene.values[number], number, reader="member")
    verdict = judge(scene.evidence())
    assert verdict.ok
    assert (verdict.group_delivered, verdict.group_repeated) == (21, 1)


def test_a_group_that_leaves_a_message_out_breaks_the_run(scene: Scene) -> None:
    deliver_all(scene)
    for number in range(19):
        scene.deliver(scene.values[number], number, reader="member")
    verdict = judge(scene.evidence())
    assert not verdict.ok
    assert verdict.group_lost == 1


def test_a_slow_recovery_breaks_the_run_unless_the_fault_was_spoiled(scene: Scene) -> None:
    deliver_all(scene)
    slow = FaultRecord(1, Kind.CUT, 100.0, "at n1", 110.0, [Recovery(5.2, "group")])
    assert not judge(scene.evidence(None, slow)).ok
    slow.spoiled = "n1 ended by itself"
    assert judge(scene.evidence(None, slow)).ok


def test_the_table_has_a_row_for_each_kind_and_one_for_all(scene: Scene) -> None:
    deliver_all(scene)
    verdict = judge(scene.evidence())
    lines = markdown(verdict).splitlines()
    assert len(lines) == 2 + 3 + 1
    assert len({len(line) for line in lines}) == 1
    assert lines[-1].startswith("| all ")
    assert "Everything held." in text(verdict)
    figures = json.loads(json.dumps(as_json(verdict)))
    assert figures["ok"] is True
    assert figures["seed"] == 7
    assert figures["total"]["recovery_max"] == 1.5
