"""Streams as one node knows them, and the number of their partitions on each node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from types import MappingProxyType

from liftbridge_aio.broker.storage.core.log import PartitionLog
from liftbridge_aio.broker.storage.core.operations import CreateStream
from liftbridge_aio.model import StreamInfo

from .partition import Partition


class Stream:
    """A stream and its partitions."""

    def __init__(
        self,
        operation: CreateStream,
        index: int,
        server_id: str,
        open_log: Callable[[int], PartitionLog],
    ) -> None:
        """Create a stream with closed partitions.

        Args:
            operation: the creation of the stream.
            index: index of the creation; identifies the stream among others of the same name.
            server_id: id of this broker.
            open_log: opens the log of the partition with a number.
        """
        self.name = operation.name
        self.subject = operation.subject
        self.group = operation.group
        self.config = operation.config
        self.created = operation.created
        self.index = index
        self.resume_all = False

        def partition(number: int) -> Partition:
            return Partition(
                operation,
                number,
                index,
                server_id,
                lambda: open_log(number),
            )

        self.partitions = {number: partition(number) for number in range(len(operation.partitions))}
        self.replicas = [each for each in self.partitions.values() if each.is_replica]
        """Those of which this broker is a replica."""

    def info(self) -> StreamInfo:
        """Return the stream's metadata."""
        partitions = {number: one.info() for number, one in self.partitions.items()}
        return StreamInfo(self.name, self.subject, MappingProxyType(partitions), self.created)


class BrokerLoads:
    """Partitions per broker id, by which new replicas and leaders are placed.

    Counts increase when a partition is created or resumed, and decrease when one is paused or
    deleted: as on a real server even if it was paused already, though never below zero.
    """

    def __init__(self) -> None:
        self._partitions: Counter[str] = Counter()
        self._leaders: Counter[str] = Counter()

    def partition_count(self, server_id: str) -> int:
        """Return the number of partitions of which a broker is a replica."""
        return self._partitions[server_id]

    def leader_count(self, server_id: str) -> int:
        """Return the number of partitions that a broker leads."""
        return self._leaders[server_id]

    def add(self, partitions: Iterable[Partition]) -> None:
        """Count partitions that were created or resumed."""
        for partition in partitions:
            self._partitions.update(partition.replicas)
            self._leaders[partition.leader] += 1

    def remove(self, partitions: Iterable[Partition]) -> None:
        """Count partitions that were paused or deleted."""
        for partition in partitions:
            for replica in partition.replicas:
                self._partitions[replica] = max(self._partitions[replica] - 1, 0)
            self._remove_leader(partition.leader)

    def change_leader(self, old: str, new: str) -> None:
        """Count a change of leader."""
        self._remove_leader(old)
        self._leaders[new] += 1

    def _remove_leader(self, server_id: str) -> None:
        self._leaders[server_id] = max(self._leaders[server_id] - 1, 0)
