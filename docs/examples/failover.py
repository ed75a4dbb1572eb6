"""Watch a cluster lose its leader: three embedded brokers, no server needed."""

from __future__ import annotations

import asyncio

from liftbridge_aio import AckPolicy, Client, Retry, StartAt
from liftbridge_aio.broker import EmbeddedCluster


async def main() -> None:
    """Publish, stop the leader, publish again, and read everything without a gap."""
    async with EmbeddedCluster(nodes=3) as cluster, Client(*cluster.addresses) as client:
        await client.create_stream("orders", replication_factor=3)
        await client.publish("orders", b"before", ack_policy=AckPolicy.ALL)
        leader = cluster.leader_of("orders")
        await cluster.stop_node(leader)
        await client.publish(
            "orders", b"after", ack_policy=AckPolicy.ALL, ack_timeout=1, retry=Retry(attempts=10)
        )
        print("the leader was", leader, "and is now", cluster.leader_of("orders"))
        async with client.subscribe("orders", start=StartAt.earliest()) as orders:
            print((await anext(orders)).value.decode(), (await anext(orders)).value.decode())


asyncio.run(main())
