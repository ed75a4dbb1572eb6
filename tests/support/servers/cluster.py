"""Three real nodes and a NATS server that outlives them: what cluster tests run on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from liftbridge_aio.testing.simulation.faults import Brokers
from support.servers.health import missing
from support.servers.nats import NatsServer
from support.servers.node import LiftbridgeNode, Setting, in_own_loop

HEAL_TIMEOUT: Final = 40.0
NODE_IDS: Final = ("n1", "n2", "n3")

# Short enough for tests that wait for failures to be noticed.
TIMING: Final[Mapping[str, Setting]] = {
    "clustering.replica.max.leader.timeout": "1s",
    "clustering.replica.max.lag.time": "1s",
    "clustering.replica.max.idle.wait": "500ms",
    "clustering.replica.fetch.timeout": "500ms",
    # Within this time brokers list dead peers too; after it, every question for metadata takes
    # seconds while a peer is dead (W28), and lists without it stay as long (W29).
    "metadata.cache.max.age": "2m",
    "groups.consumer.timeout": "3s",
    "groups.coordinator.timeout": "3s",
}


class ClusterNotHealthy(Exception):
    """The nodes did not come to work together in time; the text says what was missing."""


class Cluster(Brokers, Protocol):
    """The interface of the cluster under test, real or embedded.

    Its nodes fail as those of a simulated world do. They keep their addresses and their data from
    one start to the next; a node that was started may take a while to join in.
    """

    @property
    def kind(self) -> str:
        """The name in the test matrix: ``embedded``, ``v1.9.0``, …."""

    @property
    def addresses(self) -> Mapping[str, str]:
        """``host:port`` of every node, running or not, by its id."""

    async def heal(self) -> None:
        """Bring all nodes back, delete all streams, and wait until everything works."""


@dataclass(slots=True)
class LiftbridgeCluster:
    """Real nodes on ports of 127.0.0.1, and NATS in a process of its own.

    Attributes:
        binary: The executable of the nodes.
        nats_binary: That of NATS.
        folder: An empty directory.
        kind: The name in the test matrix.
        settings: Keys of the servers' YAML that differ from the usual ones.
    """

    binary: Path
    nats_binary: Path
    folder: Path
    kind: str
    settings: Mapping[str, Setting] = field(default_factory=dict)
    nodes: dict[str, LiftbridgeNode] = field(default_factory=dict)
    _nats: NatsServer | None = None

    @property
    def addresses(self) -> Mapping[str, str]:
        """``host:port`` of every node, running or not, by its id."""
        return {node_id: node.address for node_id, node in self.nodes.items()}

    def prepare(self) -> None:
        """Choose the ports, so that the nodes may be changed before they start."""
        self._nats = NatsServer(self.nats_binary, self.folder)
        for node_id in NODE_IDS:
            self.nodes[node_id] = self._new_node(node_id, self._nats.port)

    def open(self) -> None:
        """Start everything and wait until it works; blocks.

        Raises:
            ClusterNotHealthy: It did not work within 40 seconds.
            DidNotStart: NATS did not even start.
        """
        try:
            if self._nats is None:
                self.prepare()
            assert self._nats is not None
            self._nats.start()
            self._heal()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End everything, at once; blocks briefly."""
        for node in self.nodes.values():
            node.kill()
        if self._nats is not None:
            self._nats.stop()

    async def stop_node(self, server_id: str) -> None:
        """End a node at once, as a crash does (SIGKILL)."""
        await asyncio.to_thread(self.nodes[server_id].kill)

    async def stop(self, server_id: str) -> None:
        """End a node in order (SIGINT)."""
        await asyncio.to_thread(self.nodes[server_id].stop)

    async def start_node(self, server_id: str) -> None:
        """Start a node that was killed or stopped."""
        await asyncio.to_thread(self.nodes[server_id].launch)

    def freeze(self, server_id: str) -> None:
        """Let a node do nothing while its connections stay open (SIGSTOP)."""
        self.nodes[server_id].freeze()

    def thaw(self, server_id: str) -> None:
        """Let a frozen node go on (SIGCONT)."""
        self.nodes[server_id].thaw()

    async def stop_nats(self) -> None:
        """End NATS, which all nodes need to do anything."""
        assert self._nats is not None
        await asyncio.to_thread(self._nats.stop)

    async def start_nats(self) -> None:
        """Start NATS again, at the same address.

        Raises:
            DidNotStart: It did not listen in time.
        """
        assert self._nats is not None
        await asyncio.to_thread(self._nats.start)

    async def heal(self) -> None:
        """Bring all nodes back, delete all streams, and wait until everything works.

        Raises:
            ClusterNotHealthy: It did not work within 40 seconds.
        """
        await asyncio.to_thread(self._heal)

    def _new_node(self, node_id: str, nats_port: int) -> LiftbridgeNode:
        folder = self.folder / node_id
        folder.mkdir()
        return LiftbridgeNode(
            self.binary,
            folder,
            self.kind,
            {**TIMING, **self.settings},
            server_id=node_id,
            peers=NODE_IDS,
            nats_port=nats_port,
        )

    def _heal(self) -> None:
        deadline = time.monotonic() + HEAL_TIMEOUT
        while True:
            for node in self.nodes.values():
                node.thaw()
                node.launch()
            lacking = in_own_loop(missing(self.addresses))
            if lacking is None:
                return
            if lacking.restart:
                self.nodes[lacking.restart].kill()
            if time.monotonic() > deadline:
                logs = "\n".join(
                    f"{name}:\n{node.log[-1500:]}" for name, node in self.nodes.items()
                )
                raise ClusterNotHealthy(f"{lacking.text}\n{logs}")
            time.sleep(0.1)
