"""Members of consumer groups: what they read, commit and hand on to each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from contract.raw import BOUND, eventually
from liftbridge_aio import Client, Message, StartAt
from liftbridge_aio.groups import ConsumerGroup, GroupState
from servers.node import Server

EARLIEST = StartAt.earliest()


async def publish(client: Client, stream: str, partition: int, count: int) -> None:
    for number in range(count):
        await client.publish(stream, b"%d" % number, partition=partition)


async def take(group: ConsumerGroup, count: int) -> list[Message]:
    async with asyncio.timeout(BOUND):
        return [await anext(group) for _ in range(count)]


@pytest.fixture
async def stream(client: Client, stream_name: str) -> str:
    await client.create_stream(stream_name, partitions=3)
    return stream_name


@pytest.fixture
def group_id(stream_name: str) -> str:
    return f"group-{stream_name}"


@pytest.fixture
async def other(server: Server) -> AsyncIterator[Client]:
    """Another client of the same server."""
    async with Client(server.address) as client:
        yield client


async def test_a_member_alone_reads_every_partition_and_goes_on_where_it_stopped(
    client: Client, stream: str, group_id: str
) -> None:
    for partition in range(3):
        await publish(client, stream, partition, 2)
    async with client.group(group_id, [stream], start=EARLIEST) as group:
        assert group.state is GroupState.STABLE
        read = await take(group, 6)
        assert sorted((each.partition, each.offset) for each in read) == [
            (partition, offset) for partition in range(3) for offset in range(2)
        ]
    for partition in range(3):
        assert await client.fetch_cursor(f"__group:{group_id}", stream, partition) == 1
    await publish(client, stream, 1, 1)
    async with client.group(group_id, [stream], start=EARLIEST) as group:
        [message] = await take(group, 1)
        assert (message.partition, message.offset) == (1, 2)
    assert group_id not in (await client.fetch_metadata(groups=[group_id])).groups


async def test_two_members_share_and_the_one_that_stays_gets_all(
    client: Client, other: Client, stream: str, group_id: str
) -> None:
    async with client.group(group_id, [stream], start=EARLIEST) as first:
        await eventually(lambda: _holds(first, 3))
        async with other.group(group_id, [stream], start=EARLIEST) as second:
            await eventually(lambda: _shared(first, second, 3))
            assert not first.assignment & second.assignment
            assert {len(first.assignment), len(second.assignment)} == {1, 2}
        await eventually(lambda: _holds(first, 3))


async def _holds(group: ConsumerGroup, count: int) -> bool:
    return len(group.assignment) == count


async def _shared(first: ConsumerGroup, second: ConsumerGroup, count: int) -> bool:
    mine, others = len(first.assignment), len(second.assignment)
    return bool(mine and others) and mine + others == count
