"""Consumer groups: assignments, epochs, and that all brokers compute the same."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from liftbridge_aio.broker.cluster.groups import ConsumerGroups
from liftbridge_aio.broker.errors import BrokerError, Code
from liftbridge_aio.broker.storage.core.operations import (
    ChangeGroupCoordinator,
    CreateConsumerGroup,
    DeleteStream,
    JoinConsumerGroup,
    LeaveConsumerGroup,
    Operation,
)
from support.examples import examples

STREAMS = {"none": 0, "one": 1, "two": 2, "three": 3, "five": 5, "eight": 8}
GROUPS = ("g1", "g2")
CONSUMERS = ("a", "b", "c", "d", "ä")
SERVERS = ("s1", "s2", "s3")


def registry(server_id: str = "s1") -> ConsumerGroups:
    return ConsumerGroups(server_id, lambda stream: STREAMS.get(stream, 0))


def refusal(error: pytest.ExceptionInfo[BrokerError]) -> tuple[Code, str]:
    return error.value.code, error.value.text


def test_coordinators_are_those_with_the_fewest_groups() -> None:
    groups = registry()
    for index, name in enumerate(("g1", "g2", "g3", "g4"), 1):
        coordinator = groups.choose_coordinator(SERVERS)
        operation = CreateConsumerGroup(
            group=name, coordinator=coordinator, consumer="a", streams=("one",)
        )
        groups.apply(operation, index)
    chosen = [groups.existing(name).coordinator for name in ("g1", "g2", "g3", "g4")]
    assert chosen == ["s1", "s2", "s3", "s1"]

    groups.apply(ChangeGroupCoordinator(group="g1", coordinator="s3"), 5)
    groups.apply(LeaveConsumerGroup(group="g2", consumer="a", expired=True), 6)
    assert groups.choose_coordinator(SERVERS) == "s2"
    assert groups.choose_coordinator(("s3", "s1")) == "s1"
    with pytest.raises(BrokerError) as error:
        groups.choose_coordinator(())
    assert refusal(error) == (Code.FAILED_PRECONDITION, "No group coordinator candidates")


class GroupsMachine(RuleBasedStateMachine):
    """Joins, leaves, deletions and coordinators, applied by two brokers."""

    def __init__(self) -> None:
        super().__init__()
        self.streams = dict(STREAMS)
        self.first = ConsumerGroups("s1", lambda stream: self.streams.get(stream, 0))
        self.second = ConsumerGroups("s2", lambda stream: self.streams.get(stream, 0))
        self.wanted: dict[str, dict[str, set[str]]] = {}
        self.epochs: dict[str, int] = {}
        self.index = 0

    def happens(self, operation: Operation) -> None:
        self.index += 1
        self.first.apply(operation, self.index)
        self.second.apply(operation, self.index)

    @rule(
        group=st.sampled_from(GROUPS),
        consumer=st.sampled_from(CONSUMERS),
        streams=st.lists(st.sampled_from([*STREAMS, "unknown"]), min_size=1, max_size=4),
    )
    def join(self, group: str, consumer: str, streams: list[str]) -> None:
        members = self.wanted.get(group, {})
        if consumer in members or not all(self.streams.get(stream) for stream in streams):
            with pytest.raises(BrokerError):
                self.first.check_join(group, consumer, streams)
            return
        self.first.check_join(group, consumer, streams)
        if group in self.wanted:
            self.happens(JoinConsumerGroup(group=group, consumer=consumer, streams=tuple(streams)))
            assert self.first.existing(group).epoch == self.index
        else:
            coordinator = self.first.choose_coordinator(SERVERS)
            assert coordinator == self.second.choose_coordinator(SERVERS)
            self.happens(
                CreateConsumerGroup(
                    group=group, coordinator=coordinator, consumer=consumer, streams=tuple(streams)
                )
            )
            assert self.first.existing(group).epoch == 0
        self.wanted.setdefault(group, {})[consumer] = set(streams)
        self.balanced(group, max(streams))

    def balanced(self, group: str, stream: str) -> None:
        """No other member should have been assigned a partition instead."""
        found = self.first.existing(group)
        subscribers = [c for c, streams in self.wanted[group].items() if stream in streams]
        loads = {c: sum(map(len, found.assignments(c).values())) for c in subscribers}
        for consumer in subscribers:
            if stream in found.assignments(consumer):
                assert loads[consumer] - 1 <= min(loads.values())

    @precondition(lambda self: self.wanted)
    @rule(data=st.data(), expired=st.booleans())
    def leave(self, data: st.DataObject, expired: bool) -> None:
        group = data.draw(st.sampled_from(sorted(self.wanted)))
        consumer = data.draw(st.sampled_from(sorted(self.wanted[group])))
        self.first.check_leave(group, consumer)
        self.happens(LeaveConsumerGroup(group=group, consumer=consumer, expired=expired))
        del self.wanted[group][consumer]
        if not self.wanted[group]:
            del self.wanted[group]
            self.epochs.pop(group, None)

    @rule(stream=st.sampled_from(list(STREAMS)))
    def delete_stream(self, stream: str) -> None:
        del self.streams[stream]
        self.happens(DeleteStream(stream=stream))
        self.streams[stream] = STREAMS[stream]  # created again, without subscribers
        for members in self.wanted.values():
            for streams in members.values():
                streams.discard(stream)

    @precondition(lambda self: self.wanted)
    @rule(data=st.data(), coordinator=st.sampled_from(SERVERS))
    def change_coordinator(self, data: st.DataObject, coordinator: str) -> None:
        group = data.draw(st.sampled_from(sorted(self.wanted)))
        self.happens(ChangeGroupCoordinator(group=group, coordinator=coordinator))
        assert self.first.existing(group).coordinator == coordinator

    @invariant()
    def each_partition_has_one_reader_who_wants_it(self) -> None:
        for group, members in self.wanted.items():
            found = self.first.existing(group)
            assert set(found.members) == set(members)
            for stream, count in self.streams.items():
                assigned: list[int] = []
                for consumer in members:
                    partitions = found.assignments(consumer).get(stream, ())
                    assert not partitions or stream in members[consumer]
                    assigned += partitions
                is_wanted = any(stream in streams for streams in members.values())
                assert sorted(assigned) == list(range(count if is_wanted else 0))

    @invariant()
    def alone_with_one_stream_shares_are_even(self) -> None:
        for group, members in self.wanted.items():
            if len(set().union(*members.values())) == 1:
                found = self.first.existing(group)
                loads = [
                    sum(map(len, found.assignments(consumer).values()))
                    for consumer, streams in members.items()
                    if streams
                ]
                # Partitions of a deleted stream counted when this one was assigned, but the
                # deletion rebalanced this one.
                assert max(loads) - min(loads) <= 1

    @invariant()
    def epochs_grow_and_brokers_agree(self) -> None:
        for group in self.wanted:
            first, second = self.first.existing(group), self.second.existing(group)
            assert self.epochs.get(group, 0) <= first.epoch <= self.index
            self.epochs[group] = first.epoch
            assert (first.epoch, first.coordinator) == (second.epoch, second.coordinator)
            for consumer in first.members:
                assert first.assignments(consumer) == second.assignments(consumer)
        for group in GROUPS:
            assert (self.first.group(group) is None) == (group not in self.wanted)


TestGroupsMachine = GroupsMachine.TestCase
TestGroupsMachine.settings = settings(
    max_examples=examples(60), stateful_step_count=30, deadline=None
)
