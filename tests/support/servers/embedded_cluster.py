"""The embedded cluster as the cluster tests take it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from liftbridge_aio.broker import BrokerState, EmbeddedCluster
from support.servers.ports import free_ports

CURSORS_PARTITIONS: Final = 3
GROUP_TIMEOUT: Final = 3.0


@dataclass(frozen=True, slots=True)
class EmbeddedNodes:
    """An embedded cluster, by the protocol `Cluster`."""

    cluster: EmbeddedCluster
    kind: str = "embedded"

    @property
    def addresses(self) -> Mapping[str, str]:
        """``host:port`` of every node, running or not, by its id."""
        return {node_id: node.address for node_id, node in self.cluster.nodes.items()}

    @property
    def nodes(self) -> Mapping[str, object]:
        """The nodes by their ids."""
        return self.cluster.nodes

    async def stop_node(self, server_id: str) -> None:
        """End a node at once, as a crash does."""
        await self.cluster.stop_node(server_id)

    async def start_node(self, server_id: str) -> None:
        """Start a node that was killed."""
        await self.cluster.start_node(server_id)

    def freeze(self, server_id: str) -> None:
        """Let a node do nothing while its connections stay open."""
        self.cluster.freeze(server_id)

    def thaw(self, server_id: str) -> None:
        """Let a frozen node go on."""
        self.cluster.thaw(server_id)

    async def heal(self) -> None:
        """Bring all nodes back; each test has a cluster of its own, so streams may stay."""
        for node_id, node in self.cluster.nodes.items():
            self.cluster.thaw(node_id)
            if node.state is not BrokerState.RUNNING:
                await self.cluster.start_node(node_id)


@asynccontextmanager
async def running_embedded_cluster() -> AsyncIterator[EmbeddedNodes]:
    """Three embedded nodes, as the real ones are set up."""
    async with EmbeddedCluster(
        ports=free_ports(3),
        cursors_partitions=CURSORS_PARTITIONS,
        consumer_timeout=GROUP_TIMEOUT,
        coordinator_timeout=GROUP_TIMEOUT,
    ) as cluster:
        yield EmbeddedNodes(cluster)
