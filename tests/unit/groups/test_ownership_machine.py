"""Partitions that come and go: each is taken up and given up in order, and only once."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from liftbridge_aio.groups.core.ownership import Adopt, Hold, Idle, Open, Ownership, Revoke
from liftbridge_aio.model import StreamPartition
from support.examples import examples

PLACES = [StreamPartition("s", number) for number in range(4)]
ASSIGNMENTS = st.frozensets(st.sampled_from(PLACES))
Assignment = frozenset[StreamPartition]


class OneOwner(RuleBasedStateMachine):
    """Carries out steps in parts, so that anything may happen in the middle of each."""

    def __init__(self) -> None:
        super().__init__()
        self.ownership = Ownership()
        self.now = 0.0
        self.confirmed_at = 0.0
        self.open: set[StreamPartition] = set()
        """Handed out just now."""
        self.told: set[StreamPartition] = set()
        """The user knows of them."""
        self.due: set[StreamPartition] = set()
        """Withdrawn, and not committed yet."""
        self.lost: set[StreamPartition] = set()
        self.taken: dict[StreamPartition, float] = {}
        self.resolving: Assignment = frozenset()
        self.telling: Assignment = frozenset()
        self.revoking: Revoke | None = None

    # What happens

    @rule(wanted=ASSIGNMENTS)
    def assigned(self, wanted: Assignment) -> None:
        self.confirmed_at = self.now
        gone = self.ownership.assign(wanted)
        assert gone == (self.told - self.due - self.lost) - wanted
        self.open -= gone
        self.due |= gone

    @rule()
    def expelled(self) -> None:
        gone = self.ownership.lose()
        assert gone == self.told - self.due - self.lost
        self.open -= gone
        self.lost |= gone | self.due
        self.due.clear()

    @rule(place=st.sampled_from(PLACES), taken=st.booleans())
    def reading_ends(self, place: StreamPartition, taken: bool) -> None:
        if place in self.open:
            self.open.discard(place)
            self.ownership.ended(place, self.now, taken=taken)
            if taken:
                self.taken[place] = self.now

    @rule(place=st.sampled_from(PLACES))
    def seek(self, place: StreamPartition) -> None:
        if self.ownership.reopen(place):
            assert place in self.told - self.due - self.lost
            self.open.discard(place)

    @rule(seconds=st.floats(0.01, 3))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def heard_again(self) -> None:
        self.confirmed_at = self.now

    # Steps, in parts

    @rule(found=ASSIGNMENTS)
    def goes_on(self, found: Assignment) -> None:
        if self.resolving:
            known = self.resolving & found
            told = self.ownership.resolved(known)
            assert told <= known & self.ownership.wanted
            self.ownership.unresolved(self.resolving - told, self.now)
            self.resolving = frozenset()
            self.telling = told
            self.told |= told
        elif self.telling:
            self.ownership.announced(self.telling)
            self.telling = frozenset()
        elif self.revoking is not None:
            self.given_up(self.revoking)
        else:
            self.begin_step()

    def begin_step(self) -> Idle | None:
        step = self.ownership.next_step(self.now, self.confirmed_at)
        match step:
            case Revoke():
                assert not step.partitions & self.open
                assert step.partitions <= (self.due if step.commit else self.lost)
                self.revoking = step
            case Adopt():
                assert step.partitions <= self.ownership.wanted
                assert not step.partitions & self.told
                self.resolving = step.partitions
            case Open():
                for place in step.partitions:
                    assert place in self.told - self.due - self.lost
                    assert place not in self.open
                    assert self.taken.get(place, -1.0) <= self.confirmed_at
                    self.ownership.opened(place, self.now)
                    self.open.add(place)
            case Idle():
                assert step.until > self.now
                return step
        return None

    def given_up(self, step: Revoke) -> None:
        self.ownership.revoked(step)
        self.told -= step.partitions
        self.due -= step.partitions
        self.lost -= step.partitions
        for place in step.partitions:
            self.taken.pop(place, None)
        self.revoking = None

    # What holds

    @invariant()
    def owned_is_what_the_user_was_told_and_may_keep(self) -> None:
        assert self.ownership.owned == self.told - self.due - self.lost - self.telling

    @invariant()
    def only_what_is_assigned_is_handed_out(self) -> None:
        assert self.open <= self.ownership.wanted & self.told

    @invariant()
    def what_is_handed_out_is_read(self) -> None:
        assert all(self.ownership.hold(place) is Hold.READING for place in self.open)

    def teardown(self) -> None:
        """When nothing more happens, all that is assigned is read."""
        for _ in range(200):
            self.now += 0.5
            self.confirmed_at = self.now
            self.goes_on(frozenset(PLACES))
        assert self.open == set(self.ownership.wanted) == self.told


TestOneOwner = OneOwner.TestCase
TestOneOwner.settings = settings(max_examples=examples(50), stateful_step_count=40, deadline=None)
