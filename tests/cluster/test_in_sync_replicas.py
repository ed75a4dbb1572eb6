"""Acks and readers when replicas lag behind, and states that nobody can repair."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from liftbridge_aio import AckPolicy, Client, StreamOptions
from liftbridge_aio.wire import proto, rpc
from support.cluster.nodes import BOUND, EARLIEST, Nodes, everything, soon
from support.raw import End, message
from support.servers.cluster import Cluster

pytestmark = pytest.mark.timeout(120)  # nodes are brought back in that time too

ALL: Final = {"ack_policy": proto.AckPolicy.ALL}


def at(high_watermark: int, newest_offset: int) -> Callable[[proto.PartitionMetadata], bool]:
    """Return a predicate: true if a node's log ends there."""
    return lambda view: (view.high_watermark, view.newest_offset) == (high_watermark, newest_offset)


async def unacked(nodes: Nodes, node_id: str, request: proto.PublishRequest) -> bool:
    """True if no ack arrives within the timeout."""
    try:
        await nodes[node_id].call(rpc.PUBLISH, request, timeout=0.3)
    except GRPCError as error:
        if error.status is not Status.DEADLINE_EXCEEDED:
            raise
        return True
    except TimeoutError:  # this side was a moment faster than the server
        return True
    return False


async def test_a_lagging_replica_delays_acks_of_all_until_it_is_out_of_sync(
    cluster: Cluster, client: Client, nodes: Nodes, stream_name: str
) -> None:
    await client.create_stream(stream_name, replication_factor=3)
    await client.publish(stream_name, b"0", ack_policy=AckPolicy.ALL)
    roles = await nodes.roles(stream_name)
    lagging, prompt = roles.followers
    cluster.freeze(lagging)

    [by_leader] = await nodes[prompt].publish(stream_name, b"1")
    assert by_leader.offset == 1
    assert await unacked(nodes, prompt, message(stream_name, b"2", **ALL))
    await nodes.see((roles.leader,), stream_name, at(0, 2))
    assert await nodes.publish(prompt, stream_name, b"3") == [3]
    await nodes.in_sync((roles.leader, prompt), stream_name, (roles.leader, prompt))

    cluster.thaw(lagging)
    await nodes.in_sync(nodes.ids, stream_name, nodes.ids)
    await nodes.see(nodes.ids, stream_name, at(3, 3))


async def test_below_the_least_number_in_sync_nothing_is_committed(
    cluster: Cluster, client: Client, nodes: Nodes, stream_name: str
) -> None:
    options = StreamOptions(min_isr=2)
    await client.create_stream(stream_name, replication_factor=2, options=options)
    await client.publish(stream_name, b"0", ack_policy=AckPolicy.ALL)
    roles = await nodes.roles(stream_name)
    async with asyncio.timeout(BOUND), client.subscribe(stream_name, start=EARLIEST) as messages:
        assert (await anext(messages)).value == b"0"
        cluster.freeze(roles.followers[0])
        await nodes.in_sync((roles.leader,), stream_name, (roles.leader,))

        [by_leader] = await nodes[roles.leader].publish(stream_name, b"1")
        assert by_leader.offset == 1
        assert await unacked(nodes, roles.leader, message(stream_name, b"2", **ALL))
        async with asyncio.TaskGroup() as tasks:
            late = tasks.create_task(nodes.publish(roles.leader, stream_name, b"3"))
            await nodes.see((roles.leader,), stream_name, at(0, 3))
            assert not late.done()
            cluster.thaw(roles.followers[0])
        assert late.result() == [3]
        assert [(await anext(messages)).value for _ in range(3)] == [b"1", b"2", b"3"]


async def test_without_its_only_replica_a_stream_waits_for_it(
    cluster: Cluster, client: Client, nodes: Nodes, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"0", ack_policy=AckPolicy.ALL)
    roles = await nodes.roles(stream_name)
    witness = roles.others[0]
    async with asyncio.timeout(BOUND), client.subscribe(stream_name, start=EARLIEST) as messages:
        assert (await anext(messages)).value == b"0"
        await cluster.stop_node(roles.leader)

        view = await nodes.view(witness, stream_name)
        assert (view.leader, view.isr) == (roles.leader, [roles.leader])
        assert await nodes[witness].refusal(
            rpc.SUBSCRIBE, proto.SubscribeRequest(stream=stream_name)
        ) == End(Status.FAILED_PRECONDITION, "Server not partition leader")
        assert await unacked(nodes, witness, message(stream_name, b"lost"))

        await cluster.start_node(roles.leader)

        async def leads_again() -> bool:
            return not await unacked(nodes, witness, message(stream_name, b"1"))

        await soon(leads_again)
        following = await anext(messages)
        assert (following.offset, following.value) == (1, b"1")
    assert (await everything(client, stream_name, 2))[0] == b"0"


async def test_without_a_majority_nothing_can_be_created(
    cluster: Cluster, nodes: Nodes, stream_name: str
) -> None:
    survivor, *dead = nodes.ids
    for node_id in dead:
        await cluster.stop_node(node_id)
    create = proto.CreateStreamRequest(name=stream_name, subject=stream_name)

    async def leaderless() -> bool:
        refusal = await nodes[survivor].refusal(rpc.CREATE_STREAM, create, timeout=None)
        return refusal == End(Status.INTERNAL, "no known metadata leader")

    async def created() -> bool:
        try:
            await nodes[survivor].call(rpc.CREATE_STREAM, create, timeout=1.0)
        except GRPCError as error:
            # A try while there was still a leader may come through in the end.
            return error.status is Status.ALREADY_EXISTS
        except TimeoutError:
            return False
        return True

    await soon(leaderless)
    for node_id in dead:
        await cluster.start_node(node_id)
    await soon(created)
    assert (await nodes.view(survivor, stream_name)).leader in nodes.ids
