"""No sequence of failures in a cluster of three loses committed messages.

Committed is what some broker has, or had, at or below its high watermark. What is acked to `ALL` is
committed by the leader at that moment. Leaders come from the replicas in sync; then these hold:

- An offset, once committed, has the same message for ever, on every broker that shows it.
- Every replica in sync, as the metadata tells, stores all that was committed: whoever leads next
  has it, whether it is dead now or not. (Its own high watermark may lag.)
- High watermarks never go back.
- Something new is committed only by a leader that knows of enough replicas in sync.
- Brokers that know of the same operations count the same loads, and none is negative.
- Once all is well again, all replicas store the same, and nobody waits for an ack any more.

Messages acked to `LEADER` may be lost, and others may get their offsets.
"""

from __future__ import annotations

from typing import TypeAlias

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from liftbridge_aio.broker.cluster.partition import Partition
from liftbridge_aio.broker.errors import BrokerError, PublishRefused
from liftbridge_aio.model import Ack, AckPolicy
from support.broker.pure_brokers import PureCluster, incoming, stream
from support.examples import examples

BROKERS = ("n1", "n2", "n3")
STREAMS = ("three", "two")
REFUSALS = {
    "no known metadata leader",
    "No ISR candidates",
    "readonly partition: 0",
}
REFUSALS_BEGIN = ("Leader generation mismatch", "n1 lacks", "n2 lacks", "n3 lacks")

brokers = st.sampled_from(BROKERS)
streams = st.sampled_from(STREAMS)

Place: TypeAlias = tuple[str, int]
"""A stream and an offset."""


class ClusterMachine(RuleBasedStateMachine):
    """Three brokers, a stream on all of them, and one on two."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = PureCluster(*BROKERS)
        self.committed: dict[Place, bytes] = {}
        self.acked: dict[bytes, Ack] = {}
        self.high_watermarks: dict[tuple[str, str], int] = {}
        self.held: set[str] = set()
        self.published = 0

    @initialize(min_isr=st.integers(1, 2))
    def create(self, min_isr: int) -> None:
        self.min_isr = {"three": min_isr, "two": 1}
        self.cluster.create(stream("three", replicas=3, min_isr=min_isr), stream("two", replicas=2))

    @rule(server_id=brokers, name=streams, policy=st.sampled_from(AckPolicy))
    def publish(self, server_id: str, name: str, policy: AckPolicy) -> None:
        if not self.cluster.node(server_id).is_running:
            return
        value = b"%d" % self.published
        self.published += 1
        sent = incoming(value, policy)

        def acked(ack: Ack) -> None:
            self.acked[value] = ack
            if policy is AckPolicy.ALL:
                place = (name, ack.offset)
                assert self.committed.setdefault(place, value) == value

        sent.reply = acked
        try:
            self.cluster.contexts[server_id].publish(name, 0, sent)
        except (PublishRefused, BrokerError) as refused:
            self.expect(refused)

    @rule(server_id=brokers, name=streams, times=st.integers(1, 3))
    def fetch(self, server_id: str, name: str, times: int) -> None:
        for _ in range(times):
            self.cluster.fetch(server_id, name)

    @rule(name=streams)
    def replicate(self, name: str) -> None:
        self.cluster.replicate(name)

    @rule(server_id=brokers)
    def stop_or_start(self, server_id: str) -> None:
        if self.cluster.node(server_id).is_running:
            self.cluster.stop(server_id)
        else:
            self.cluster.start(server_id)

    @rule(server_id=brokers)
    def hold_or_release(self, server_id: str) -> None:
        if server_id in self.held:
            self.held.remove(server_id)
            self.cluster.controller.release(server_id, self.cluster.clock.now)
        else:
            self.held.add(server_id)
            self.cluster.controller.hold(server_id)

    @rule(name=streams)
    def fail_over(self, name: str) -> None:
        """The leader dies and the others notice."""
        leader = self.latest(name).leader
        if self.cluster.node(leader).is_running:
            self.cluster.stop(leader)
        self.silence_the_leader(name)

    @rule()
    def start_all(self) -> None:
        self.cluster.start(*(one for one in BROKERS if not self.cluster.node(one).is_running))

    @rule(name=streams)
    def silence_the_leader(self, name: str) -> None:
        """All followers report it dead at once."""
        for server_id in BROKERS:
            partition = self.known(server_id, name)
            if partition.is_following:
                try:
                    self.cluster.report(server_id, name)
                except BrokerError as refused:
                    self.expect(refused)

    @rule(server_id=brokers, name=streams)
    def report(self, server_id: str, name: str) -> None:
        if self.known(server_id, name).is_following:
            try:
                self.cluster.report(server_id, name)
            except BrokerError as refused:
                self.expect(refused)

    @rule(server_id=brokers, replica=brokers, name=streams)
    def change_who_is_in_sync(self, server_id: str, replica: str, name: str) -> None:
        """A leader may consider any follower lagging, or caught up."""
        partition = self.known(server_id, name)
        if partition.leadership is None or replica not in partition.leadership.followers:
            return
        change = self.cluster.shrink if replica in partition.isr else self.cluster.expand
        try:
            change(server_id, replica, name)
        except BrokerError as refused:
            self.expect(refused)

    @rule(name=streams)
    def pause_or_resume(self, name: str) -> None:
        controller = self.cluster.controller
        try:
            if self.cluster.decided(name).is_paused:
                controller.resume(name, (0,), self.cluster.clock.now)
            else:
                controller.pause(name, (0,), self.cluster.clock.now)
        except BrokerError as refused:
            self.expect(refused)

    @rule(name=streams, readonly=st.booleans())
    def set_readonly(self, name: str, readonly: bool) -> None:
        try:
            self.cluster.controller.set_readonly(
                name, (), self.cluster.clock.now, readonly=readonly
            )
        except BrokerError as refused:
            self.expect(refused)

    @rule(seconds=st.sampled_from([1, 20]))
    def wait(self, seconds: int) -> None:
        self.cluster.clock.now += seconds * 10**9

    def known(self, server_id: str, name: str) -> Partition:
        return self.cluster.partition(server_id, name)

    def replicas(self, name: str) -> list[Partition]:
        every = [self.known(server_id, name) for server_id in BROKERS]
        return [one for one in every if one.is_replica]

    def latest(self, name: str) -> Partition:
        """The partition of the broker that has applied the most operations."""
        node = max(self.cluster.controller.nodes.values(), key=lambda one: one.applied)
        found = node.partition(name, 0)
        assert found is not None
        return found

    def expect(self, refused: BrokerError | PublishRefused) -> None:
        assert refused.text in REFUSALS or refused.text.startswith(REFUSALS_BEGIN), refused.text

    @invariant()
    def a_committed_offset_has_one_message_for_ever(self) -> None:
        for name in STREAMS:
            new: dict[Place, bytes] = {}
            for replica in self.replicas(name):
                for message in replica.log.read(0, replica.log.next_offset):
                    place = (name, message.offset)
                    value = self.committed.get(place, new.setdefault(place, message.value))
                    assert message.value == value
            if not new.keys() <= self.committed.keys():
                leaders = [one for one in self.replicas(name) if one.leadership is not None]
                assert any(len(one.isr) >= self.min_isr[name] for one in leaders)
            self.committed |= new

    @invariant()
    def replicas_in_sync_store_all_that_was_committed(self) -> None:
        for name in STREAMS:
            committed = {
                offset: value for (place, offset), value in self.committed.items() if place == name
            }
            for server_id in self.latest(name).isr:
                log = self.known(server_id, name).log
                stored = {one.offset: one.value for one in log.read_stored(0, log.next_offset)}
                assert committed.items() <= stored.items(), server_id

    @invariant()
    def high_watermarks_never_go_back(self) -> None:
        for name in STREAMS:
            for server_id in BROKERS:
                now = self.known(server_id, name).log.high_watermark
                assert now >= self.high_watermarks.get((server_id, name), -1)
                self.high_watermarks[server_id, name] = now

    @invariant()
    def loads_add_up(self) -> None:
        counts: dict[int, list[int]] = {}
        for node in self.cluster.controller.nodes.values():
            loads = [
                count
                for one in BROKERS
                for count in (node.loads.partition_count(one), node.loads.leader_count(one))
            ]
            assert min(loads) >= 0
            assert counts.setdefault(node.applied, loads) == loads

    def teardown(self) -> None:
        """End all failures."""
        if not self.cluster.controller.last_index:
            return
        for server_id in BROKERS:
            self.cluster.controller.release(server_id, self.cluster.clock.now)
            if not self.cluster.node(server_id).is_running:
                self.cluster.start(server_id)
        for name in STREAMS:
            self.cluster.controller.resume(name, (0,), self.cluster.clock.now)
            self.cluster.replicate(name)
            leader = self.latest(name).leader
            for one in self.replicas(name):
                for replica in one.replicas:
                    if one.leadership is not None and replica not in one.isr:
                        self.cluster.expand(leader, replica, name)
            self.cluster.replicate(name)
            logs = [one.log for one in self.replicas(name)]
            stored = [[one.value for one in log.read(0, log.next_offset)] for log in logs]
            assert all(one == stored[0] for one in stored)
            assert {log.high_watermark for log in logs} == {logs[0].newest_offset}
            assert sorted(self.latest(name).isr) == sorted(self.latest(name).replicas)
        self.a_committed_offset_has_one_message_for_ever()
        self.high_watermarks_never_go_back()


TestCluster = ClusterMachine.TestCase
TestCluster.settings = settings(max_examples=examples(120), stateful_step_count=40, deadline=None)
