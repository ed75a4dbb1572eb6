"""Tests of users whose programs must outlive brokers."""

from __future__ import annotations

import asyncio

import pytest

from liftbridge_aio import AckPolicy, Client, Retry
from liftbridge_aio.broker import EmbeddedCluster
from liftbridge_aio.pytest_plugin import RunInLoop


async def test_publishing_goes_on_when_the_leader_is_gone(
    liftbridge_cluster: EmbeddedCluster, liftbridge_cluster_client: Client
) -> None:
    client = liftbridge_cluster_client
    await client.create_stream("orders", replication_factor=3)
    await client.publish("orders", b"bread", ack_policy=AckPolicy.ALL)
    await liftbridge_cluster.stop_node(liftbridge_cluster.leader_of("orders"))
    ack = await client.publish("orders", b"milk", ack_timeout=1, retry=Retry(attempts=20))
    assert ack is not None
    assert ack.offset >= 1


@pytest.mark.liftbridge_cluster(nodes=5)
async def test_the_marker_sets_up_the_cluster(liftbridge_cluster_client: Client) -> None:
    metadata = await liftbridge_cluster_client.fetch_metadata()
    assert len(metadata.brokers) == 5


def test_a_sync_program_outlives_a_broker(
    liftbridge_cluster: EmbeddedCluster, liftbridge_run: RunInLoop
) -> None:
    async def count_brokers() -> int:
        async with Client(*liftbridge_cluster.addresses) as client:
            return len((await client.fetch_metadata()).brokers)

    assert asyncio.run(count_brokers()) == 3
    liftbridge_run(liftbridge_cluster.stop_node("n1"))
    assert asyncio.run(count_brokers()) == 2
