"""When a member does what: the times that the group sets it."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from liftbridge_aio._core.status import GroupRefusal
from liftbridge_aio.groups.core.group_state import MOVES, OVER, GroupState
from liftbridge_aio.groups.core.membership import Membership
from liftbridge_aio.groups.core.steps import (
    Answer,
    Call,
    Fetch,
    Fetched,
    Join,
    Joined,
    Leave,
    Locate,
    Located,
    Report,
    Rest,
)
from liftbridge_aio.model import StreamPartition
from support.groups.simulated_group import refused

CONSUMER_TIMEOUT = 10.0
COORDINATOR_TIMEOUT = 8.0
MINE = frozenset({StreamPartition("s", 0)})


class Played:
    """A member whose calls are answered by the test."""

    def __init__(self, *, own: bool = True, chance: float = 0.5, deadline: float = 5.0) -> None:
        self.now = 100.0
        self.chance = chance
        ids = (f"m{number}" for number in itertools.count())
        self.core = Membership(ids, lambda: self.chance, own=own)
        self.core.begin(self.now, self.now + deadline)

    def call(self) -> Call:
        """The next call, after the rest before it."""
        while isinstance(step := self.core.next_step(self.now), Rest):
            assert self.now < step.until < math.inf
            self.now = step.until
        return step

    def rest(self) -> float:
        """Return the seconds until the next step."""
        step = self.core.next_step(self.now)
        return step.until - self.now if isinstance(step, Rest) else 0.0

    def answer(self, answer: Answer, *, took: float = 0.01) -> Call:
        """Answer the next call."""
        call = self.call()
        began, self.now = self.now, self.now + took
        self.core.take(call, began, self.now, answer)
        return call

    def joined(self, coordinator: str = "a", epoch: int = 3) -> Played:
        """Join, and fetch the first assignment."""
        answer = Joined(coordinator, epoch, CONSUMER_TIMEOUT, COORDINATOR_TIMEOUT)
        assert isinstance(self.answer(answer), Join)
        assert self.answer(Fetched(MINE)) == Fetch(self.core.consumer, coordinator, epoch)
        assert self.core.state is GroupState.STABLE
        return self


@pytest.mark.parametrize(("chance", "part"), [(0.0, 0.32), (0.5, 0.36), (0.999, 0.4)])
def test_signs_of_life_come_well_within_the_timeout(chance: float, part: float) -> None:
    member = Played(chance=chance).joined()
    assert member.rest() == pytest.approx(part * CONSUMER_TIMEOUT, rel=0.01)
    member.answer(Fetched(MINE))
    assert member.rest() == pytest.approx(part * CONSUMER_TIMEOUT, rel=0.01)


def test_a_coordinator_without_a_newer_epoch_is_asked_again_in_a_moment() -> None:
    member = Played().joined()
    member.answer(refused(GroupRefusal.OTHER_EPOCH))
    member.answer(Located("a", 3))
    assert 0.05 <= member.rest() <= 0.2


def test_what_nobody_could_hear_is_no_silence_of_the_coordinator() -> None:
    member = Played().joined()
    member.answer(refused(GroupRefusal.LOST))
    member.now += COORDINATOR_TIMEOUT
    member.core.stalled(COORDINATOR_TIMEOUT)
    assert isinstance(member.call(), Locate)
    assert member.core.state is GroupState.STABLE


def test_a_silent_coordinator_is_reported_in_time_and_again_and_again() -> None:
    member = Played().joined()
    heard = member.now
    reports: list[float] = []
    while len(reports) < 3:
        call = member.answer(refused(GroupRefusal.LOST))
        if isinstance(call, Report):
            assert call == Report(member.core.consumer, "a", 3)
            reports.append(member.now)
    assert member.core.state is GroupState.COORDINATOR_LOST
    assert 0.7 * COORDINATOR_TIMEOUT < reports[0] - heard <= COORDINATOR_TIMEOUT
    assert reports[2] - reports[0] < COORDINATOR_TIMEOUT
    assert member.core.assignment == MINE


def test_another_coordinator_is_a_new_beginning() -> None:
    member = Played().joined()
    while not isinstance(member.answer(refused(GroupRefusal.LOST)), Report):
        pass
    while not isinstance(member.call(), Locate):
        member.answer(refused(GroupRefusal.LOST))
    member.answer(Located("b", 9))
    assert member.core.state is GroupState.SYNCING
    assert member.answer(Fetched(MINE)) == Fetch(member.core.consumer, "b", 9)
    assert member.core.state.value == "stable"


def test_a_member_is_sure_of_itself_for_its_timeout_from_when_it_asked() -> None:
    member = Played().joined()
    asked = member.now + member.rest()
    member.answer(Fetched(MINE), took=0.5)
    assert member.core.lease_until == asked + CONSUMER_TIMEOUT


def test_right_after_joining_a_broker_may_not_know_yet() -> None:
    member = Played()
    member.answer(Joined("a", 3, CONSUMER_TIMEOUT, COORDINATOR_TIMEOUT))
    began = member.now
    for why in (GroupRefusal.NO_GROUP, GroupRefusal.NOT_A_MEMBER):
        member.answer(refused(why))
        member.answer(refused(GroupRefusal.NO_GROUP))
    assert member.core.state is GroupState.SYNCING
    assert member.now - began < 1
    member.answer(Fetched(MINE))
    assert member.core.state.value == "stable"


def test_a_coordinator_that_is_back_without_groups_is_believed_less() -> None:
    member = Played().joined()
    began = member.now
    while member.now - began < 0.6 * COORDINATOR_TIMEOUT:
        assert isinstance(member.answer(refused(GroupRefusal.NO_GROUP)), Fetch)
        assert member.answer(Located("a", 3)) == Locate("a", answers=False)
    assert member.core.assignment == MINE
    member.answer(Fetched(MINE))
    assert member.core.state is GroupState.STABLE


def test_who_never_was_in_takes_nobody_out() -> None:
    member = Played(own=False)
    member.answer(refused(GroupRefusal.ALREADY_MEMBER))
    member.core.leave(member.now, member.now + 1)
    assert member.core.state is GroupState.LEFT


def test_every_state_can_be_reached_and_all_but_the_last_can_be_left() -> None:
    reached = {GroupState.NEW}
    for _ in GroupState:
        reached |= {after for before in reached for after in MOVES[before]}
    assert reached == set(GroupState) == set(MOVES)
    assert {state for state, after in MOVES.items() if not after} == OVER


CREATED = {"s": 5, "t": 6}


def rejoined_with(streams: dict[str, int]) -> Played:
    """A member that has rejoined while only these streams existed."""
    member = Played().joined()
    member.answer(refused(GroupRefusal.NOT_A_MEMBER))
    known = dict.fromkeys(CREATED, -1) | streams
    joined = Joined("a", 4, CONSUMER_TIMEOUT, COORDINATOR_TIMEOUT, known)
    assert member.answer(joined) == Join("m1", again=True)
    assert isinstance(member.answer(Fetched(MINE)), Fetch)
    return member


def test_a_missing_stream_is_looked_for_between_heartbeats() -> None:
    member = rejoined_with({"s": 5})
    for _ in range(3):
        assert isinstance(member.answer(Located("a", 4, {"s": 5})), Locate)
        assert isinstance(member.answer(Fetched(MINE)), Fetch)
        assert member.now + member.core.call_limit < member.core.lease_until
    assert isinstance(member.answer(Located("a", 4, CREATED)), Locate)
    assert member.core.state is GroupState.REJOINING
    assert member.answer(refused(GroupRefusal.NOT_A_MEMBER)) == Leave("m1")
    assert member.call() == Join("m2", again=True)


@pytest.mark.parametrize("why", [GroupRefusal.LOST, GroupRefusal.NO_GROUP])
def test_a_failed_look_delays_no_heartbeat(why: GroupRefusal) -> None:
    member = rejoined_with({"s": 5})
    assert isinstance(member.answer(refused(why)), Locate)
    assert member.rest() == 0
    assert isinstance(member.answer(Fetched(MINE)), Fetch)
    assert member.core.state is GroupState.STABLE


def test_streams_that_are_all_replaced_are_deleted() -> None:
    member = rejoined_with(CREATED)
    member.answer(refused(GroupRefusal.OTHER_EPOCH))
    member.answer(Located("a", 5, {"s": 8, "t": 9}))
    assert not member.core.has_streams


def test_a_rejoin_without_streams_ends_after_a_while() -> None:
    member = rejoined_with(CREATED)
    member.answer(refused(GroupRefusal.NOT_A_MEMBER))
    began = member.now
    while member.core.has_streams:
        member.answer(refused(GroupRefusal.NO_STREAM))
    assert 1.5 < member.now - began < 4
    assert member.core.state is GroupState.REJOINING


def test_a_group_that_was_missing_says_nothing_of_its_streams() -> None:
    member = Played().joined()
    while member.core.state is not GroupState.REJOINING:
        member.answer(refused(GroupRefusal.NO_GROUP))
    while not isinstance(member.answer(refused(GroupRefusal.NO_STREAM)), Join):
        pass
    assert member.core.has_streams


def test_streams_that_one_broker_knows_are_not_deleted() -> None:
    member = rejoined_with(CREATED)
    member.answer(refused(GroupRefusal.NOT_A_MEMBER))
    for _ in range(20):  # brokers that have just started know none
        member.answer(refused(GroupRefusal.NO_STREAM))
        member.answer(replace(refused(GroupRefusal.LOST), found=True))
    assert member.core.has_streams
