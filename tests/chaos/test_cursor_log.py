"""Positions of cursors that went back: whose they are."""

from __future__ import annotations

import pytest

from chaos.cursor_log import Stored, steps_back, unexcused
from chaos.cursor_writer import CursorWriter
from chaos.evidence import FaultRecord
from chaos.journal import Place
from chaos.load import Load
from chaos.plan import Kind
from liftbridge_aio import AckPolicy, Client

DURABLE = "durable,all-a,0"
GROUP = "__group:members,all-a,0"
WRITER = "cursor-0,all-a,0"
BEGAN = {WRITER: {7: 10.0, 90: 100.0}}
HANDED = {DURABLE: {7: 10.0}, GROUP: {7: 10.0}}
CUT = FaultRecord(1, Kind.CUT, 0.0, ended=300.0)
KILL = FaultRecord(2, Kind.KILL_LEADER, 120.0, ended=130.0)
FREEZE = FaultRecord(3, Kind.FREEZE_LEADER, 9.0, ended=20.0)


def log_of(key: str, *positions: tuple[int, float]) -> dict[str, list[Stored]]:
    return {key: [Stored(*each) for each in positions]}


def found(log: dict[str, list[Stored]], *faults: FaultRecord) -> list[str]:
    return [step.key for step in unexcused(steps_back(log), BEGAN, HANDED, faults)]


def test_positions_that_come_behind_a_higher_one_are_found() -> None:
    assert steps_back(log_of(WRITER, (1, 1.0), (2, 2.0), (2, 3.0), (3, 4.0))) == []
    steps = steps_back(log_of(WRITER, (1, 1.0), (5, 2.0), (4, 3.0), (5, 4.0), (2, 5.0)))
    assert [(step.stored.position, step.higher.position) for step in steps] == [(4, 5), (2, 5)]


@pytest.mark.parametrize("key", [DURABLE, GROUP, WRITER])
def test_a_step_back_is_the_clients_where_nothing_held_writes_up(key: str) -> None:
    assert found(log_of(key, (90, 100.0), (7, 101.0)), CUT) == [key]


@pytest.mark.parametrize("key", [DURABLE, GROUP, WRITER])
def test_a_write_may_come_late_that_was_held_up_when_it_was_made(key: str) -> None:
    freeze = FaultRecord(1, Kind.FREEZE_LEADER, 95.0, ended=100.5)
    assert found(log_of(key, (90, 100.0), (7, 101.0)), freeze) == []


@pytest.mark.parametrize("key", [DURABLE, GROUP, WRITER])
def test_a_fault_that_was_over_when_the_call_began_excuses_nothing(key: str) -> None:
    earlier = FaultRecord(1, Kind.FREEZE_LEADER, 1.0, ended=9.0)
    assert found(log_of(key, (90, 100.0), (7, 101.0)), earlier) == [key]
    assert found(log_of(key, (90, 100.0), (7, 101.0)), earlier, FREEZE) == []


@pytest.mark.parametrize("key", [DURABLE, GROUP])
def test_a_position_that_nobody_was_handed_is_never_excused_as_late(key: str) -> None:
    assert found(log_of(key, (90, 100.0), (6, 101.0)), FREEZE) == [key]


def test_readers_may_resume_from_an_older_position_after_a_leader_is_down() -> None:
    for key, excused in ((DURABLE, True), (GROUP, True), (WRITER, False)):
        positions = log_of(key, (90, 119.0), (7, 140.0))
        assert found({**positions}, FaultRecord(1, Kind.KILL_TWO, 120.0, ended=130.0)) == (
            [] if excused else [key]
        )
        # It went down before the higher one was stored: nothing is older than that.
        assert found(log_of(key, (90, 131.0), (7, 140.0)), KILL) == [key]


def test_what_the_witness_stores_through_several_nodes_at_once_is_left_out() -> None:
    assert found(log_of("raw-1,raw,0", (90, 100.0), (7, 101.0)), CUT) == []


@pytest.mark.parametrize(
    ("read", "raw", "stale"),
    [(5, 5, True), (5, 4, True), (5, 88, False), (5, 90, False), (5, None, False), (91, 5, False)],
)
async def test_an_old_answer_is_the_servers_as_far_as_they_tell_it_themselves(
    read: int, raw: int | None, stale: bool
) -> None:
    async def ask(_: str, __: Place) -> int | None:
        return raw

    load = Load()
    place = Place("all-a", 0, AckPolicy.ALL)
    writer = CursorWriter(load, Client("127.0.0.1:1"), place, "cursor-0", ask, 90, 90)
    await writer.judge(read)
    assert bool(writer.stale) is stale
    assert bool(load.findings) is not stale
