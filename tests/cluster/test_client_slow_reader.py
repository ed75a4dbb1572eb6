"""A reader is slow while retention and a change of leaders go by under it."""

from __future__ import annotations

import asyncio

import pytest

from liftbridge_aio import AckPolicy, Client, ClientOptions, StreamOptions
from support.cluster.nodes import BOUND, EARLIEST, Nodes, soon
from support.servers.cluster import Cluster

pytestmark = pytest.mark.timeout(120)  # nodes are brought back in that time too

KIB = 2**10
COUNT = 300
KEPT = 50


async def test_it_gets_what_is_left_once_and_in_order(
    embedded_cluster: Cluster, stream_name: str
) -> None:
    """On v1.9.0 a node may end as a process where the cleaner meets a publish."""
    cluster = embedded_cluster
    nodes = Nodes(cluster.addresses)
    options = ClientOptions(
        max_buffered_bytes=16 * KIB, health_interval=1.0, health_timeout=1.0, connect_timeout=1.0
    )
    limits = StreamOptions(
        min_isr=2,
        retention_max_messages=KEPT,
        segment_max_bytes=32 * KIB,
        cleaner_interval=0.5,
    )
    values = [b"%d" % number + bytes(4 * KIB) for number in range(COUNT + KEPT)]
    async with (
        asyncio.timeout(BOUND),
        Client(*cluster.addresses.values(), options=options) as client,
    ):
        await client.create_stream(stream_name, replication_factor=3, options=limits)
        async with client.subscribe(stream_name, start=EARLIEST) as messages:
            await client.publish_many(stream_name, values[:COUNT], ack_policy=AckPolicy.ALL)
            received = [await anext(messages)]

            async def cleaned() -> bool:
                """True if the oldest message is far ahead of the reader."""
                async with client.subscribe(stream_name, start=EARLIEST) as another:
                    return (await anext(another)).offset > COUNT // 2

            await soon(cleaned)
            while received[-1].offset < COUNT // 2:
                received.append(await anext(messages))
            assert len(received) < COUNT // 2

            roles = await nodes.roles(stream_name)
            await cluster.stop_node(roles.leader)
            await nodes.new_leader(roles.followers, stream_name, roles.leader)
            await client.publish_many(stream_name, values[COUNT:], ack_policy=AckPolicy.ALL)
            while received[-1].value != values[-1]:
                received.append(await anext(messages))

    offsets = [message.offset for message in received]
    assert offsets == sorted(set(offsets))
    assert [message.value for message in received] == [values[offset] for offset in offsets]
    # Only what was forgotten before it was read is missing; whole segments are.
    assert offsets[-KEPT // 2 :] == list(range(COUNT + KEPT // 2, COUNT + KEPT))
    nodes.close()
