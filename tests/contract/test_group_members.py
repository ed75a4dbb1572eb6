"""Members of consumer groups through the client: how they share, and what disturbs them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from liftbridge_aio import (
    AlreadyMember,
    Client,
    ClientOptions,
    GroupState,
    PartitionTaken,
    StreamPartition,
)
from liftbridge_aio.wire import proto
from support.groups.group_calls import Group
from support.groups.group_watcher import (
    EARLIEST,
    GroupWatcher,
    cursor,
    holds,
    places,
    publish,
    shared,
    take,
)
from support.raw import FROM_EARLIEST, Wire, eventually
from support.servers.node import Server

Partitions = frozenset[StreamPartition]


@pytest.fixture
async def stream(client: Client, stream_name: str) -> str:
    await client.create_stream(stream_name, partitions=3)
    return stream_name


@pytest.fixture
def group_id(stream_name: str) -> str:
    return f"group-{stream_name}"


@pytest.fixture
def raw_group(wire: Wire, group_id: str) -> Group:
    """The same group, by calls of its own."""
    return Group(wire, group_id)


@pytest.fixture
def watcher() -> GroupWatcher:
    return GroupWatcher()


@pytest.fixture
async def watched(server: Server, watcher: GroupWatcher) -> AsyncIterator[Client]:
    """Another client of the same server, which is watched."""
    async with Client(server.address, options=ClientOptions(hook=watcher)) as client:
        yield client


class Handlers:
    """Keeps what they are called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Partitions]] = []

    async def on_assigned(self, partitions: Partitions) -> None:
        self.calls.append(("assigned", partitions))

    async def on_revoked(self, partitions: Partitions) -> None:
        self.calls.append(("revoked", partitions))


# Sharing


async def test_what_stays_keeps_its_subscription_when_others_come_and_go(
    client: Client, watched: Client, watcher: GroupWatcher, stream: str, group_id: str
) -> None:
    handlers = Handlers()
    async with watched.group(
        group_id,
        [stream],
        consumer_id="a",
        start=EARLIEST,
        on_assigned=handlers.on_assigned,
        on_revoked=handlers.on_revoked,
    ) as first:
        await holds(first, 3)
        async with client.group(group_id, [stream], consumer_id="b", start=EARLIEST) as second:
            await shared([first, second], {1, 2})
            assert not first.assignment & second.assignment
            kept = first.assignment
        await holds(first, 3)
        for place in kept:
            await publish(client, stream, place.partition)
        await take(first, len(kept))
        assert sorted(place for place in watcher.subscriptions if place in kept) == sorted(kept)
    every = frozenset(StreamPartition(stream, number) for number in range(3))
    assert handlers.calls == [
        ("assigned", every),
        ("revoked", every - kept),
        ("assigned", every - kept),
        ("revoked", every),
    ]


async def test_what_is_finished_is_committed_before_a_partition_is_given_up(
    client: Client, raw_group: Group, stream: str, group_id: str
) -> None:
    for partition in range(3):
        await publish(client, stream, partition, 2)
    told: dict[StreamPartition, int | None] = {}

    async def on_revoked(partitions: Partitions) -> None:
        for place in partitions:
            told[place] = await cursor(client, group_id, *place)

    async with client.group(
        group_id,
        [stream],
        consumer_id="a",
        start=EARLIEST,
        commit_interval=60,
        on_revoked=on_revoked,
    ) as group:
        await take(group, 6)
        reading = asyncio.create_task(anext(group, None))  # all six are finished by that
        await raw_group.join("b", stream)
        await eventually(lambda: bool(told))
        given_up = told.copy()
        assert set(given_up.values()) == {None}

        async def committed() -> bool:
            return {await cursor(client, group_id, *place) for place in given_up} == {1}

        await eventually(committed)
        # One that is back is read on from there.
        await raw_group.leave("b")
        await holds(group, 3)
        [place] = given_up
        await publish(client, *place)
        message = await reading
        assert message is not None
        assert (message.partition, message.offset) == (place.partition, 2)


@pytest.mark.usefixtures("long_transfer")
async def test_a_partition_passes_on_without_being_read_twice(
    client: Client, server_client: Client, stream: str, group_id: str
) -> None:
    for partition in range(3):
        await publish(client, stream, partition, 2)
    async with client.group(
        group_id, [stream], consumer_id="a", start=EARLIEST, commit_interval=60
    ) as first:
        await take(first, 6)
        reading = asyncio.create_task(anext(first, None))
        async with server_client.group(
            group_id, [stream], consumer_id="b", start=EARLIEST
        ) as second:
            await shared([first, second], {1, 2})
            for place in second.assignment:
                await publish(client, *place)
            assert places(await take(second, len(second.assignment))) == [
                (place.partition, 2) for place in sorted(second.assignment)
            ]
        await first.aclose()
        assert await reading is None


async def test_nothing_of_a_withdrawn_partition_is_handed_out(
    client: Client, raw_group: Group, stream: str, group_id: str
) -> None:
    for partition in range(3):
        await publish(client, stream, partition, 5)
    withdrawn: set[int] = set()
    released = asyncio.Event()

    async def on_revoked(partitions: Partitions) -> None:
        withdrawn.update(place.partition for place in partitions)
        await released.wait()

    async with client.group(
        group_id, [stream], consumer_id="a", start=EARLIEST, on_revoked=on_revoked
    ) as group:
        await holds(group, 3)
        await raw_group.join("b", stream)
        await eventually(lambda: bool(withdrawn))
        left = set(range(3)) - withdrawn
        assert {place.partition for place in group.assignment} == left
        read = await take(group, 5 * len(left))
        assert {message.partition for message in read} == left
        released.set()


async def test_a_slow_message_or_handler_does_not_cost_membership(
    client: Client, stream: str, group_id: str
) -> None:
    await publish(client, stream, 0)

    async def on_assigned(_: Partitions) -> None:
        await asyncio.sleep(1.5)

    async with client.group(
        group_id, [stream], consumer_id=None, start=EARLIEST, on_assigned=on_assigned
    ) as group:
        consumer = group.consumer_id
        await take(group, 1)
        await asyncio.sleep(1.5)  # together longer than a member may be silent
        assert (group.state, group.consumer_id, group.epoch) == (GroupState.STABLE, consumer, 0)


# Being expelled


@pytest.mark.parametrize("named", [True, False])
async def test_an_expelled_member_joins_again_and_loses_nothing(
    client: Client, raw_group: Group, stream: str, group_id: str, named: bool
) -> None:
    handlers = Handlers()
    async with client.group(
        group_id,
        [stream],
        consumer_id="me" if named else None,
        start=EARLIEST,
        on_assigned=handlers.on_assigned,
        on_revoked=handlers.on_revoked,
    ) as group:
        await publish(client, stream, 0, 2)
        await take(group, 2)
        before = group.consumer_id
        await raw_group.join("somebody", stream)
        await raw_group.leave(before)
        reading = asyncio.create_task(take(group, 2))
        await eventually(lambda: len(handlers.calls) > 2)
        await raw_group.leave("somebody")
        await publish(client, stream, 0)
        # The one that was in hand had not been committed.
        assert places(await reading)[-1] in {(0, 1), (0, 2)}
        assert (group.consumer_id == before) == named
        every = frozenset(StreamPartition(stream, number) for number in range(3))
        assert handlers.calls[:2] == [("assigned", every), ("revoked", every)]


async def test_a_group_that_was_deleted_is_made_again(
    client: Client, raw_group: Group, stream: str, group_id: str
) -> None:
    handlers = Handlers()
    async with client.group(
        group_id, [stream], consumer_id="me", start=EARLIEST, on_assigned=handlers.on_assigned
    ) as group:
        await holds(group, 3)
        await raw_group.leave("me")
        await eventually(lambda: len(handlers.calls) == 2)
        await publish(client, stream, 2)
        assert places(await take(group, 1)) == [(2, 0)]
        assert group.epoch == 0


async def test_who_was_expelled_can_still_close(
    client: Client, raw_group: Group, stream: str, group_id: str
) -> None:
    async with client.group(group_id, [stream], consumer_id="me") as group:
        await holds(group, 3)
        await raw_group.leave("me")
    assert group.state.value == "left"


async def test_a_zombie_of_an_earlier_group_is_outlasted(
    watched: Client,
    watcher: GroupWatcher,
    server: Server,
    stream: str,
    group_id: str,
) -> None:
    """A group that is made anew begins at epoch 0, and servers let nobody in with a lower one."""
    zombie = proto.Consumer(group_id=group_id, group_epoch=10**6, consumer_id="zombie")
    await publish(watched, stream, 0)
    wire = Wire(server.host, server.port)
    async with wire.subscribe(stream, partition=0, consumer=zombie, **FROM_EARLIEST) as held:
        await held.next()
        async with watched.group(group_id, [stream], consumer_id=None, start=EARLIEST) as group:
            await publish(watched, stream, 1)
            assert places(await take(group, 1)) == [(1, 0)]
            reading = asyncio.create_task(take(group, 1))
            await eventually(lambda: len(watcher.blocked) > 1)
            assert {(event.partition, type(event.error)) for event in watcher.blocked} == {
                (0, PartitionTaken)
            }
            wire.close()
            assert places(await reading) == [(0, 0)]


@pytest.mark.parametrize("paused", [False, True])
async def test_a_partition_that_was_taken_and_is_still_ours_is_read_on(
    watched: Client,
    watcher: GroupWatcher,
    server: Server,
    stream: str,
    group_id: str,
    paused: bool,
) -> None:
    """Nobody else's subscription, and no end of one's own, leaves a partition unread."""
    place = StreamPartition(stream, 0)
    await publish(watched, stream, 0, 2)
    wire = Wire(server.host, server.port)
    async with watched.group(group_id, [stream], consumer_id=None, start=EARLIEST) as group:
        assert places(await take(group, 2)) == [(0, 0), (0, 1)]
        if paused:
            group.pause(place)
        thief = proto.Consumer(group_id=group_id, group_epoch=0, consumer_id="thief")
        async with wire.subscribe(stream, partition=0, consumer=thief, **FROM_EARLIEST):
            await eventually(lambda: bool(watcher.blocked))
            wire.close()
        await eventually(lambda: watcher.subscriptions.count(place) > 1)
        await publish(watched, stream, 0)
        if paused:
            await publish(watched, stream, 1)
            assert places(await take(group, 1)) == [(1, 0)]
            group.resume(place)
        assert places(await take(group, 1)) == [(0, 2)]
        assert group.epoch == 0


async def test_somebody_elses_id_is_refused(
    client: Client, server_client: Client, stream: str, group_id: str
) -> None:
    async with client.group(group_id, [stream], consumer_id="a"):
        with pytest.raises(AlreadyMember, match="'a'"):
            await server_client.group(group_id, [stream], consumer_id="a", timeout=2).__aenter__()


async def test_who_crashed_with_an_id_of_its_own_comes_back_when_it_has_expired(
    client: Client, raw_group: Group, stream: str, group_id: str
) -> None:
    await raw_group.join("a", stream)  # and is not heard of again
    async with client.group(group_id, [stream], consumer_id="a", start=EARLIEST) as group:
        await holds(group, 3)


async def test_a_deleted_stream_is_told_of(client: Client, stream: str, group_id: str) -> None:
    other = f"{stream}-other"
    await client.create_stream(other)
    async with client.group(group_id, [stream, other]) as group:
        await holds(group, 4)
        await client.delete_stream(other)
        await holds(group, 3)
        await publish(client, stream, 0)
