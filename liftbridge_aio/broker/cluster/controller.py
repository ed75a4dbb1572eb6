"""The metadata controller, in place of Raft: one list of operations that all nodes apply.

Pure: time comes in as an argument, nothing waits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Final

from liftbridge_aio.broker.errors import BrokerError, Code
from liftbridge_aio.broker.storage.core.operations import (
    ChangeLeader,
    CreateStream,
    DeleteStream,
    ExpandIsr,
    Operation,
    PartitionPlacement,
    PauseStream,
    ResumeStream,
    SetStreamReadonly,
    ShrinkIsr,
)

from .failover import FailoverReports, partition_quorum
from .node import Node
from .partition import Partition
from .requests import MAX_REPLICATION, StreamRequest, check_not_reserved

_NANOSECONDS: Final = 10**9
_LEADER_TIMEOUT: Final = 15.0  # seconds, as on a real server
_NO_LEADER: Final = "no known metadata leader"


class Controller:
    """Checks and orders operations, for the node that leads the metadata.

    Like Raft it requires a majority of the nodes. A held node receives no operations until it is
    released.
    """

    def __init__(
        self,
        store: Callable[[int, Operation], None] | None = None,
        *,
        leader_timeout: float = _LEADER_TIMEOUT,
    ) -> None:
        """Create a controller without nodes.

        Args:
            store: stores an operation and its index before it is applied; raises OSError.
            leader_timeout: seconds for which a report of a silent leader counts.
        """
        self.nodes: dict[str, Node] = {}
        self._watchers: list[Callable[[], None]] = []
        self._store = store
        self._operations: list[tuple[int, Operation]] = []
        self._held: set[str] = set()
        self._leader: Node | None = None
        self._leader_reports: FailoverReports[Partition] = FailoverReports(
            round(leader_timeout * _NANOSECONDS)
        )

    def operations_after(self, index: int) -> Sequence[tuple[int, Operation]]:
        """Return the operations after `index`, with their indices."""
        position = bisect_right(self._operations, index, key=itemgetter(0))
        return self._operations[position:]

    @property
    def last_index(self) -> int:
        """Index of the last operation; 0 if there is none."""
        return self._operations[-1][0] if self._operations else 0

    def watch(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each operation."""
        self._watchers.append(callback)

    def unwatch(self, callback: Callable[[], None]) -> None:
        """Undo `watch`."""
        self._watchers.remove(callback)

    def replay(self, stored: Iterable[tuple[int, Operation]]) -> None:
        """Load stored operations, before any node has started."""
        self._operations.extend(stored)

    def add(self, node: Node) -> None:
        """Add a node to the cluster; it counts as dead until it is started."""
        self.nodes[node.server_id] = node

    def start(self, node: Node, now: int) -> None:
        """Start a node: apply the operations that it missed, then take its roles."""
        if node.server_id not in self._held:
            self._catch_up(node, now)
        node.start(now)

    def stop(self, node: Node) -> None:
        """Stop a node, until `start`."""
        node.stop()
        if self._leader is node:
            self._lose_leader()

    def hold(self, server_id: str) -> None:
        """Apply no further operations to a node, until `release`."""
        self._held.add(server_id)
        if self._leader is not None and self._leader.server_id == server_id:
            self._lose_leader()

    def release(self, server_id: str, now: int) -> None:
        """Apply to a held node the operations that it missed."""
        self._held.discard(server_id)
        node = self.nodes[server_id]
        if node.is_running:
            self._catch_up(node, now)

    def leader(self) -> Node:
        """Return the node that leads the metadata.

        Raises:
            BrokerError: no majority of the nodes is running.
        """
        if self._leader is not None and 2 * self._running_count() > len(self.nodes):
            return self._leader
        candidates = [
            node
            for server_id, node in sorted(self.nodes.items())
            if node.is_running and server_id not in self._held and not node.is_forgetful
        ]
        if 2 * len(candidates) <= len(self.nodes):
            raise BrokerError(Code.INTERNAL, _NO_LEADER)
        self._leader = candidates[0]
        return self._leader

    def has_leader(self) -> bool:
        """Return True if operations can be proposed now."""
        try:
            self.leader()
        except BrokerError:
            return False
        return True

    def propose(self, operation: Operation, now: int) -> int:
        """Append an operation that was checked, apply it to all nodes and return its index.

        Raises:
            BrokerError: there is no metadata leader, or the operation cannot be stored.
        """
        leader = self.leader()
        index = self.last_index + 1
        if self._store is not None:
            try:
                self._store(index, operation)
            except OSError as error:
                raise BrokerError(Code.INTERNAL, f"cannot store the operation: {error}") from error
        self._operations.append((index, operation))
        leader.apply(index, operation, now)
        for server_id, node in self.nodes.items():
            if node is not leader and node.is_running and server_id not in self._held:
                self._catch_up(node, now)
        for callback in self._watchers:
            callback()
        return index

    def create_stream(self, request: StreamRequest, now: int) -> None:
        """Create a stream, from a request that passed `check_stream_request`.

        Raises:
            BrokerError: it exists, or there are too few brokers for it.
        """
        leader = self.leader()
        factor = request.replication_factor or 1
        if factor == MAX_REPLICATION:
            factor = len(self.nodes)
        if factor > len(self.nodes):
            raise BrokerError(
                Code.INVALID_ARGUMENT,
                f"Invalid replicationFactor {factor}, cluster size {len(self.nodes)}",
            )
        if leader.stream(request.name) is not None:
            raise BrokerError(Code.ALREADY_EXISTS, "stream already exists")
        # As on a real server, loads are not updated between the partitions of one stream: all get
        # the same replicas and the same leader.
        replicas = sorted(self.nodes, key=leader.loads.partition_count)[:factor]
        placement = PartitionPlacement(
            replicas=tuple(replicas), leader=min(replicas, key=leader.loads.leader_count)
        )
        self.propose(
            CreateStream(
                name=request.name,
                subject=request.subject,
                group=request.group,
                config=request.config,
                created=now,
                partitions=(placement,) * max(request.partitions, 1),
            ),
            now,
        )

    def delete_stream(self, name: str, now: int) -> None:
        """Delete a stream and its messages; subscriptions end.

        Raises:
            BrokerError: there is no such stream, or it is an internal one.
        """
        check_not_reserved(name)
        if self.leader().stream(name) is None:
            raise BrokerError(Code.NOT_FOUND, "stream does not exist")
        self.propose(DeleteStream(stream=name), now)

    def pause(
        self, name: str, numbers: Iterable[int], now: int, *, resume_all: bool = False
    ) -> None:
        """Pause partitions; no numbers mean all. The latest `resume_all` of a stream applies.

        Raises:
            BrokerError: there is no such stream or partition; nothing is paused then.
        """
        existing = self.leader().existing(name, tuple(numbers))
        partitions = tuple(partition.number for partition in existing)
        operation = PauseStream(stream=name, partitions=partitions, resume_all=resume_all, at=now)
        self.propose(operation, now)

    def resume(self, name: str, numbers: tuple[int, ...], now: int) -> None:
        """Resume partitions; no numbers mean none.

        Raises:
            BrokerError: there is no such stream or partition.
        """
        if numbers:
            self.leader().existing(name, numbers)
            self.propose(ResumeStream(stream=name, partitions=numbers, at=now), now)

    def set_readonly(self, name: str, numbers: Iterable[int], now: int, *, readonly: bool) -> None:
        """Make partitions read-only or writable; no numbers mean all.

        Raises:
            BrokerError: there is no such stream or partition; nothing is changed then.
        """
        existing = self.leader().existing(name, tuple(numbers))
        partitions = tuple(partition.number for partition in existing)
        operation = SetStreamReadonly(stream=name, partitions=partitions, readonly=readonly, at=now)
        self.propose(operation, now)

    def shrink_isr(self, partition: Partition, replica: str, now: int) -> None:
        """Remove a replica from the in-sync set, for the leader.

        Raises:
            BrokerError: there is no such partition, or it has another leader by now.
        """
        self._check_leadership(partition)
        operation = ShrinkIsr(stream=partition.stream, partition=partition.number, replica=replica)
        self.propose(operation, now)

    def expand_isr(self, partition: Partition, replica: str, now: int) -> None:
        """Return a replica to the in-sync set, for the leader.

        Unlike a real server this refuses what could lose messages acked with policy ALL: the next
        leader is one of the replicas in sync.

        Raises:
            BrokerError: there is no such partition, it has another leader by now, or its leader
                is held or does not know that the replica has all committed messages.
        """
        self._check_leadership(partition)
        if partition.leader in self._held:  # it would go on to commit without the replica
            raise BrokerError(Code.INTERNAL, _NO_LEADER)
        if not partition.holds_all_committed(replica):
            raise BrokerError(
                Code.FAILED_PRECONDITION, f"{replica} lacks messages that were committed"
            )
        operation = ExpandIsr(stream=partition.stream, partition=partition.number, replica=replica)
        self.propose(operation, now)

    def report_leader(self, partition: Partition, replica: str, now: int) -> None:
        """Count a follower's report that its leader is silent; elect another at the quorum.

        Raises:
            BrokerError: there is no such partition, it has another leader by now, or no other
                replica is in sync.
        """
        known = self._check_leadership(partition)
        quorum = partition_quorum(len(known.isr))
        if self._leader_reports.add(known, replica, quorum, now):
            self.elect_leader(known, now)

    def elect_leader(self, partition: Partition, now: int) -> None:
        """Elect another replica in sync as the leader of a partition.

        Raises:
            BrokerError: there is none.
        """
        candidates = [one for one in partition.isr if one != partition.leader]
        if not candidates:
            raise BrokerError(Code.FAILED_PRECONDITION, "No ISR candidates")
        leader = min(candidates, key=self.leader().loads.leader_count)
        self.move_leader(partition, leader, now)

    def move_leader(self, partition: Partition, leader: str, now: int) -> None:
        """Make a broker the leader of a partition; an empty id leaves it without a leader.

        Raises:
            BrokerError: there is no metadata leader.
        """
        operation = ChangeLeader(stream=partition.stream, partition=partition.number, leader=leader)
        self.propose(operation, now)

    def _lose_leader(self) -> None:
        self._leader = None
        self._leader_reports.clear()  # only the leader counts them, and for itself

    def _check_leadership(self, partition: Partition) -> Partition:
        known = self.leader().partition(partition.stream, partition.number)
        if known is None:
            raise BrokerError(
                Code.FAILED_PRECONDITION,
                f"No such partition [stream={partition.stream}, partition={partition.number}]",
            )
        if (known.leader, known.leader_epoch) != (partition.leader, partition.leader_epoch):
            raise BrokerError(
                Code.FAILED_PRECONDITION,
                "Leader generation mismatch, current leader:"
                f" {known.leader} epoch: {known.leader_epoch},"
                f" got leader: {partition.leader} epoch: {partition.leader_epoch}",
            )
        return known

    def _running_count(self) -> int:
        return sum(
            node.is_running and server_id not in self._held
            for server_id, node in self.nodes.items()
        )

    def _catch_up(self, node: Node, now: int) -> None:
        for index, operation in self.operations_after(node.applied):
            node.apply(index, operation, now)
