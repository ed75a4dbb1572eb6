"""An embedded cluster whose brokers are reached through proxies, which can fall silent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from liftbridge_aio import Client, ClientOptions
from liftbridge_aio.broker import EmbeddedCluster
from liftbridge_aio.testing import FaultProxy
from support.faults import QUICK, Recorder, eventually
from support.servers.ports import free_ports


@asynccontextmanager
async def behind_proxies(
    nodes: int,
) -> AsyncIterator[tuple[EmbeddedCluster, dict[str, FaultProxy]]]:
    """A cluster, and a proxy in front of each broker by the broker's own address."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            EmbeddedCluster(nodes=nodes, ports=free_ports(nodes))
        )
        yield (
            cluster,
            {
                address: await stack.enter_async_context(FaultProxy(address))
                for address in cluster.addresses
            },
        )


@asynccontextmanager
async def frozen_leader(
    stream: str, **options: Any
) -> AsyncIterator[tuple[Client, EmbeddedCluster, dict[str, FaultProxy], Recorder]]:
    """A client whose link to the leader of a stream just broke, and whom the leader is silent to.

    Yields:
        The client, the cluster, the proxies by the id of the broker, and what the client told.
    """
    async with behind_proxies(3) as (cluster, by_address):
        recorder = Recorder()
        its_options = ClientOptions(
            hook=recorder,
            backoff=QUICK,
            address_map=lambda advertised: by_address[advertised].address,
            **options,
        )
        proxies = {node_id: by_address[node.address] for node_id, node in cluster.nodes.items()}
        seeds = [proxy.address for proxy in proxies.values()]
        async with Client(*seeds, options=its_options) as client:
            await client.create_stream(stream, replication_factor=3)
            await client.fetch_partition_metadata(stream, 0)
            await fall_silent(proxies[cluster.leader_of(stream)], recorder)
            yield client, cluster, proxies, recorder


async def fall_silent(proxy: FaultProxy, recorder: Recorder) -> None:
    """Let connections to a broker break, and be made again, but nothing be answered."""
    proxy.freeze()
    await proxy.reset()
    await eventually(lambda: proxy.address in [each.address for each in recorder.down])
