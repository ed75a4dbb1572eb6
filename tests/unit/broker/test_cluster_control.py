"""Failures that a test can cause in an embedded cluster, as seen by the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from grpclib.const import Status

from liftbridge_aio import AckPolicy, AckTimeout, Client, StartAt
from liftbridge_aio.broker import EmbeddedCluster
from liftbridge_aio.wire import proto, rpc
from support.raw import End, Wire, message


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(max_lag=0.2, leader_timeout=0.2) as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: EmbeddedCluster) -> AsyncIterator[Client]:
    async with Client(*cluster.addresses) as client:
        yield client


def wire_to(cluster: EmbeddedCluster, server_id: str) -> Wire:
    node = cluster.nodes[server_id]
    return Wire(node.host, node.port)


async def test_a_held_broker_does_not_know_a_new_stream(
    cluster: EmbeddedCluster,
) -> None:
    first, third = wire_to(cluster, "n1"), wire_to(cluster, "n3")
    cluster.hold_metadata("n3")
    await first.create("s")
    request = proto.FetchPartitionMetadataRequest(stream="s")

    refused = await third.refusal(rpc.FETCH_PARTITION_METADATA, request)
    assert refused == End(Status.NOT_FOUND, "partition not found")
    lost = await third.refusal(rpc.PUBLISH, message("s"))
    assert lost.status is Status.NOT_FOUND

    cluster.release_metadata("n3")
    await third.call(rpc.PUBLISH, message("s"))
    first.close()
    third.close()


async def test_the_client_publishes_and_reads_although_one_broker_lags_behind(
    cluster: EmbeddedCluster, client: Client
) -> None:
    cluster.hold_metadata("n3")
    await client.create_stream("s", partitions=6)
    async with asyncio.TaskGroup() as tasks:
        publishing = [
            tasks.create_task(client.publish("s", b"%d" % number, partition=number))
            for number in range(6)
        ]
        cluster.release_metadata("n3")
    assert [one.result() is not None for one in publishing] == [True] * 6


async def test_a_hidden_broker_is_missing_from_one_list_only(cluster: EmbeddedCluster) -> None:
    async def listed(server_id: str) -> set[str]:
        wire = wire_to(cluster, server_id)
        reply = await wire.call(rpc.FETCH_METADATA, proto.FetchMetadataRequest())
        wire.close()
        return {broker.id for broker in reply.brokers}

    cluster.hide_broker("n2", from_node="n1")
    assert await listed("n1") == {"n1", "n3"}
    assert await listed("n3") == {"n1", "n2", "n3"}

    cluster.show_brokers()
    assert await listed("n1") == {"n1", "n2", "n3"}


async def test_a_partition_without_a_leader_stores_nothing(
    cluster: EmbeddedCluster, client: Client
) -> None:
    await client.create_stream("s", replication_factor=3)
    await client.publish("s", b"0", ack_policy=AckPolicy.ALL)
    cluster.orphan("s")
    assert cluster.leader_of("s") == ""
    assert cluster.replica("n1", "s").isr == ()

    with pytest.raises(AckTimeout):
        await client.publish("s", b"lost", ack_timeout=0.2)

    cluster.move_leader("s", 0, "n2")
    async with client.subscribe("s", start=StartAt.earliest()) as messages:
        await client.publish("s", b"1")
        assert [(await anext(messages)).value for _ in range(2)] == [b"0", b"1"]
