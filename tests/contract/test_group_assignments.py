"""The assignment of partitions to the members of a group."""

from __future__ import annotations

import random

import pytest

from liftbridge_aio.broker.cluster.groups import ConsumerGroups
from liftbridge_aio.broker.storage.core.operations import (
    CreateConsumerGroup,
    JoinConsumerGroup,
    LeaveConsumerGroup,
    Operation,
)
from support.groups.group_calls import Group
from support.raw import Wire


@pytest.fixture
def group(wire: Wire, stream_name: str) -> Group:
    """A group that nobody has joined."""
    return Group(wire, f"group-{stream_name}")


async def test_a_deleted_stream_has_the_rest_of_its_readers_shared_out(
    wire: Wire, group: Group, stream_name: str
) -> None:
    one, two = f"{stream_name}-a", f"{stream_name}-b"
    await wire.create(one)
    await wire.create(two, partitions=2)
    await group.join("d", two, one)
    epoch = (await group.join("c", one, two)).epoch
    assert await group.shares("c", "d") == {"c": {one: [0], two: [1]}, "d": {two: [0]}}

    await wire.delete(one)
    await group.epoch_after(epoch)
    assert await group.shares("c", "d") == {"c": {two: [0]}, "d": {two: [1]}}


async def test_a_deleted_stream_is_a_new_epoch_without_it(
    wire: Wire, group: Group, stream_name: str
) -> None:
    doomed = f"{stream_name}-doomed"
    await wire.create(stream_name, partitions=2)
    await wire.create(doomed, partitions=3)
    await group.join("a", stream_name, doomed)
    epoch = (await group.join("b", doomed)).epoch

    await wire.delete(doomed)
    await group.epoch_after(epoch)
    assert await group.shares("a", "b") == {"a": {stream_name: [0, 1]}, "b": {}}
    await wire.create(doomed, partitions=3)
    assert await group.shares("a", "b") == {"a": {stream_name: [0, 1]}, "b": {}}


async def test_a_deleted_stream_that_a_former_member_read_is_a_new_epoch_too(
    wire: Wire, group: Group, stream_name: str
) -> None:
    former, never = f"{stream_name}-former", f"{stream_name}-never"
    for name in (stream_name, former, never):
        await wire.create(name)
    await group.join("a", stream_name)
    await group.join("b", former)
    await group.leave("b")
    epoch = await group.epoch()

    await wire.delete(never)
    await wire.delete(former)
    changed = await group.epoch_after(epoch)
    assert await group.fetch("a", changed) == {stream_name: [0]}


async def test_any_joins_and_leaves_give_the_shares_that_the_broker_reckons(
    wire: Wire, group: Group, stream_name: str
) -> None:
    """The pure core of the embedded broker against each server, by a walk drawn once."""
    counts = {f"{stream_name}-{number}": count for number, count in enumerate((1, 3, 5, 4))}
    for name, count in counts.items():
        await wire.create(name, partitions=count)
    walk = random.Random(4)
    reckoned = ConsumerGroups("any", lambda stream: counts[stream])
    members: set[str] = set()
    for step in range(40):
        consumer = walk.choice("abcde")
        if consumer in members and len(members) > 1:
            await group.leave(consumer)
            members.discard(consumer)
            operation: Operation = LeaveConsumerGroup(
                group=group.name, consumer=consumer, expired=False
            )
        elif consumer not in members:
            streams = tuple(walk.sample(sorted(counts), walk.randint(1, 4)))
            await group.join(consumer, *streams)
            if members:
                operation = JoinConsumerGroup(group=group.name, consumer=consumer, streams=streams)
            else:
                operation = CreateConsumerGroup(
                    group=group.name, coordinator="any", consumer=consumer, streams=streams
                )
            members.add(consumer)
        else:
            continue
        reckoned.apply(operation, step)
        expected = reckoned.existing(group.name)
        assert await group.shares(*members) == {
            each: {stream: list(numbers) for stream, numbers in expected.assignments(each).items()}
            for each in members
        }
