"""Several brokers in one process: leaders, followers, and control over what goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Final, Self

from liftbridge_aio.model import PartitionInfo

from .bus import Bus
from .clock import Clock
from .controller import Controller
from .embedded_broker import check_limits, check_timeouts
from .group_controller import GroupController
from .member import Member
from .node import Node
from .operations import ExpandIsr, ShrinkIsr
from .own_streams import create_own_streams
from .partition import Partition
from .profile import ServerProfile
from .replicator import Replicator
from .server import Backing, BrokerServer, BrokerState
from .settings import DEFAULT_GROUP_TIMEOUT, BrokerSettings
from .storage import MemoryStorage
from .tls import BrokerTLS

_MIB: Final = 2**20
_POLL: Final = 0.01  # seconds between two looks at a condition
_DEFAULT_WAIT: Final = 10.0


class ClusterNode(BrokerServer):
    """One broker of a cluster. What it stores lives as long as the cluster object."""


class EmbeddedCluster:
    """A Liftbridge cluster in memory, to test on: each broker has a port and logs of its own.

    Use it as `async with EmbeddedCluster() as cluster: Client(*cluster.addresses)`. Messages
    reach followers at once, and failures are noticed after short timeouts, as they are on real
    servers after longer ones. Everything that may go wrong can be brought about:

    - `stop_node` and `start_node` are a crash and a restart, `freeze` and `thaw` are SIGSTOP and
      SIGCONT;
    - `hold_replication` makes a follower lag until it is out of sync, or a leader look dead;
    - `hold_metadata` leaves a broker ignorant of what happens, such as a stream just created;
    - `hide_broker` makes the list of brokers incomplete;
    - `move_leader` and `orphan` change who leads, without any failure;
    - each broker has its own `faults`.

    Start and stop it in one event loop at a time; other calls may come from any task of it.
    """

    def __init__(
        self,
        nodes: int = 3,
        host: str = "127.0.0.1",
        ports: Sequence[int] = (),
        *,
        namespace: str = "liftbridge-default",
        cursors_partitions: int = 1,
        max_message_bytes: int = _MIB,
        max_payload_bytes: int = _MIB,
        max_lag: float = 0.5,
        leader_timeout: float = 0.5,
        consumer_timeout: float = DEFAULT_GROUP_TIMEOUT,
        coordinator_timeout: float = DEFAULT_GROUP_TIMEOUT,
        activity: bool = False,
        tls: BrokerTLS | None = None,
        profile: ServerProfile = ServerProfile.V1_9,
    ) -> None:
        """Make brokers that do not listen yet; their ids are n1, n2, ….

        Args:
            nodes: how many brokers.
            host: address to listen on, and to advertise.
            ports: one for each broker; none: free ones.
            namespace: first part of the NATS subjects for acks, cursors and activity.
            cursors_partitions: partitions of `__cursors`, which all brokers keep; 0: none.
            max_message_bytes: see `EmbeddedBroker`.
            max_payload_bytes: see `EmbeddedBroker`.
            max_lag: seconds after which a silent follower counts as out of sync
                (`clustering.replica.max.lag.time` of a real server).
            leader_timeout: seconds after which followers report a silent leader
                (`clustering.replica.max.leader.timeout`).
            consumer_timeout: seconds that a member of a consumer group may be silent.
            coordinator_timeout: seconds for which a report of a dead coordinator counts.
            activity: whether there is an activity stream.
            tls: see `EmbeddedBroker`.
            profile: the version that the brokers behave like.

        Raises:
            ValueError: a number makes no sense.
        """
        if nodes < 1 or len(ports) not in (0, nodes):
            text = f"there must be at least one broker, and as many ports: {nodes}, {len(ports)}"
            raise ValueError(text)
        check_limits(cursors_partitions, max_message_bytes, max_payload_bytes)
        check_timeouts(
            max_lag=max_lag,
            leader_timeout=leader_timeout,
            consumer_timeout=consumer_timeout,
            coordinator_timeout=coordinator_timeout,
        )
        settings = BrokerSettings(
            profile=profile,
            consumer_timeout=consumer_timeout,
            coordinator_timeout=coordinator_timeout,
            activity=activity,
            tls=tls,
        )
        self._controller = Controller(leader_timeout=leader_timeout)
        self._groups = GroupController(self._controller, coordinator_timeout)
        self._replicator = Replicator(self._controller, max_lag, leader_timeout)
        self._replicating: asyncio.Task[None] | None = None
        self._frozen: set[str] = set()
        self._namespace = namespace
        self._cursors_partitions = cursors_partitions
        self._settings = settings
        self._members: dict[str, Member] = {}
        bus = Bus(max_message_bytes, max_payload_bytes)
        self._nodes: dict[str, ClusterNode] = {}
        for number, port in enumerate(ports or [0] * nodes, start=1):
            server_id = f"n{number}"
            node = Node(server_id, bus, MemoryStorage(), consumer_timeout)
            node.on_append = self._replicator.wake
            self._controller.add(node)
            opener = self._opener(node)
            self._nodes[server_id] = ClusterNode(host, port, server_id, opener, settings)

    def _opener(self, node: Node) -> Callable[[Clock], Backing]:
        def open_backing(clock: Clock) -> Backing:
            member = self._members.get(node.server_id)
            if member is None:
                member = Member(node, self._controller, clock, self._namespace)
                self._members[node.server_id] = member
            return Backing(member, self._groups, self._create_own_streams, lambda: None)

        return open_backing

    def _create_own_streams(self) -> None:
        create_own_streams(
            self._controller,
            self._namespace,
            self._cursors_partitions,
            activity=self._settings.activity,
            now=Clock().now_ns(),
        )

    @property
    def nodes(self) -> Mapping[str, ClusterNode]:
        """The brokers by id, whether they run or not."""
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
        """Stop all brokers, thawed; what they store is kept. May be called any number of times.

        Takes little more than a second whatever clients do. Cancelling it leaves brokers to finish
        stopping by themselves.
        """
        replicating, self._replicating = self._replicating, None
        if replicating is not None:
            replicating.cancel()
        for server_id in self._nodes:
            self.thaw(server_id)
        await asyncio.shield(asyncio.gather(*(node.stop() for node in self._nodes.values())))
        if replicating is not None:
            await asyncio.wait([replicating])

    async def aclose(self) -> None:
        """The same as `stop`, cancellation included."""
        await self.stop()

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop."""
        await self.stop()

    async def stop_node(self, server_id: str) -> None:
        """Stop a broker as a crash does; the others notice by its silence.

        May be cancelled: the broker stops all the same.

        Raises:
            KeyError: there is no such broker.
        """
        self.thaw(server_id)
        await self._nodes[server_id].stop()

    async def start_node(self, server_id: str) -> None:
        """Start a stopped broker again, on the same port, with what it had stored.

        Cancelling it leaves the broker stopped.

        Raises:
            KeyError: there is no such broker.
            OSError: the port was taken meanwhile.
            RuntimeError: it runs already.
        """
        await self._nodes[server_id].start()

    def freeze(self, server_id: str) -> None:
        """Let a broker do nothing, while its connections stay open and silent.

        Messages that are published to the partitions it leads are lost meanwhile.

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
        """Let a broker fetch nothing, and others fetch nothing from it.

        Raises:
            KeyError: there is no such broker.
        """
        self._replicator.held.add(self._nodes[server_id].server_id)

    def release_replication(self, server_id: str) -> None:
        """Undo `hold_replication`."""
        self._replicator.held.discard(server_id)

    def hold_metadata(self, server_id: str) -> None:
        """Leave a broker ignorant of what happens to streams, partitions and groups.

        Raises:
            KeyError: there is no such broker.
        """
        self._controller.hold(self._nodes[server_id].server_id)

    def release_metadata(self, server_id: str) -> None:
        """Undo `hold_metadata`: the broker learns what it missed.

        Raises:
            KeyError: there is no such broker.
        """
        self._controller.release(server_id, Clock().now_ns())

    def hide_broker(self, hidden: str, *, from_node: str) -> None:
        """Leave a broker out of the list that another one gives (W29).

        Raises:
            KeyError: there is no such broker, or `from_node` never ran.
        """
        member = self._members[from_node]
        member.hidden_brokers |= {self._nodes[hidden].server_id}

    def show_brokers(self) -> None:
        """Undo all of `hide_broker`."""
        for member in self._members.values():
            member.hidden_brokers = frozenset()

    def leader_of(self, stream: str, partition: int = 0) -> str:
        """Return the id of a partition's leader; empty: there is none.

        Raises:
            LookupError: there is no such partition.
        """
        return self._decided(stream, partition).leader

    def replica(self, server_id: str, stream: str, partition: int = 0) -> PartitionInfo:
        """Describe a partition as one broker sees it, with the watermark and end of its own log.

        Raises:
            LookupError: there is no such broker, or it knows of no such partition.
        """
        found = self._controller.nodes[server_id].partition(stream, partition)
        if found is None:
            text = f"{server_id} knows of no partition {partition} of {stream!r}"
            raise LookupError(text)
        return found.info()

    def move_leader(self, stream: str, partition: int, server_id: str) -> None:
        """Let another replica lead a partition, at once.

        One that is out of sync counts as in sync from now on, so that what it lacks is lost.

        Raises:
            BrokerError: fewer than half of the brokers run.
            LookupError: there is no such partition.
            ValueError: the broker is no replica of it.
        """
        found = self._decided(stream, partition)
        if server_id not in found.replicas:
            text = f"{server_id!r} keeps no replica of {stream}/{partition}"
            raise ValueError(text)
        now = Clock().now_ns()
        if server_id not in found.isr:
            expand = ExpandIsr(stream=stream, partition=partition, replica=server_id)
            self._controller.propose(expand, now)
        self._controller.move_leader(found, server_id, now)

    def orphan(self, stream: str, partition: int = 0) -> None:
        """Leave a partition without a leader and without replicas in sync.

        `move_leader` ends that.

        Raises:
            BrokerError: fewer than half of the brokers run.
            LookupError: there is no such partition.
        """
        found = self._decided(stream, partition)
        now = Clock().now_ns()
        self._controller.move_leader(found, "", now)
        for replica in tuple(found.isr):
            shrink = ShrinkIsr(stream=stream, partition=partition, replica=replica)
            self._controller.propose(shrink, now)

    async def wait_until(
        self, condition: Callable[[], bool], timeout: float = _DEFAULT_WAIT
    ) -> None:
        """Wait until something is true. May be cancelled at any time.

        Args:
            condition: looked at again and again.
            timeout: seconds to wait at most.

        Raises:
            TimeoutError: it did not come true.
        """
        async with asyncio.timeout(timeout):
            while not condition():  # noqa: ASYNC110 - anything may make it true
                await asyncio.sleep(_POLL)

    def _decided(self, stream: str, partition: int) -> Partition:
        found = self._controller.leader().partition(stream, partition)
        if found is None:
            text = f"there is no partition {partition} of {stream!r}"
            raise LookupError(text)
        return found

    def __repr__(self) -> str:
        running = sum(node.state is BrokerState.RUNNING for node in self._nodes.values())
        return f"<EmbeddedCluster of {len(self._nodes)} brokers, {running} running>"
