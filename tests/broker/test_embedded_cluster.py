"""What only an embedded cluster is asked: its switches, and starting it again."""

from __future__ import annotations

from liftbridge_aio import AckPolicy, Client, StartAt, StopAt
from liftbridge_aio.broker import EmbeddedCluster


async def values(client: Client, stream: str) -> list[bytes | None]:
    async with client.subscribe(stream, start=StartAt.earliest(), stop=StopAt.latest()) as messages:
        return [message.value async for message in messages]


async def test_what_a_frozen_broker_comes_to_lead_it_stores_once_when_it_is_thawed() -> None:
    async with EmbeddedCluster(nodes=3) as cluster, Client(*cluster.addresses) as client:
        await client.create_stream("s", replication_factor=3)
        follower = next(one for one in cluster.nodes if one != cluster.leader_of("s"))
        cluster.freeze(follower)
        cluster.move_leader("s", 0, follower)
        cluster.thaw(follower)

        await client.publish("s", b"once", ack_policy=AckPolicy.ALL)

        assert await values(client, "s") == [b"once"]
