"""Addresses that lead nowhere, and a node that comes back at another one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from liftbridge_aio import AckPolicy, Client, StreamOptions
from support.cluster.client_load import GRACE, LOAD, OPTIONS, timed
from support.cluster.nodes import EARLIEST
from support.servers.build import nats_path, pinned_version
from support.servers.cluster import Cluster, LiftbridgeCluster
from support.servers.ports import free_ports
from support.traffic import flowing

pytestmark = pytest.mark.timeout(120)  # nodes are brought back in that time too

SAFE = StreamOptions(min_isr=2)


@pytest.fixture
def black_hole() -> Iterator[str]:
    """An address where connections are accepted and nothing ever answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


async def test_a_dead_or_silent_address_costs_no_more_than_the_time_to_find_out(
    cluster: Cluster, black_hole: str, stream_name: str
) -> None:
    # In what order they are tried is left to chance.
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    good = list(cluster.addresses.values())
    for useless in (nobody, black_hole):
        client = Client(useless, *good, options=OPTIONS)
        await timed(client.connect())
        stream = f"{stream_name}-{useless.rpartition(':')[2]}"
        await timed(client.create_stream(stream, replication_factor=3, options=SAFE))
        ack = await timed(client.publish(stream, b"value", ack_policy=AckPolicy.ALL))
        async with client.subscribe(stream, start=EARLIEST) as messages:
            assert (await timed(anext(messages))).value == b"value"
        await timed(client.set_cursor("mine", stream, 0, ack.offset))
        assert await timed(client.fetch_cursor("mine", stream, 0)) == ack.offset
        assert stream in (await timed(client.fetch_metadata())).streams
        await timed(client.aclose(), GRACE)


@pytest.fixture
async def forgetful_cluster(
    server_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[LiftbridgeCluster]:
    """Nodes that ask each other for their addresses every second, and not every two minutes."""
    settings = {"metadata.cache.max.age": "1s"}
    folder = tmp_path_factory.mktemp("forgetful")
    cluster = LiftbridgeCluster(server_binary, nats_path(), folder, pinned_version(), settings)
    await asyncio.to_thread(cluster.open)
    yield cluster
    await asyncio.to_thread(cluster.close)


async def test_a_node_comes_back_at_another_address(
    forgetful_cluster: LiftbridgeCluster, stream_name: str
) -> None:
    """The only one that has the partition; the client hears of the address from the others."""
    cluster = forgetful_cluster
    async with Client(*cluster.addresses.values(), options=OPTIONS) as client:
        await client.create_stream(stream_name)
        async with flowing(client, stream_name, **LOAD) as flow:
            await flow.more()
            snapshot = await client.fetch_metadata()
            leader = snapshot.streams[stream_name].partitions[0].leader
            assert leader is not None
            await cluster.stop_node(leader)
            # A copy chooses a port of its own.
            cluster.nodes[leader] = replace(cluster.nodes[leader], _process=None)
            await cluster.start_node(leader)
            await flow.more()
            moved = (await client.fetch_metadata()).brokers[leader]
            assert moved.address == cluster.addresses[leader]
    assert not flow.lost
