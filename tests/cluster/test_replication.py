"""The placement of partitions, and the behaviour of each node of a healthy cluster."""

from __future__ import annotations

import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from liftbridge_aio import AckPolicy, Client, InvalidRequest
from liftbridge_aio.wire import proto, rpc
from support.cluster.nodes import CURSORS, CURSORS_PARTITIONS, Nodes, everything, settled
from support.raw import FROM_EARLIEST, STOP_REACHED, TO_LATEST, End

pytestmark = pytest.mark.timeout(120)  # nodes are brought back in that time too

NOT_COORDINATOR = End(Status.FAILED_PRECONDITION, "broker is not the consumer group coordinator")
NO_GROUP = End(Status.NOT_FOUND, "consumer group does not exist")
NOT_LEADER = End(Status.FAILED_PRECONDITION, "Server not partition leader")


async def test_replication_factor_minus_one_means_every_node(
    client: Client, nodes: Nodes, stream_name: str
) -> None:
    await client.create_stream(stream_name, replication_factor=-1)

    for node_id in nodes.ids:
        view = await nodes.view(node_id, stream_name)
        assert sorted(view.replicas) == sorted(view.isr) == sorted(nodes.ids)
        assert view.leader in nodes.ids


async def test_more_replicas_than_nodes_are_refused(
    client: Client, nodes: Nodes, stream_name: str
) -> None:
    with pytest.raises(InvalidRequest, match="Invalid replicationFactor 4, cluster size 3"):
        await client.create_stream(stream_name, replication_factor=len(nodes.ids) + 1)


async def test_single_replicas_are_spread_over_the_nodes(
    client: Client, nodes: Nodes, stream_name: str
) -> None:
    names = [f"{stream_name}-{number}" for number in range(len(nodes.ids))]
    for name in names:
        await client.create_stream(name)

    assert {(await nodes.roles(name)).leader for name in names} == set(nodes.ids)


async def test_every_node_takes_publishes_for_every_partition(
    client: Client, nodes: Nodes, stream_name: str
) -> None:
    await client.create_stream(stream_name, replication_factor=2)
    for node_id in nodes.ids:
        await nodes.publish(node_id, stream_name, node_id.encode())

    assert await everything(client, stream_name, 3) == [each.encode() for each in nodes.ids]


async def test_only_the_leader_serves_readers_and_knows_the_partition(
    client: Client, nodes: Nodes, stream_name: str
) -> None:
    await client.create_stream(stream_name, replication_factor=2)
    roles = await nodes.roles(stream_name)

    for node_id in (*roles.followers, *roles.others):
        await nodes.view(node_id, stream_name)  # it has heard of the stream
        subscribe = proto.SubscribeRequest(stream=stream_name)
        assert await nodes[node_id].refusal(rpc.SUBSCRIBE, subscribe) == NOT_LEADER
        fetch = proto.FetchPartitionMetadataRequest(stream=stream_name)
        assert await nodes[node_id].refusal(rpc.FETCH_PARTITION_METADATA, fetch) == End(
            Status.FAILED_PRECONDITION, "The request should be sent to partition leader"
        )
    assert (await nodes[roles.leader].partition(stream_name)).leader == roles.leader


async def test_a_follower_serves_what_is_committed_to_those_who_ask_for_it(
    client: Client, nodes: Nodes, stream_name: str
) -> None:
    await client.create_stream(stream_name, replication_factor=3)
    roles = await nodes.roles(stream_name)
    for value in (b"a", b"b", b"c"):
        await client.publish(stream_name, value, ack_policy=AckPolicy.ALL)

    # A follower hears of what is committed with the next answer of its leader.
    await nodes.see(nodes.ids, stream_name, lambda view: view.high_watermark == 2)
    for follower in roles.followers:
        async with nodes[follower].subscribe(
            stream_name, read_isr_replica=True, **FROM_EARLIEST, **TO_LATEST
        ) as subscription:
            messages, end = await subscription.rest()
        assert [each.value for each in messages] == [b"a", b"b", b"c"]
        assert end == STOP_REACHED


async def test_a_node_without_a_replica_has_nothing_to_read(
    client: Client, nodes: Nodes, stream_name: str
) -> None:
    await client.create_stream(stream_name, replication_factor=2)
    [other] = (await nodes.roles(stream_name)).others
    await client.publish(stream_name, b"value", ack_policy=AckPolicy.ALL)

    view = await nodes.view(other, stream_name)
    assert (view.high_watermark, view.newest_offset) == (-1, -1)
    request = proto.SubscribeRequest(
        stream=stream_name,
        read_isr_replica=True,
        start_position=proto.StartPosition.EARLIEST,
        stop_position=proto.StopPosition.STOP_LATEST,
    )
    assert await nodes[other].refusal(rpc.SUBSCRIBE, request) == End(
        Status.RESOURCE_EXHAUSTED, "Stream is empty"
    )


async def test_cursors_are_served_by_the_leader_of_their_partition_alone(
    client: Client, nodes: Nodes, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    await client.set_cursor("mine", stream_name, 0, 7)

    request = proto.FetchCursorRequest(stream=stream_name, cursor_id="mine")
    leaders = {
        (await nodes.roles(CURSORS, partition)).leader for partition in range(CURSORS_PARTITIONS)
    }
    for node_id in set(nodes.ids) - leaders:
        refusal = await nodes[node_id].refusal(rpc.FETCH_CURSOR, request)
        assert refusal.status is Status.FAILED_PRECONDITION
        assert refusal.text.startswith("Server not leader for cursors partition ")
    assert await client.fetch_cursor("mine", stream_name, 0) == 7


async def test_groups_are_served_by_their_coordinator_alone(
    client: Client, nodes: Nodes, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    join = proto.JoinConsumerGroupRequest(
        group_id=stream_name, consumer_id="me", streams=[stream_name]
    )
    joined = await nodes[nodes.ids[-1]].call(rpc.JOIN_CONSUMER_GROUP, join)
    assert joined.coordinator in nodes.ids

    fetch = proto.FetchConsumerGroupAssignmentsRequest(
        group_id=stream_name, consumer_id="me", epoch=joined.epoch
    )
    for node_id in nodes.ids:

        async def answer(node_id: str = node_id) -> list[proto.PartitionAssignment] | End:
            try:
                reply = await nodes[node_id].call(rpc.FETCH_CONSUMER_GROUP_ASSIGNMENTS, fetch)
            except GRPCError as error:
                return End(error.status, error.message or "")
            return reply.assignments

        # A node that has not heard of the group yet, the coordinator too, does not find it.
        found = await settled(answer, lambda end: end == NO_GROUP)
        if node_id == joined.coordinator:
            assert found == [proto.PartitionAssignment(stream=stream_name, partitions=[0])]
        else:
            assert found == NOT_COORDINATOR
