"""Whatever happens in a cluster: a member is never wrong about what is its own, and finds back."""

from __future__ import annotations

import math
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from liftbridge_aio.groups.core.group_state import GroupState
from liftbridge_aio.groups.core.membership import Membership
from liftbridge_aio.groups.core.steps import Rest
from support.examples import examples
from support.groups.simulated_group import BROKERS, CONSUMER_TIMEOUT, SimulatedGroup, lost

STRANGERS = st.sampled_from(["0", "z1", "z2"])
IN_GROUP = {GroupState.SYNCING, GroupState.STABLE, GroupState.COORDINATOR_LOST}


class OneMember(RuleBasedStateMachine):
    """One member, and a cluster in which anything may happen."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = SimulatedGroup()
        self.strangers: set[str] = set()
        self.chance = 0.5
        self.core = Membership((f"m{number}" for number in range(10**6)), lambda: self.chance)
        self.core.begin(0.0, math.inf)

    # The member

    def step(self, limit: float, *, answered: bool = True, done: bool = True) -> None:
        core, cluster = self.core, self.cluster
        step = core.next_step(cluster.now)
        if isinstance(step, Rest):
            self.wait(min(max(step.until - cluster.now, 0.001), limit))
            return
        began = cluster.now
        answer = cluster.answer(step) if done else lost()
        self.wait(0.002)
        core.take(step, began, cluster.now, answer if answered else lost())

    def wait(self, seconds: float) -> None:
        alive = frozenset(self.strangers)
        self.cluster.pass_time(seconds, alive=alive)

    @rule(chance=st.floats(0, 0.99), times=st.integers(1, 8))
    def run(self, chance: float, times: int) -> None:
        self.chance = chance
        for _ in range(times):
            self.step(CONSUMER_TIMEOUT)

    @rule(done=st.booleans())
    def answer_gets_lost(self, done: bool) -> None:
        self.step(CONSUMER_TIMEOUT, answered=False, done=done)

    @rule(seconds=st.floats(0.1, 2 * CONSUMER_TIMEOUT))
    def stand_still(self, seconds: float) -> None:
        self.wait(seconds)

    @rule()
    def fetch_now(self) -> None:
        self.core.fetch_now(self.cluster.now)

    # The cluster

    @rule(name=STRANGERS)
    def somebody_joins(self, name: str) -> None:
        if name not in self.cluster.group.members:
            self.strangers.add(name)
            self.cluster.join(name)

    @rule(name=STRANGERS)
    def somebody_leaves(self, name: str) -> None:
        self.strangers.discard(name)
        if name in self.cluster.group.members:
            self.cluster.take_out(name)

    @rule(broker=st.sampled_from(BROKERS))
    def broker_dies(self, broker: str) -> None:
        self.cluster.dead.add(broker)

    @rule(broker=st.sampled_from(BROKERS))
    def broker_comes_back(self, broker: str) -> None:
        self.cluster.dead.discard(broker)
        self.cluster.lagging.discard(broker)
        self.cluster.catch_up(broker)

    @rule(broker=st.sampled_from(BROKERS))
    def broker_lags(self, broker: str) -> None:
        self.cluster.lagging.add(broker)

    @rule()
    def coordinator_changes(self) -> None:
        self.cluster.elect()

    @precondition(lambda self: self.core.state is not GroupState.JOINING)
    @rule(again=st.booleans())
    def stream_comes_or_goes(self, again: bool) -> None:
        """A stream is deleted, and may be created again at once, or it is created again now."""
        existed = "t" in self.cluster.group.streams
        if existed:
            self.cluster.delete_stream()
        if again or not existed:
            self.cluster.create_stream()

    # What holds

    @invariant()
    def only_a_member_has_partitions(self) -> None:
        if self.core.state not in IN_GROUP:
            assert not self.core.assignment
            assert self.core.assigned_epoch is None

    @invariant()
    def nobody_else_has_them_while_it_is_sure(self) -> None:
        if self.cluster.now < self.core.lease_until and not self.cluster.fooled:
            assert self.core.consumer in self.cluster.group.members

    @precondition(lambda self: self.core.state is GroupState.STABLE)
    @invariant()
    def a_rest_is_never_longer_than_the_group_has_patience(self) -> None:
        step = self.core.next_step(self.cluster.now)
        if isinstance(step, Rest):
            assert step.until - self.cluster.now < 0.41 * CONSUMER_TIMEOUT

    def teardown(self) -> None:
        """Once the cluster is well, the member finds its place."""
        cluster, core = self.cluster, self.core
        cluster.dead.clear()
        cluster.lagging.clear()
        for broker in BROKERS:
            cluster.catch_up(broker)
        until = cluster.now + 6 * CONSUMER_TIMEOUT
        self.run_until(lambda: cluster.now >= until)
        assert core.state is GroupState.STABLE
        assert (core.coordinator, core.epoch) == (cluster.group.coordinator, cluster.group.epoch)
        assert core.assignment == cluster.group.share(core.consumer)
        # Nobody else stands there in its name.
        assert cluster.group.members.keys() == self.strangers | {core.consumer}
        assert cluster.group.members[core.consumer] == cluster.group.streams.keys()

        core.leave(cluster.now, cluster.now + 5)
        self.run_until(lambda: core.state is GroupState.LEFT)
        assert core.consumer not in cluster.group.members

    def run_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(2000):
            if condition():
                return
            self.step(CONSUMER_TIMEOUT)
        raise AssertionError(f"{self.core.state} still")


OneMember.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=30, deadline=None
)
TestOneMember = OneMember.TestCase
