"""A broker that replays a condensed list has the same state as one that replays everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.broker.cluster.bus import Bus
from liftbridge_aio.broker.cluster.controller import Controller
from liftbridge_aio.broker.cluster.group_controller import GroupController
from liftbridge_aio.broker.cluster.node import Node
from liftbridge_aio.broker.errors import BrokerError, PublishRefused
from liftbridge_aio.broker.storage.core.operation_list import IndexedOperation, condense
from liftbridge_aio.broker.storage.core.operations import PublishActivity
from liftbridge_aio.broker.storage.storage import MemoryStorage
from support.broker.pure_brokers import SingleBroker, stream

STREAMS = ("a", "b")
GROUPS = ("g", "h")
CONSUMERS = ("x", "y", "z")

Step: TypeAlias = Callable[[SingleBroker, GroupController], object]

names = st.sampled_from(STREAMS)
numbers = st.lists(st.integers(0, 2), max_size=3)


def create(name: str, partitions: int) -> Step:
    return lambda broker, _: broker.create(stream(name, partitions=partitions))


def delete(name: str) -> Step:
    return lambda broker, _: broker.controller.delete_stream(name, broker.clock.now)


def pause(name: str, which: Sequence[int] = (), *, resume_all: bool = False) -> Step:
    return lambda broker, _: broker.pause(name, which, resume_all=resume_all)


def send(name: str, number: int) -> Step:
    return lambda broker, _: broker.send(name, number)


def set_readonly(name: str, which: Sequence[int], *, readonly: bool) -> Step:
    return lambda broker, _: broker.set_readonly(name, which, readonly=readonly)


def join(group: str, consumer: str, streams: Sequence[str]) -> Step:
    return lambda broker, groups: groups.join_group(group, consumer, streams, broker.clock.now)


def leave(group: str, consumer: str) -> Step:
    return lambda broker, groups: groups.leave_group(group, consumer, broker.clock.now)


def note_activity(behind: int) -> Step:
    def note(broker: SingleBroker, _groups: GroupController) -> None:
        index = max(broker.controller.last_index - behind, broker.me.published_activity)
        broker.controller.propose(PublishActivity(index=index), broker.clock.now)

    return note


STEPS = st.one_of(
    st.builds(create, names, st.integers(1, 3)),
    st.builds(create, names, st.integers(1, 3)),
    st.builds(delete, names),
    st.builds(pause, names, numbers, resume_all=st.booleans()),
    st.builds(send, names, st.integers(0, 2)),
    st.builds(set_readonly, names, numbers, readonly=st.booleans()),
    st.builds(
        join, st.sampled_from(GROUPS), st.sampled_from(CONSUMERS), st.lists(names, unique=True)
    ),
    st.builds(leave, st.sampled_from(GROUPS), st.sampled_from(CONSUMERS)),
    st.builds(note_activity, st.integers(0, 2)),
)


def happened(steps: Sequence[Step]) -> tuple[SingleBroker, Sequence[IndexedOperation]]:
    """A broker that accepted some of these steps, and the list of its operations."""
    broker = SingleBroker()
    groups = GroupController(broker.controller, coordinator_timeout=15.0)
    for step in steps:
        broker.clock.now += 1
        try:
            step(broker, groups)
        except (BrokerError, PublishRefused):
            continue
    return broker, broker.controller.operations_after(0)


def replayed(operations: Sequence[IndexedOperation]) -> Node:
    controller = Controller()
    controller.replay(operations)
    node = Node("me", Bus(1, 1), MemoryStorage(), consumer_timeout=15.0)
    controller.add(node)
    controller.start(node, now=1_000)
    return node


def state_of(node: Node) -> object:
    """A broker's state as clients see it, without timestamps of pauses, loads and messages."""
    streams = [
        (
            one.name,
            one.subject,
            one.created,
            one.index,
            one.resume_all,
            [
                (
                    partition.is_paused,
                    partition.log.readonly,
                    partition.log.state,
                    partition.leadership is not None,
                    partition.leader_epoch,
                    partition.info().paused,
                    partition.info().readonly,
                    partition.info().readonly_changes,
                )
                for partition in one.partitions.values()
            ],
        )
        for one in node.streams
    ]
    groups = [
        (
            group.name,
            group.coordinator,
            group.epoch,
            [(member, group.assignments(member)) for member in group.members],
        )
        for group in map(node.groups.group, GROUPS)
        if group is not None
    ]
    return streams, groups, node.published_activity


@given(st.lists(STEPS, max_size=40))
def test_condensing_makes_no_difference(steps: list[Step]) -> None:
    broker, operations = happened(steps)

    condensed = condense(operations)

    assert [one for one in operations if one in condensed] == condensed  # indices and order kept
    assert state_of(replayed(condensed)) == state_of(replayed(operations)) == state_of(broker.me)


PAUSES = st.one_of(
    st.builds(pause, st.just("a"), numbers, resume_all=st.booleans()),
    st.builds(send, st.just("a"), st.integers(0, 2)),
)


@given(st.lists(PAUSES, max_size=12))
def test_condensing_pauses_loses_only_timestamps(pauses: list[Step]) -> None:
    broker, operations = happened([create("a", 3), *pauses])

    assert state_of(replayed(condense(operations))) == state_of(broker.me)


@given(st.lists(STEPS, max_size=15), st.lists(STEPS, max_size=15))
def test_a_condensed_list_can_be_extended_and_condensed_again(
    before: list[Step], after: list[Step]
) -> None:
    _, all_of_it = happened([*before, *after])
    _, first_part = happened(before)
    rest = all_of_it[len(first_part) :]

    again = condense([*condense(first_part), *rest])

    assert state_of(replayed(again)) == state_of(replayed(all_of_it))


def left(*steps: Step) -> list[int]:
    """The indices that matter."""
    return [index for index, _ in condense(happened(steps)[1])]


def test_a_deleted_stream_leaves_nothing() -> None:
    assert left(create("a", 1), pause("a", resume_all=True), delete("a"), create("a", 1)) == [4]


def test_deleted_streams_of_group_members_stay() -> None:
    assert left(create("a", 1), join("g", "x", ["a"]), delete("a")) == [1, 2, 3]


def test_a_group_without_members_leaves_nothing() -> None:
    steps = (create("a", 1), join("g", "x", ["a"]), join("g", "y", []), leave("g", "x"))
    assert left(*steps) == [1, 2, 3, 4]
    assert left(*steps, leave("g", "y")) == [1]


def test_only_the_last_pause_and_later_operations_stay() -> None:
    cycle = (pause("a"), send("a", 0))
    assert left(create("a", 1), *cycle * 10) == [1, 20, 21]
    assert left(create("a", 1), *cycle * 10, pause("a", [0])) == [1, 22]


def test_only_the_last_activity_operation_stays() -> None:
    assert left(create("a", 1), *[note_activity(0)] * 5) == [1, 6]
