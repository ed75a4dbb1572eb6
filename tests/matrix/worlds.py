"""The servers that states are brought about on: one alone or a cluster, embedded or real."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from liftbridge_aio.broker import EmbeddedBroker, EmbeddedCluster
from support.raw import eventually
from support.servers.cluster import Cluster, LiftbridgeCluster
from support.servers.embedded_cluster import EmbeddedNodes
from support.servers.node import CURSOR_PARTITIONS, LiftbridgeNode
from support.servers.ports import free_ports

VICTIM: Final = "n1"
"""The node of a cluster to which everything happens."""
WATERMARK: Final = "replication-offset-checkpoint"
"""The file in which a real server notes how far a partition is committed."""


@dataclass(slots=True)
class EmbeddedWorld:
    """An embedded broker."""

    broker: EmbeddedBroker
    kind: str = "embedded"
    nats_url: str | None = None
    """The embedded broker has no NATS."""

    @property
    def addresses(self) -> tuple[str, ...]:
        return (self.broker.address,)

    @property
    def witness(self) -> str:
        return self.broker.address

    async def checkpoint(self) -> None:
        """Wait until the server has noted what is committed, which this one does at once."""

    async def stop(self) -> None:
        """End the server in order."""
        await self.broker.stop()

    async def kill(self) -> None:
        """End the server as a crash does."""
        await self.broker.stop()

    async def start(self) -> None:
        """Start it again, ready or not."""
        await self.broker.start()

    async def lose_watermarks(self) -> None:
        """Remove what the stopped server has noted as committed; this one needs no such note."""

    async def lose_disk(self) -> None:
        """Remove everything that the stopped server has stored."""
        self.broker = new_broker(int(self.broker.address.rpartition(":")[2]))


@dataclass(frozen=True, slots=True)
class RealWorld:
    """A process of a real server."""

    node: LiftbridgeNode
    kind: str

    @property
    def addresses(self) -> tuple[str, ...]:
        return (self.node.address,)

    @property
    def witness(self) -> str:
        return self.node.address

    @property
    def nats_url(self) -> str | None:
        return self.node.nats_url

    async def checkpoint(self) -> None:
        """Wait until the server has noted what is committed, which it does each 5 seconds.

        What it has not noted nobody can read after its next start until more is published.
        """
        began = time.time()
        logs = {file.parent for file in (self.node.folder / "data").rglob("*.log")}
        files = [log / WATERMARK for log in logs]

        async def noted() -> bool:
            return all(file.exists() and file.stat().st_mtime > began for file in files)

        await eventually(noted)

    async def stop(self) -> None:
        """End the server in order."""
        await asyncio.to_thread(self.node.stop)

    async def kill(self) -> None:
        """End the server as a crash does."""
        await asyncio.to_thread(self.node.kill)

    async def start(self) -> None:
        """Start it again, ready or not."""
        await asyncio.to_thread(self.node.launch)

    async def lose_watermarks(self) -> None:
        """Remove what the stopped server has noted as committed."""
        for file in (self.node.folder / "data").rglob(WATERMARK):
            file.unlink()

    async def lose_disk(self) -> None:
        """Remove everything that the stopped server has stored."""
        await asyncio.to_thread(self.node.lose_disk)


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


LoneWorld = EmbeddedWorld | RealWorld
World = LoneWorld | ClusterWorld


def new_broker(port: int = 0) -> EmbeddedBroker:
    """Make a broker set up as the real servers of the tests are."""
    return EmbeddedBroker(
        port=port,
        cursors_partitions=CURSOR_PARTITIONS,
        consumer_timeout=20,
        coordinator_timeout=10,
        activity=True,
    )


@asynccontextmanager
async def running_embedded_world() -> AsyncIterator[EmbeddedWorld]:
    """Run an embedded broker."""
    world = EmbeddedWorld(new_broker(free_ports(1)[0]))
    await world.start()
    try:
        yield world
    finally:
        await world.stop()


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
