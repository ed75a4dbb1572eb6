"""Consumer groups: assignments, epochs, and that all brokers compute the same."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from liftbridge_aio.broker.cluster.consumer_group import ConsumerGroup
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


def joined(*members: tuple[str, Sequence[str]]) -> ConsumerGroups:
    """A group ``g1`` of these members, joined in this order with indexes from 1 on."""
    groups = registry()
    for index, (consumer, streams) in enumerate(members, 1):
        join(groups, index, consumer, streams)
    return groups


def join(groups: ConsumerGroups, index: int, consumer: str, streams: Sequence[str]) -> None:
    groups.check_join("g1", consumer, streams)
    if groups.group("g1") is None:
        operation: Operation = CreateConsumerGroup(
            group="g1", coordinator="s1", consumer=consumer, streams=tuple(streams)
        )
    else:
        operation = JoinConsumerGroup(group="g1", consumer=consumer, streams=tuple(streams))
    groups.apply(operation, index)


def leave(groups: ConsumerGroups, index: int, consumer: str) -> None:
    groups.check_leave("g1", consumer)
    groups.apply(LeaveConsumerGroup(group="g1", consumer=consumer, expired=False), index)


def shares(groups: ConsumerGroups) -> dict[str, dict[str, list[int]]]:
    group = groups.existing("g1")
    return {
        consumer: {s: list(p) for s, p in group.assignments(consumer).items()}
        for consumer in group.members
    }


def refusal(error: pytest.ExceptionInfo[BrokerError]) -> tuple[Code, str]:
    return error.value.code, error.value.text


def test_the_first_epoch_is_0_and_later_ones_are_indexes() -> None:
    groups = registry()
    epochs = []
    for index, consumer in ((17, "a"), (23, "b")):
        join(groups, index, consumer, ["one"])
        epochs.append(groups.existing("g1").epoch)
    leave(groups, 31, "a")
    epochs.append(groups.existing("g1").epoch)
    groups.apply(ChangeGroupCoordinator(group="g1", coordinator="s2"), 32)
    epochs.append(groups.existing("g1").epoch)
    assert epochs == [0, 23, 31, 32]


def test_partitions_are_assigned_by_load_and_id() -> None:
    groups = joined(("b", ["five"]), ("a", ["five"]), ("c", ["five"]))
    assert shares(groups) == {"a": {"five": [0, 3]}, "b": {"five": [1, 4]}, "c": {"five": [2]}}


def test_partitions_of_other_streams_count_as_load() -> None:
    groups = joined(("a", ["five"]), ("b", ["three", "five"]))
    # "five" is assigned first, then "three", which only b reads.
    assert shares(groups) == {"a": {"five": [0, 2, 4]}, "b": {"five": [1, 3], "three": [0, 1, 2]}}

    join(groups, 3, "c", ["three"])
    assert shares(groups) == {
        "a": {"five": [0, 2, 4]},
        "b": {"five": [1, 3], "three": [2]},
        "c": {"three": [0, 1]},
    }


def test_only_the_streams_of_the_changed_member_are_rebalanced() -> None:
    groups = joined(("a", ["one", "five"]), ("b", ["five"]))
    assert shares(groups) == {"a": {"one": [0], "five": [1, 3]}, "b": {"five": [0, 2, 4]}}

    join(groups, 3, "c", ["one"])
    expected = {"a": {"five": [1, 3]}, "b": {"five": [0, 2, 4]}, "c": {"one": [0]}}
    assert shares(groups) == expected  # rebalanced, "five" would go to a first

    join(groups, 4, "d", ["one"])
    leave(groups, 5, "d")  # without partitions
    assert shares(groups) == expected
    leave(groups, 6, "c")
    assert shares(groups) == {"a": {"one": [0], "five": [1, 3]}, "b": {"five": [0, 2, 4]}}


def test_a_member_without_partitions_leaves_without_a_rebalance() -> None:
    groups = joined(("c", ["three"]), ("d", ["three"]), ("e", ["three"]), ("b", ["three", "two"]))
    before = shares(groups)
    assert before.pop("e") == {}
    # Rebalanced, all of "three" would go to c and d.
    assert before == {"b": {"three": [0], "two": [0, 1]}, "c": {"three": [1]}, "d": {"three": [2]}}
    leave(groups, 5, "e")
    assert shares(groups) == before


def test_a_deleted_stream_rebalances_the_other_streams_of_its_readers() -> None:
    groups = joined(("d", ["one", "two"]), ("c", ["one", "two"]))
    assert shares(groups) == {"d": {"two": [0]}, "c": {"one": [0], "two": [1]}}
    groups.apply(DeleteStream(stream="one"), 3)
    assert shares(groups) == {"d": {"two": [1]}, "c": {"two": [0]}}


def test_more_members_than_partitions_leaves_some_without() -> None:
    groups = joined(("a", ["one"]), ("b", ["one"]))
    assert shares(groups) == {"a": {"one": [0]}, "b": {}}


def test_the_last_leave_ends_the_group_and_the_next_one_begins_at_0() -> None:
    groups = joined(("a", ["one"]), ("b", ["one"]))
    leave(groups, 3, "a")
    leave(groups, 4, "b")
    assert groups.group("g1") is None
    join(groups, 5, "a", ["one"])
    assert groups.existing("g1").epoch == 0


def test_a_deleted_stream_is_unassigned_and_the_rest_rebalanced() -> None:
    groups = joined(("a", ["five"]), ("b", ["three", "five"]), ("c", ["three"]))
    groups.apply(DeleteStream(stream="three"), 4)
    assert shares(groups) == {"a": {"five": [0, 2, 4]}, "b": {"five": [1, 3]}, "c": {}}
    assert groups.existing("g1").epoch == 4


def test_deleting_a_stream_that_a_former_member_read_is_a_new_epoch_too() -> None:
    groups = joined(("a", ["one"]), ("b", ["three"]))
    leave(groups, 3, "b")
    groups.apply(DeleteStream(stream="eight"), 4)
    assert groups.existing("g1").epoch == 3
    groups.apply(DeleteStream(stream="three"), 5)
    assert groups.existing("g1").epoch == 5


def test_joins_are_refused_for_members_first_and_then_for_streams() -> None:
    groups = joined(("a", ["one"]))
    with pytest.raises(BrokerError) as member:
        groups.check_join("g1", "a", ["unknown"])
    with pytest.raises(BrokerError) as stream:
        groups.check_join("g2", "a", ["one", "unknown"])
    already = "consumer is already a member of the consumer group"
    assert refusal(member) == (Code.FAILED_PRECONDITION, already)
    assert refusal(stream) == (Code.FAILED_PRECONDITION, "stream does not exist")


def test_only_the_coordinator_returns_assignments() -> None:
    groups = joined(("a", ["one"]))
    assert groups.fetch_assignments("g1", "a", 0) == {"one": (0,)}
    groups.apply(ChangeGroupCoordinator(group="g1", coordinator="s2"), 2)
    with pytest.raises(BrokerError) as error:
        groups.fetch_assignments("g1", "a", 2)
    text = "broker is not the consumer group coordinator"
    assert refusal(error) == (Code.FAILED_PRECONDITION, text)


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


def test_only_a_broker_that_is_asked_assigns(monkeypatch: pytest.MonkeyPatch) -> None:
    balanced: list[str] = []
    balance = ConsumerGroup._balance

    def count(group: ConsumerGroup, stream: str, partitions: int) -> None:
        balanced.append(stream)
        balance(group, stream, partitions)

    monkeypatch.setattr(ConsumerGroup, "_balance", count)
    groups = joined(*((consumer, ["five", "eight"]) for consumer in CONSUMERS))
    assert balanced == []

    groups.existing("g1").assignments("a")
    groups.existing("g1").assignments("b")
    assert len(balanced) == 2 * len(CONSUMERS)


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
        for group in GROUPS:
            assert (self.first.group(group) is None) == (group not in self.wanted)

    def teardown(self) -> None:
        """A broker that is asked only now has the assignments of one that was asked each time."""
        for group in self.wanted:
            first, second = self.first.existing(group), self.second.existing(group)
            for consumer in first.members:
                assert first.assignments(consumer) == second.assignments(consumer)


TestGroupsMachine = GroupsMachine.TestCase
TestGroupsMachine.settings = settings(
    max_examples=examples(60), stateful_step_count=30, deadline=None
)
