"""The guarantees when the leader of a partition dies, falls silent or comes back."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from liftbridge_aio import AckPolicy, AckTimeout, Client
from support.cluster.nodes import (
    BOUND,
    EARLIEST,
    Nodes,
    everything,
)
from support.raw import FROM_EARLIEST
from support.servers.cluster import Cluster

pytestmark = pytest.mark.timeout(120)  # nodes are brought back in that time too


async def publish_all(client: Client, stream: str, *values: bytes) -> list[int]:
    """Publish one after the other with acks of all replicas; the offsets they got.

    What is published is lost while a leader is named that does not listen yet, so it goes again.
    """
    offsets: list[int] = []
    async with asyncio.timeout(BOUND):
        while len(offsets) < len(values):
            value = values[len(offsets)]
            with suppress(AckTimeout):
                ack = await client.publish(stream, value, ack_policy=AckPolicy.ALL, ack_timeout=8)
                assert ack is not None
                offsets.append(ack.offset)
    return offsets


async def test_what_all_acked_survives_the_leader_which_catches_up_later(
    cluster: Cluster, client: Client, nodes: Nodes, stream_name: str
) -> None:
    await client.create_stream(stream_name, replication_factor=3)
    await publish_all(client, stream_name, b"a", b"b", b"c")
    roles = await nodes.roles(stream_name)
    await cluster.stop_node(roles.leader)

    leader = await nodes.new_leader(roles.followers, stream_name, roles.leader)
    assert leader in roles.followers
    [last] = await publish_all(client, stream_name, b"d")
    assert last in {3, 4}  # what got no ack at first may be stored too
    values = [b"a", b"b", b"c", *[b"d"] * (last - 2)]
    assert await everything(client, stream_name, len(values)) == values
    # The dead one was held to be in sync until the new leader had missed it for long enough.
    await nodes.in_sync(roles.followers, stream_name, roles.followers)

    await cluster.start_node(roles.leader)
    await nodes.in_sync(nodes.ids, stream_name, nodes.ids)
    await nodes.see(nodes.ids, stream_name, lambda view: view.leader == leader)
    await nodes.see([roles.leader], stream_name, lambda view: view.high_watermark == last)
    async with nodes[roles.leader].subscribe(
        stream_name, read_isr_replica=True, **FROM_EARLIEST
    ) as subscription:
        assert [each.value for each in await subscription.take(len(values))] == values


async def test_what_only_a_dead_leader_had_is_gone_even_when_it_comes_back(
    cluster: Cluster, client: Client, nodes: Nodes, stream_name: str
) -> None:
    await client.create_stream(stream_name, replication_factor=3)
    await publish_all(client, stream_name, b"kept")
    roles = await nodes.roles(stream_name)
    for follower in roles.followers:
        cluster.freeze(follower)
    [ack] = await nodes[roles.leader].publish(stream_name, b"lost")
    assert ack.offset == 1
    await cluster.stop_node(roles.leader)
    for follower in roles.followers:
        cluster.thaw(follower)

    await nodes.new_leader(roles.followers, stream_name, roles.leader)
    [last] = await publish_all(client, stream_name, b"new")
    assert last in {1, 2}  # what got no ack at first may be stored too
    await cluster.start_node(roles.leader)
    await nodes.in_sync(nodes.ids, stream_name, nodes.ids)
    await nodes.see([roles.leader], stream_name, lambda view: view.high_watermark == last)
    async with nodes[roles.leader].subscribe(
        stream_name, read_isr_replica=True, **FROM_EARLIEST
    ) as subscription:
        values = [each.value for each in await subscription.take(last + 1)]
        assert values == [b"kept", *[b"new"] * last]


async def test_a_leader_that_falls_silent_is_replaced_like_a_dead_one(
    cluster: Cluster, client: Client, nodes: Nodes, stream_name: str
) -> None:
    await client.create_stream(stream_name, replication_factor=3)
    await publish_all(client, stream_name, b"0")
    roles = await nodes.roles(stream_name)
    async with (
        asyncio.timeout(BOUND),
        client.subscribe(stream_name, start=EARLIEST) as messages,
        nodes[roles.leader].subscribe(stream_name, **FROM_EARLIEST) as of_old_leader,
    ):
        assert (await anext(messages)).value == b"0"
        cluster.freeze(roles.leader)
        leader = await nodes.new_leader(roles.followers, stream_name, roles.leader)
        await nodes.publish(leader, stream_name, b"1")
        assert (await anext(messages)).value == b"1"
        cluster.thaw(roles.leader)
        await nodes.in_sync(nodes.ids, stream_name, nodes.ids)
        await nodes.publish(roles.leader, stream_name, b"2")
        assert (await anext(messages)).value == b"2"
        # Who reads from the old leader is not sent away: it follows now, and its log grows.
        assert [each.value for each in await of_old_leader.take(3)] == [b"0", b"1", b"2"]


async def test_reading_from_replicas_goes_on_when_a_replica_dies(
    cluster: Cluster, client: Client, nodes: Nodes, stream_name: str
) -> None:
    await client.create_stream(stream_name, replication_factor=3)
    await publish_all(client, stream_name, b"0")
    roles = await nodes.roles(stream_name)
    async with asyncio.timeout(BOUND):
        subscriptions = [
            client.subscribe(stream_name, start=EARLIEST, from_isr_replica=True) for _ in range(6)
        ]
        for messages in subscriptions:
            assert (await anext(messages)).offset == 0
        await cluster.stop_node(roles.followers[0])
        await nodes.in_sync((roles.leader,), stream_name, (roles.leader, *roles.followers[1:]))
        await publish_all(client, stream_name, b"1")
        for messages in subscriptions:
            message = await anext(messages)
            assert (message.offset, message.value) == (1, b"1")
            await messages.aclose()
