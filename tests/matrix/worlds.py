"""The servers that states are brought about on: one alone or a cluster, embedded or real."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from liftbridge_aio.broker import EmbeddedCluster
from support.lone_servers import LoneBroker, LoneServer
from support.servers.cluster import Cluster, LiftbridgeCluster
from support.servers.embedded_cluster import EmbeddedNodes
from support.servers.node import CURSOR_PARTITIONS
from support.servers.ports import free_ports

VICTIM: Final = "n1"
"""The node of a cluster to which everything happens."""


@dataclass(frozen=True, slots=True)
class LoneWorld:
    """One server."""

    server: LoneServer

    @property
    def kind(self) -> str:
        return self.server.kind

    @property
    def addresses(self) -> tuple[str, ...]:
        return (self.server.address,)

    @property
    def witness(self) -> str:
        return self.server.address

    @property
    def nats_url(self) -> str | None:
        return self.server.nats_url


@dataclass(frozen=True, slots=True)
class ClusterWorld:
    """Three servers as one cluster, of which one is harmed."""

    cluster: Cluster
    kind: str

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(self.cluster.addresses.values())

    @property
    def witness(self) -> str:
        """The address of a server that is left alone."""
        return self.addresses[-1]

    @property
    def nats_url(self) -> str | None:
        if isinstance(self.cluster, LiftbridgeCluster):
            return self.cluster.nodes[VICTIM].nats_url
        return None


World = LoneWorld | ClusterWorld


@asynccontextmanager
async def running_embedded_world() -> AsyncIterator[LoneWorld]:
    """Run a broker set up as the real servers of the tests are."""
    server = LoneBroker(
        cursors_partitions=CURSOR_PARTITIONS,
        consumer_timeout=20,
        coordinator_timeout=10,
        activity=True,
    )
    await server.start()
    try:
        yield LoneWorld(server)
    finally:
        await server.stop()


@asynccontextmanager
async def running_embedded_cluster() -> AsyncIterator[ClusterWorld]:
    """Run three embedded brokers."""
    async with EmbeddedCluster(
        ports=free_ports(3),
        cursors_partitions=CURSOR_PARTITIONS,
        consumer_timeout=3,
        coordinator_timeout=3,
        activity=True,
    ) as cluster:
        yield ClusterWorld(EmbeddedNodes(cluster), "embedded")
