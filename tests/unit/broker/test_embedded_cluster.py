"""Freezing, stopping and restarting an embedded cluster."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from liftbridge_aio import AckPolicy, Client, StartAt, StopAt
from liftbridge_aio.broker import BrokerState, EmbeddedCluster
from liftbridge_aio.broker.cluster.partition import Partition
from liftbridge_aio.broker.server.replicator import Replicator


async def values(client: Client, stream: str) -> list[bytes | None]:
    async with client.subscribe(stream, start=StartAt.earliest(), stop=StopAt.latest()) as messages:
        return [message.value async for message in messages]


async def test_a_thawed_broker_stores_messages_once_as_a_new_leader() -> None:
    async with EmbeddedCluster(nodes=3) as cluster, Client(*cluster.addresses) as client:
        await client.create_stream("s", replication_factor=3)
        follower = next(one for one in cluster.nodes if one != cluster.leader_of("s"))
        cluster.freeze(follower)
        cluster.move_leader("s", 0, follower)
        cluster.thaw(follower)

        await client.publish("s", b"once", ack_policy=AckPolicy.ALL)

        assert await values(client, "s") == [b"once"]


def test_a_cluster_may_be_started_again_in_another_event_loop() -> None:
    cluster = EmbeddedCluster(nodes=3)

    async def publish(offset: int) -> None:
        async with cluster, Client(*cluster.addresses) as client:
            await client.create_stream("s", replication_factor=3, exist_ok=True)
            ack = await client.publish("s", b"", ack_policy=AckPolicy.ALL)
            assert ack is not None
            assert ack.offset == offset
            # All waits have begun by now, which binds them to an event loop.
            await cluster.wait_until(
                lambda: all(
                    cluster.replica(one, "s").high_watermark == offset for one in cluster.nodes
                )
            )

    for offset in range(2):
        asyncio.run(publish(offset))


async def test_a_restart_thaws_all_brokers_and_keeps_their_ports() -> None:
    async with EmbeddedCluster(nodes=3) as cluster, Client(*cluster.addresses) as client:
        addresses = cluster.addresses
        cluster.freeze("n1")

        await cluster.restart()

        assert cluster.addresses == addresses
        await client.create_stream("s", replication_factor=3)
        assert cluster.replica("n1", "s").isr == ("n1", "n2", "n3")


async def test_replication_looks_at_replicas_only(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: Counter[tuple[str, int]] = Counter()
    adjust = Replicator._adjust_isr

    def count(replicator: Replicator, partition: Partition, now: int) -> None:
        looked_at[partition.stream, partition.number] += 1
        adjust(replicator, partition, now)

    monkeypatch.setattr(Replicator, "_adjust_isr", count)
    async with EmbeddedCluster(nodes=5) as cluster, Client(*cluster.addresses) as client:
        await client.create_stream("s", partitions=10)
        await cluster.wait_until(lambda: looked_at["s", 9] > 1)
        assert looked_at["s", 0] <= looked_at["__cursors", 0] / 5


async def test_a_stopped_broker_that_was_frozen_can_be_thawed() -> None:
    async with EmbeddedCluster(nodes=3) as cluster, Client(cluster.addresses[1]) as client:
        await cluster.stop_node("n1")
        cluster.freeze("n1")
        await cluster.start_node("n1")
        await client.create_stream("s", replication_factor=3)

        cluster.thaw("n1")

        assert cluster.replica("n1", "s").replicas == ("n1", "n2", "n3")


async def test_brokers_finish_stopping_when_the_stop_is_cancelled() -> None:
    cluster = EmbeddedCluster(nodes=3)
    await cluster.start()
    stopping = asyncio.create_task(cluster.stop())
    await asyncio.sleep(0)  # it has begun, but no broker has

    stopping.cancel()

    await cluster.wait_until(
        lambda: all(one.state is BrokerState.STOPPED for one in cluster.nodes.values())
    )
    assert stopping.cancelled()
