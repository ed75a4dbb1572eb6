"""A cluster of embedded brokers in one process, with control over failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from liftbridge_aio._core.arguments import check_integer
from liftbridge_aio._core.public_face import as_one_class
from liftbridge_aio.model import PartitionInfo

from .cluster.controller import Controller
from .cluster.node import Node
from .cluster.partition import Partition
from .flaws import FLAWLESS, Flaws
from .server.broker_context import BrokerContext
from .server.clock import Clock
from .server.lifecycle import Lifecycle
from .server.local_cluster import Backing, LocalCluster
from .server.replicator import Replicator
from .server.server import BrokerServer, BrokerState
from .server.settings import (
    DEFAULT_GROUP_TIMEOUT,
    DEFAULT_MAX_BYTES,
    BrokerSettings,
    ServerProfile,
    check_timeouts,
)
from .server.tls import BrokerTLS
from .storage.core.operations import ExpandIsr, ShrinkIsr
from .storage.storage import MemoryStorage

_POLL_INTERVAL: Final = 0.01  # seconds
_DEFAULT_WAIT: Final = 10.0


@as_one_class
class ClusterNode(BrokerServer):
    """One broker of a cluster. Its data lives as long as the cluster object."""


@as_one_class
class EmbeddedCluster(Lifecycle):
    """A Liftbridge cluster in memory, to test on: each broker has its own port and logs.

    Use it as `async with EmbeddedCluster() as cluster: Client(*cluster.addresses)`. Messages
    reach followers at once, and failures are noticed after timeouts, which are shorter than those
    of real servers. Failures can be caused:

    - `stop_node` and `start_node` are a crash and a restart, `freeze` and `thaw` are SIGSTOP and
      SIGCONT;
    - `hold_replication` makes a follower lag until it is out of sync, or a leader look dead;
    - `hold_metadata` keeps operations from a broker, such as the creation of a stream;
    - `hide_broker` makes the list of brokers incomplete;
    - `move_leader` and `orphan` change leaders without a failure;
    - each broker has its own `faults`.

    Start and stop it in one event loop at a time; other calls may come from any task of that loop.
    """

    def __init__(
        self,
        nodes: int = 3,
        host: str = "127.0.0.1",
        ports: Sequence[int] = (),
        *,
        name: str = "n",
        namespace: str = "liftbridge-default",
        cursors_partitions: int = 1,
        max_message_bytes: int = DEFAULT_MAX_BYTES,
        max_payload_bytes: int = DEFAULT_MAX_BYTES,
        max_lag: float = 0.5,
        leader_timeout: float = 0.5,
        consumer_timeout: float = DEFAULT_GROUP_TIMEOUT,
        coordinator_timeout: float = DEFAULT_GROUP_TIMEOUT,
        activity: bool = False,
        tls: BrokerTLS | None = None,
        profile: ServerProfile = ServerProfile.V1_9,
        flaws: Flaws = FLAWLESS,
    ) -> None:
        """Create brokers that do not listen yet; by default their ids are n1, n2, ….

        Args:
            nodes: number of brokers.
            host: address to listen on, and to advertise.
            ports: one for each broker; none: free ones.
            name: with what the ids of the brokers begin.
            namespace: first token of the NATS subjects for acks, cursors and activity.
            cursors_partitions: partitions of `__cursors`, which all brokers replicate; 0: none.
            max_message_bytes: see `EmbeddedBroker`.
            max_payload_bytes: see `EmbeddedBroker`.
            max_lag: seconds after which a silent follower counts as out of sync
                (`clustering.replica.max.lag.time` of a real server).
            leader_timeout: seconds after which followers report a silent leader
                (`clustering.replica.max.leader.timeout`).
            consumer_timeout: seconds without a heartbeat after which a member of a consumer group
                is expelled.
            coordinator_timeout: seconds for which a report of a dead coordinator counts.
            activity: publish an activity stream.
            tls: see `EmbeddedBroker`.
            profile: the server version to behave like.
            flaws: what to do wrong as that version does; by default nothing.

        Raises:
            ValueError: a number is out of range.
        """
        check_integer(nodes, "nodes")
        if nodes < 1 or len(ports) not in (0, nodes):
            raise ValueError(
                f"there must be at least one broker, and as many ports: {nodes}, {len(ports)}"
            )
        settings = BrokerSettings(
            namespace=namespace,
            cursors_partitions=cursors_partitions,
            max_message_bytes=max_message_bytes,
            max_payload_bytes=max_payload_bytes,
            consumer_timeout=consumer_timeout,
            coordinator_timeout=coordinator_timeout,
            activity=activity,
            tls=tls,
            profile=profile,
            flaws=flaws,
        )
        check_timeouts(max_lag=max_lag, leader_timeout=leader_timeout)
        self._controller = Controller(leader_timeout=leader_timeout)
        self._cluster = LocalCluster(settings, self._controller)
        self._replicator = Replicator(
            self._controller, max_lag, leader_timeout, cuts_committed=flaws.cuts_committed
        )
        self._replicating: asyncio.Task[None] | None = None
        self._frozen: set[str] = set()
        self._contexts: dict[str, BrokerContext] = {}
        self._nodes: dict[str, ClusterNode] = {}
        for number, port in enumerate(ports or [0] * nodes, start=1):
            server_id = f"{name}{number}"
            node = self._cluster.add_node(server_id, MemoryStorage())
            node.on_append = self._replicator.wake
            opener = self._opener(node)
            self._nodes[server_id] = ClusterNode(host, port, server_id, opener, settings)

    def _opener(self, node: Node) -> Callable[[Clock], Backing]:
        def open_backing(clock: Clock) -> Backing:
            context = self._contexts.get(node.server_id)
            if context is None:  # kept over restarts, with the brokers that it hides
                context = self._contexts[node.server_id] = self._cluster.context(node, clock)
            return Backing(context, self._cluster)

        return open_backing

    @property
    def nodes(self) -> Mapping[str, ClusterNode]:
        """All brokers by id."""
        return MappingProxyType(self._nodes)

    @property
    def addresses(self) -> Sequence[str]:
        """`host:port` of each broker."""
        return [node.address for node in self._nodes.values()]

    async def start(self) -> None:
        """Start all brokers. Cancelling it leaves them stopped.

        Raises:
            OSError: an address cannot be listened on.
            RuntimeError: a broker is not stopped.
            BrokerPanicked: a broker has ended, see `Flaws.panics_at_start`; the others are stopped.
        """
        started = []
        try:
            for node in self._nodes.values():
                await node.start()
                started.append(node)
        except BaseException:
            for node in started:
                await node.stop()
            raise
        self._replicating = asyncio.create_task(self._replicator.run(), name="broker-replication")

    async def stop(self) -> None:
        """Thaw and stop all brokers; stored data is kept. May be called any number of times.

        Takes little more than a second whatever clients do. Cancelling it leaves brokers stopping
        in the background.
        """
        replicating, self._replicating = self._replicating, None
        if replicating is not None:
            replicating.cancel()
        for server_id in self._nodes:
            self.thaw(server_id)
        await asyncio.shield(asyncio.gather(*(node.stop() for node in self._nodes.values())))
        if replicating is not None:
            await asyncio.wait([replicating])

    async def stop_node(self, server_id: str) -> None:
        """Stop a broker, as a crash does; the others notice its silence.

        Cancelling it leaves the broker stopping in the background.

        Raises:
            KeyError: there is no such broker.
        """
        self.thaw(server_id)
        await self._nodes[server_id].stop()

    async def start_node(self, server_id: str) -> None:
        """Start a stopped broker again, on the same port, with its data.

        Cancelling it leaves the broker stopped.

        Raises:
            KeyError: there is no such broker.
            OSError: the port was taken meanwhile.
            RuntimeError: it is running.
            BrokerPanicked: it has ended, see `Flaws.panics_at_start`.
        """
        await self._nodes[server_id].start()

    def freeze(self, server_id: str) -> None:
        """Suspend a broker, while its connections stay open and silent.

        Messages published to the partitions that it leads are lost meanwhile.

        Raises:
            KeyError: there is no such broker.
        """
        self._nodes[server_id].freeze()
        self._frozen.add(server_id)
        self.hold_replication(server_id)
        self.hold_metadata(server_id)

    def thaw(self, server_id: str) -> None:
        """Undo `freeze`; nothing happens if the broker is not frozen.

        Raises:
            KeyError: there is no such broker.
        """
        if server_id in self._frozen:
            self._frozen.discard(server_id)
            self.release_metadata(server_id)
            self.release_replication(server_id)
        self._nodes[server_id].thaw()

    def hold_replication(self, server_id: str) -> None:
        """Keep a broker from fetching, and others from fetching from it.

        Raises:
            KeyError: there is no such broker.
        """
        self._replicator.held.add(self._nodes[server_id].server_id)

    def release_replication(self, server_id: str) -> None:
        """Undo `hold_replication`."""
        self._replicator.held.discard(server_id)

    def hold_metadata(self, server_id: str) -> None:
        """Keep all changes of streams, partitions and groups from a broker.

        Raises:
            KeyError: there is no such broker.
        """
        self._controller.hold(self._nodes[server_id].server_id)

    def release_metadata(self, server_id: str) -> None:
        """Undo `hold_metadata`: the broker applies the changes that it missed.

        Raises:
            KeyError: there is no such broker.
        """
        self._controller.release(server_id, Clock().now_ns())

    def hide_broker(self, hidden: str, *, from_node: str) -> None:
        """Leave a broker out of the metadata of another one.

        Raises:
            KeyError: there is no such broker, or `from_node` was never started.
        """
        context = self._contexts[from_node]
        context.hidden_brokers |= {self._nodes[hidden].server_id}

    def show_brokers(self) -> None:
        """Undo all of `hide_broker`."""
        for context in self._contexts.values():
            context.hidden_brokers = frozenset()

    def leader_of(self, stream: str, partition: int = 0) -> str:
        """Return the id of a partition's leader, empty if there is none.

        Raises:
            LookupError: there is no such partition.
        """
        return self._partition(stream, partition).leader

    def replica(self, server_id: str, stream: str, partition: int = 0) -> PartitionInfo:
        """Return a partition's metadata as one broker sees it, with the offsets of its own log.

        Raises:
            LookupError: there is no such broker, or it does not know the partition.
        """
        found = self._controller.nodes[server_id].partition(stream, partition)
        if found is None:
            raise LookupError(f"{server_id} does not know the partition {stream}/{partition}")
        return found.info()

    def move_leader(self, stream: str, partition: int, server_id: str) -> None:
        """Make another replica the leader of a partition, at once.

        A replica that is out of sync becomes in sync, and the messages that it lacks are lost.

        Raises:
            BrokerError: no majority of the brokers is running.
            LookupError: there is no such partition.
            ValueError: the broker is no replica of it.
        """
        found = self._partition(stream, partition)
        if server_id not in found.replicas:
            raise ValueError(f"{server_id!r} is no replica of {stream}/{partition}")
        now = Clock().now_ns()
        if server_id not in found.isr:
            expand = ExpandIsr(stream=stream, partition=partition, replica=server_id)
            self._controller.propose(expand, now)
        self._controller.move_leader(found, server_id, now)

    def orphan(self, stream: str, partition: int = 0) -> None:
        """Leave a partition without a leader and without replicas in sync, until `move_leader`.

        Raises:
            BrokerError: no majority of the brokers is running.
            LookupError: there is no such partition.
        """
        found = self._partition(stream, partition)
        now = Clock().now_ns()
        self._controller.move_leader(found, "", now)
        for replica in tuple(found.isr):
            shrink = ShrinkIsr(stream=stream, partition=partition, replica=replica)
            self._controller.propose(shrink, now)

    async def wait_until(
        self, condition: Callable[[], bool], timeout: float = _DEFAULT_WAIT
    ) -> None:
        """Wait until a condition holds. May be cancelled at any time.

        Args:
            condition: evaluated repeatedly.
            timeout: seconds to wait at most.

        Raises:
            TimeoutError: it did not hold in time.
        """
        async with asyncio.timeout(timeout):
            while not condition():  # noqa: ASYNC110 - anything may make it true
                await asyncio.sleep(_POLL_INTERVAL)

    def _partition(self, stream: str, partition: int) -> Partition:
        found = self._controller.leader().partition(stream, partition)
        if found is None:
            raise LookupError(f"there is no partition {stream}/{partition}")
        return found

    def __repr__(self) -> str:
        running = sum(node.state is BrokerState.RUNNING for node in self._nodes.values())
        return f"<EmbeddedCluster of {len(self._nodes)} brokers, {running} running>"
