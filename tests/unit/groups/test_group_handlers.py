"""The calls of handlers to their group, and the effect of the end of a membership on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest

from liftbridge_aio import (
    Client,
    ClientClosed,
    ConsumerGroup,
    GroupState,
    Message,
    NotGroupMember,
    StartAt,
    StreamPartition,
)
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.wire import proto
from support.groups.group_calls import Group
from support.groups.group_watcher import EARLIEST, cursor, holds, it_is, places, publish, take
from support.raw import FROM_EARLIEST, Wire, eventually

Partitions = frozenset[StreamPartition]
FIRST = StreamPartition("s", 0)


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker(cursors_partitions=3, consumer_timeout=1.5) as broker:
        yield broker


@pytest.fixture
async def client(broker: EmbeddedBroker) -> AsyncIterator[Client]:
    """A client, and a stream "s" with three messages in its first partition."""
    async with Client(broker.address) as client:
        await client.create_stream("s", partitions=2)
        await publish(client, "s", 0, 3)
        yield client


@pytest.fixture
async def wire(broker: EmbeddedBroker) -> AsyncIterator[Wire]:
    connection = Wire(broker.host, broker.port)
    yield connection
    connection.close()


async def test_a_handler_sees_the_partitions_that_it_is_told_of(client: Client) -> None:
    seen: list[object] = []

    async def look(partitions: Partitions) -> None:
        assert group.positions.keys() == partitions
        seen.append((group.positions[FIRST], (await group.lag())[FIRST], dict(group.committed)))

    async with client.group(
        "g", ["s"], consumer_id=None, start=EARLIEST, on_assigned=look, on_revoked=look
    ) as group:
        messages = await take(group, 2)
        await group.commit(messages[0])
    assert seen == [(None, 3, {}), (2, 1, {FIRST: 0})]


async def test_handlers_may_be_plain_functions(client: Client) -> None:
    told: list[tuple[str, Partitions]] = []

    def on_assigned(partitions: Partitions) -> int:
        told.append(("assigned", partitions))
        return len(partitions)

    async with client.group(
        "g",
        ["s"],
        start=EARLIEST,
        on_assigned=on_assigned,
        on_revoked=lambda partitions: told.append(("revoked", partitions)),
    ) as group:
        await take(group, 3)
    both = frozenset([FIRST, StreamPartition("s", 1)])
    assert told == [("assigned", both), ("revoked", both)]
    assert await cursor(client, "g", "s") == 2


async def test_on_revoked_may_commit_what_it_is_told_to_give_up(client: Client, wire: Wire) -> None:
    """By the message too, and without commits that are made for it."""
    revoked: list[Partitions] = []

    async def on_revoked(partitions: Partitions) -> None:
        revoked.append(partitions)
        if FIRST in partitions:
            await group.commit(messages[1])

    async with client.group(
        "g", ["s"], consumer_id="b", start=EARLIEST, commit_interval=None, on_revoked=on_revoked
    ) as group:
        messages = await take(group, 3)
        await Group(wire, "g").join("a", "s")  # it is given the first partition
        await eventually(it_is(lambda: FIRST not in group.positions))
        assert revoked == [{FIRST}]
        assert await cursor(client, "g", "s") == 1


async def test_on_revoked_that_commits_stores_nothing_of_what_was_lost(
    client: Client, wire: Wire
) -> None:
    """Others may have it. It is no error, though: the member goes on."""
    stored: list[int | None] = []

    async def on_revoked(_: Partitions) -> None:
        if stored:
            return
        assert group.state is GroupState.REJOINING
        await group.commit()
        await eventually(it_is(lambda: group.state is GroupState.STABLE))
        await group.commit()  # it is a member again, but that was another life
        with pytest.raises(NotGroupMember):
            await group.commit(messages[1])
        stored.append(await cursor(client, "g", "s"))

    async with client.group(
        "g", ["s"], consumer_id=None, start=EARLIEST, on_revoked=on_revoked
    ) as group:
        messages = await take(group, 3)
        await Group(wire, "g").leave(group.consumer_id)
        assert places(await take(group, 3)) == [(0, 0), (0, 1), (0, 2)]
    assert stored == [None]


async def test_a_run_begins_with_all_partitions_at_once(client: Client) -> None:
    await publish(client, "s", 1)
    begun: list[int] = []
    gate = asyncio.Event()

    async def handle(message: Message) -> None:
        begun.append(message.partition)
        await gate.wait()

    async with client.group("g", ["s"], start=EARLIEST) as group:
        await holds(group, 2)
        await group.lag()  # the answer comes behind the messages
        running = asyncio.create_task(group.run(handle, concurrency=2))
        await eventually(it_is(lambda: sorted(begun) == [0, 1]))
        gate.set()
        await group.aclose()
        await running


async def test_a_seek_to_new_messages_keeps_its_place_when_the_reading_breaks(
    client: Client, wire: Wire
) -> None:
    async with client.group("g", ["s"], consumer_id=None, start=EARLIEST) as group:
        await holds(group, 2)
        await group.seek(*FIRST, StartAt.new_only())
        await eventually(it_is(lambda: group.positions[FIRST] == 3))
        group.pause()
        await publish(client, "s", 0)  # it waits, unread
        async with taken(wire, group):
            await publish(client, "s", 0)
        group.resume()
        assert places(await take(group, 2)) == [(0, 3), (0, 4)]


async def test_positions_that_a_closed_client_cannot_store_are_told(
    broker: EmbeddedBroker, client: Client
) -> None:
    other = Client(broker.address)
    await other.connect()
    group = await other.group("g", ["s"], start=EARLIEST).__aenter__()
    await take(group, 2)
    await other.aclose()
    assert await anext(group, None) is None
    with pytest.raises(ClientClosed):
        await group.__aexit__(None, None, None)
    assert group.state is GroupState.LEFT
    assert await cursor(client, "g", "s") is None


def taken(wire: Wire, group: ConsumerGroup) -> AbstractAsyncContextManager[object]:
    """The first partition, in the hands of somebody who is no member."""
    thief = proto.Consumer(group_id="g", group_epoch=group.epoch or 0, consumer_id="thief")
    return wire.subscribe("s", partition=0, consumer=thief, **FROM_EARLIEST)
