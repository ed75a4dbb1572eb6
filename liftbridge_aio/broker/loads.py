"""How many partitions each broker keeps and leads, as the metadata of a broker tells.

New replicas and leaders go where there are fewest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .partition import Partition


class BrokerLoads:
    """Counts per broker id.

    They go up when a partition is created or resumed, and down when one is paused or deleted. As
    on a real server nobody looks whether it was paused already: then they go down once more,
    though never below zero.
    """

    def __init__(self) -> None:
        self._kept: Counter[str] = Counter()
        self._led: Counter[str] = Counter()

    def kept(self, server_id: str) -> int:
        """Partitions that a broker has a replica of."""
        return self._kept[server_id]

    def led(self, server_id: str) -> int:
        """Partitions that a broker leads."""
        return self._led[server_id]

    def add(self, partitions: Iterable[Partition]) -> None:
        """Count partitions that were created or resumed."""
        for partition in partitions:
            self._kept.update(partition.replicas)
            self._led[partition.leader] += 1

    def take(self, partitions: Iterable[Partition]) -> None:
        """Count partitions that were paused or deleted."""
        for partition in partitions:
            for replica in partition.replicas:
                self._kept[replica] = max(self._kept[replica] - 1, 0)
            self._take_leader(partition.leader)

    def change_leader(self, old: str, new: str) -> None:
        """Count a change of leader."""
        self._take_leader(old)
        self._led[new] += 1

    def _take_leader(self, server_id: str) -> None:
        self._led[server_id] = max(self._led[server_id] - 1, 0)
