"""The state machine of a member: the next call to make, and the effect of its answer.

A member joins and then fetches its assignment periodically; each fetch is a heartbeat. After a
change of the group the fetch is refused, and the metadata has the new coordinator and epoch to
fetch with. A coordinator that does not answer is reported until enough members have reported it and
the cluster elects another one. An expelled member joins again.

Pure: times and random numbers are arguments. The caller of `next_step` makes the calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from liftbridge_aio._core.status import GroupRefusal
from liftbridge_aio.errors import AlreadyMember, LiftbridgeError, StreamNotFound

from .group_plan import Assignment
from .group_state import MOVES, OVER, GroupState
from .steps import (
    Answer,
    Call,
    Fetch,
    Fetched,
    Join,
    Joined,
    Leave,
    Locate,
    Located,
    MemberStep,
    Refused,
    Report,
    Rest,
)

_IN: Final = frozenset({GroupState.SYNCING, GroupState.STABLE, GroupState.COORDINATOR_LOST})
_OUT: Final = frozenset({GroupState.JOINING, GroupState.REJOINING})


class Membership:
    """The state of one member. All times are seconds of one clock.

    Args:
        ids: yields the id for each join.
        chance: returns random numbers in [0, 1).
        own: True if no other member can have these ids, so a member with such an id is this one.
    """

    def __init__(
        self, ids: Iterator[str], chance: Callable[[], float], *, own: bool = True
    ) -> None:
        self.state = GroupState.NEW
        self.consumer = next(ids)
        self.coordinator = ""
        self.epoch = 0
        self.assignment: Assignment = frozenset()
        """The last fetched assignment; empty while this is not a member."""
        self.assigned_epoch: int | None = None
        """The epoch of the assignment; None before the first fetch."""
        self.confirmed_at = -math.inf
        """The time at which the last successful fetch began."""
        self.has_streams = True
        """False once all streams of the group are deleted, also if they were created again."""
        self.error: LiftbridgeError | None = None
        """The error of the state FAILED."""
        self.consumer_timeout = 0.0
        self.coordinator_timeout = 0.0
        self._ids = ids
        self._own = own
        self._chance = chance
        self._not_before = -math.inf
        self._deadline = math.inf
        self._failures = 0
        self._heard_at = -math.inf
        self._next_report = -math.inf
        self._locate = False
        self._answers = False
        self._denied_since: float | None = None
        self._missing_since: float | None = None
        self._join_asked = False
        self._join_unknown = False
        """True if a join without an answer may have succeeded."""
        self._evict: str | None = None
        """The id to remove from the group before the next join; None if there is none."""
        self._joined_streams: Mapping[str, int] = {}
        """The creation time of each stream of the plan at the last join; -1 if it was missing.

        The group of a deleted stream forgets it, and takes no notice of a new one of that name.
        """
        self._missing_streams: set[str] = set()
        """Streams of the plan that the last lookup did not find; looked for at each heartbeat."""

    # Limits

    @property
    def lease_until(self) -> float:
        """The time until which no other member can own the partitions of this one."""
        return self.confirmed_at + self.consumer_timeout

    @property
    def call_limit(self) -> float:
        """The timeout of a call to the coordinator, in seconds."""
        return max(0.25, min(self.consumer_timeout / 5, 3.0))

    @property
    def _interval(self) -> float:
        return 0.4 * self.consumer_timeout * (0.8 + 0.2 * self._chance())

    @property
    def _report_after(self) -> float:
        """Seconds without an answer after which the coordinator is reported."""
        return 0.75 * self.coordinator_timeout

    @property
    def _grace(self) -> float:
        """Seconds for which "not a member" may come from a broker with outdated metadata."""
        return min(self.consumer_timeout / 2, 2.0)

    def _pause(self) -> float:
        longest = min(1.0, self.consumer_timeout / 10) if self.consumer_timeout else 1.0
        ceiling = min(0.1 * 1.5 ** min(self._failures, 20), max(longest, 0.1))
        return ceiling * (0.5 + self._chance())

    # Requests

    def begin(self, now: float, deadline: float) -> None:
        """Start joining; fail at the deadline."""
        self._move(GroupState.JOINING)
        self._not_before = now
        self._deadline = deadline

    def fetch_now(self, now: float) -> None:
        """Fetch the assignment immediately, because it has probably changed."""
        if self.state is GroupState.STABLE:
            self._not_before = min(self._not_before, now)

    def stalled(self, seconds: float) -> None:
        """Exclude seconds in which nothing ran here from the silence of the coordinator."""
        self._heard_at += seconds

    def leave(self, now: float, deadline: float) -> None:
        """Start leaving the group; at the deadline, do not wait for an answer."""
        if self.state in OVER or self.state is GroupState.LEAVING:
            return
        if self.state is GroupState.NEW:
            self._move(GroupState.LEFT)
            return
        out = self.state in _OUT and not self._join_asked
        self._move(GroupState.LEAVING)
        self._not_before, self._deadline = now, deadline
        self.assignment, self.assigned_epoch = frozenset(), None
        if out and not self._join_unknown and self._evict is None:
            # A member with this id is another one.
            self._move(GroupState.LEFT)

    def cut_off(self) -> None:
        """Stop without leaving: the group expels this member after its timeout."""
        if self.state not in OVER:
            self.assignment, self.assigned_epoch = frozenset(), None
            if self.state is not GroupState.NEW:
                self._move(GroupState.LEAVING)
            self._move(GroupState.LEFT)

    # Steps

    def next_step(self, now: float) -> MemberStep:
        """Return the next step; pass the answer of a call to `take`."""
        if self.state in OVER or self.state is GroupState.NEW:
            return Rest(math.inf)
        if self._is_silent(now):
            self._move(GroupState.COORDINATOR_LOST)
            self._next_report = now
        if self.state is GroupState.COORDINATOR_LOST and now >= self._next_report:
            return Report(self.consumer, self.coordinator, self.epoch)
        if self.state is GroupState.LEAVING and now >= self._deadline:
            self._move(GroupState.LEFT)
            return Rest(math.inf)
        if now < self._not_before:
            return Rest(self._wakes_at())
        if self.state is GroupState.LEAVING:
            return Leave(self._evict or self.consumer)
        if self.state in _OUT:
            if self._evict is not None:
                return Leave(self._evict)
            self._join_asked = True
            return Join(self.consumer, again=self.state is GroupState.REJOINING)
        if self._locate:
            return Locate(self.coordinator, self._answers)
        return Fetch(self.consumer, self.coordinator, self.epoch)

    def _is_silent(self, now: float) -> bool:
        return (
            self.state in {GroupState.SYNCING, GroupState.STABLE}
            and self._failures > 0
            and now >= self._heard_at + self._report_after
        )

    def _wakes_at(self) -> float:
        wakes_at = self._not_before
        if self.state is GroupState.COORDINATOR_LOST:
            wakes_at = min(wakes_at, self._next_report)
        elif self.state in _IN and self._failures:
            wakes_at = min(wakes_at, self._heard_at + self._report_after)
        elif self.state is GroupState.LEAVING:
            wakes_at = min(wakes_at, self._deadline)
        return wakes_at

    # Answers

    def take(self, call: Call, began: float, now: float, answer: Answer) -> None:
        """Apply the answer to a call, which must be the last step that `next_step` returned.

        Once this is leaving, answers to calls other than `Join` and `Leave` are ignored.
        """
        if self.state in OVER:
            return
        if isinstance(call, Join):
            self._join_asked = False
        match call, answer:
            case Join(), Joined():
                self._joined(began, now, answer)
            case Join(), Refused():
                self._not_joined(now, answer)
            case Leave(), _:
                self._taken_out(now, answer)
            case _ if self.state in _IN:
                self._take_as_member(call, began, now, answer)

    def _take_as_member(self, call: Call, began: float, now: float, answer: Answer) -> None:
        match call, answer:
            case Fetch(), Fetched():
                self._fetched(began, now, answer)
            case Fetch(), Refused():
                self._not_fetched(now, call, answer)
            case Locate(), Located():
                self._located(now, answer)
            case Locate(), Refused():
                self._not_located(now, answer)
            case Report(), _:
                self._reported(now, call, answer)

    def _joined(self, began: float, now: float, answer: Joined) -> None:
        self.coordinator, self.epoch = answer.coordinator, answer.epoch
        self.consumer_timeout = answer.consumer_timeout
        self.coordinator_timeout = answer.coordinator_timeout
        self.confirmed_at = began
        self._join_unknown = False
        if self.state is GroupState.LEAVING:
            return
        self._move(GroupState.SYNCING)
        self.assigned_epoch = None
        self._joined_streams = answer.streams
        self._missing_streams = {name for name, created in answer.streams.items() if created < 0}
        self._denied_since = self._missing_since = None
        self._locate, self._answers = False, True
        self._failures = 0
        self._heard_at = self._not_before = now

    def _not_joined(self, now: float, answer: Refused) -> None:
        self._failures += 1
        if answer.found:
            self._missing_since = None
        if self.state is GroupState.LEAVING:
            if not (self._join_unknown or answer.unknown):
                self._move(GroupState.LEFT)
            return
        again = self._pause()
        match answer.why:
            case GroupRefusal.ALREADY_MEMBER if self._own:
                # Joined by an attempt whose answer was lost. Only the answer of a join has the
                # timeouts, so leave and join again.
                self._evict = self.consumer
            case GroupRefusal.ALREADY_MEMBER:
                again = max(again, 0.2)
                if now + again >= self._deadline:
                    text = f"a member with the id {self.consumer!r} is in the group"
                    self._fail(AlreadyMember(text))
            case GroupRefusal.NO_STREAM:
                self._miss_streams(now)
            case GroupRefusal.REFUSED:
                self._fail(answer.error)
            case _:
                # "No group" is the answer if the last other member leaves at the same time.
                self._join_unknown = self._join_unknown or answer.unknown
                # Whoever may be in the group leaves at the deadline, and fails after that.
                if now + again >= self._deadline and not self._join_unknown:
                    self._fail(answer.error)
        self._not_before = now + again

    def _miss_streams(self, now: float) -> None:
        if self.state is GroupState.JOINING:
            self._fail(StreamNotFound("a stream of the group does not exist"))
            return
        # All were deleted; but a broker that has just started may know no stream yet.
        if self._missing_since is None:
            self._missing_since = now
        self.has_streams = now - self._missing_since < self._grace

    def _taken_out(self, now: float, answer: Answer) -> None:
        lost = isinstance(answer, Refused) and answer.why is GroupRefusal.LOST
        if self.state is not GroupState.LEAVING:
            self._evict = None
            return
        if lost and now < self._deadline:
            self._failures += 1
            self._not_before = now + self._pause()
        else:
            self._move(GroupState.LEFT)

    def _fetched(self, began: float, now: float, answer: Fetched) -> None:
        self._move(GroupState.STABLE)
        self.assignment, self.assigned_epoch = answer.partitions, self.epoch
        self.confirmed_at = began
        self._heard_at = now
        self._denied_since = self._missing_since = None
        self._locate, self._answers = bool(self._missing_streams), True
        self._failures = 0
        self._not_before = now + self._interval

    def _not_fetched(self, now: float, call: Fetch, answer: Refused) -> None:
        self._failures += 1
        self._locate = True
        # The first failure triggers a metadata lookup immediately, which detects a rebalance.
        self._not_before = now if self._failures == 1 else now + self._pause()
        match answer.why:
            case GroupRefusal.OTHER_EPOCH:
                self._heard(now)
                self._move(GroupState.SYNCING)
            case GroupRefusal.NOT_A_MEMBER:
                self._heard(now)
                known = self.assigned_epoch is not None and call.epoch >= self.assigned_epoch
                self._denied(now, certain=known)
            case GroupRefusal.REFUSED:
                self._fail(answer.error)
            case _:
                # An answer is no heartbeat of the coordinator if the broker is not the coordinator,
                # or does not know the group: after a restart its metadata may be outdated.
                self._answers = False

    def _located(self, now: float, answer: Located) -> None:
        self._locate = False
        self._missing_since = None
        self._missing_streams = self._joined_streams.keys() - answer.streams.keys()
        joined = self._joined_streams
        again = {name for name, at in answer.streams.items() if at > joined.get(name, at)}
        replaced = {name for name in again if joined[name] >= 0}
        self.has_streams = not joined or bool(answer.streams.keys() - replaced)
        if again and self.has_streams:
            # A member cannot change its streams: leave, and join with those that exist now.
            leaving = self.consumer
            self._rejoin(now, certain=False)
            self._evict = leaving
            return
        if answer.coordinator != self.coordinator:
            self._heard_at = now  # a new coordinator has the full timeout
            self._answers = True
            self._failures = 1
            self._move(GroupState.SYNCING)
        if (answer.coordinator, answer.epoch) != (self.coordinator, self.epoch):
            self.coordinator, self.epoch = answer.coordinator, answer.epoch
            self._not_before = now
        else:
            self._not_before = now + self._pause()

    def _not_located(self, now: float, answer: Refused) -> None:
        if not self._failures and answer.why is not GroupRefusal.REFUSED:
            # Only missing streams were looked for, which must not delay the heartbeat.
            self._locate = False
            self._not_before = now
            return
        self._failures += 1
        self._answers = False  # ask another broker
        self._not_before = now + self._pause()
        if answer.why is GroupRefusal.NO_GROUP:
            self._locate = False
            self._miss(now)
        elif answer.why is GroupRefusal.REFUSED:
            self._fail(answer.error)

    def _reported(self, now: float, call: Report, answer: Answer) -> None:
        # Reports expire in the cluster, which waits for those of other members.
        self._next_report = now + self.coordinator_timeout / 2
        self._locate, self._answers = True, False
        self._not_before = now
        if isinstance(answer, Refused):
            if answer.why is GroupRefusal.LOST:
                self._next_report = now + self._pause()
            elif answer.why is GroupRefusal.NO_GROUP:
                self._miss(now)
            elif answer.why is GroupRefusal.NOT_A_MEMBER:
                self._denied(now, certain=call.epoch == self.epoch)

    # Expulsion

    def _heard(self, now: float) -> None:
        """Record an answer of the coordinator."""
        self._heard_at = now
        self._answers = True
        if self.state is GroupState.COORDINATOR_LOST:
            self._move(GroupState.SYNCING)

    def _denied(self, now: float, *, certain: bool = False) -> None:
        """Rejoin once a broker has denied this member for longer than it may lag behind."""
        if self._denied_since is None:
            self._denied_since = now
        if certain or now - self._denied_since >= self._grace:
            self._rejoin(now, certain=certain)

    def _miss(self, now: float) -> None:
        """Rejoin once brokers other than the coordinator have known no such group for a while."""
        if self._missing_since is None:
            self._missing_since = now
        if now - self._missing_since >= self._grace:
            self._rejoin(now, certain=False)

    def _rejoin(self, now: float, *, certain: bool) -> None:
        self._move(GroupState.REJOINING)
        self.assignment, self.assigned_epoch = frozenset(), None
        self.confirmed_at = -math.inf
        # If the server still has this member, remove it so that others need not wait for its
        # expulsion.
        self._evict = self.consumer if self._own and not certain else None
        self._join_unknown = False
        self._missing_since = None
        self.consumer = next(self._ids)
        self._deadline = math.inf
        self._failures = 0
        self._not_before = now

    # States

    def _fail(self, error: LiftbridgeError) -> None:
        self.error = error
        self.assignment, self.assigned_epoch = frozenset(), None
        self._move(GroupState.FAILED)

    def _move(self, state: GroupState) -> None:
        if state is self.state:
            return
        if state not in MOVES[self.state]:
            raise AssertionError(f"a member that is {self.state.value} cannot become {state.value}")
        self.state = state
