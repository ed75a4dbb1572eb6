"""When a leader counts as dead: enough witnesses have said so in time.

Serves for leaders of partitions, reported by their followers, and for coordinators of groups,
reported by the members. Pure: the time comes in as an argument, in nanoseconds of any one clock.
"""

from __future__ import annotations

from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

LedT = TypeVar("LedT")


class _Reports:
    def __init__(self) -> None:
        self.witnesses: set[str] = set()
        self.deadline: int | None = None


class FailoverReports(Generic[LedT]):
    """Reports about leaders, as the leader of the metadata counts them.

    As on a real server the witnesses of a failover are not forgotten by it: with them, the next
    leader can fall by a single report.
    """

    def __init__(self, timeout: int) -> None:
        """Begin without reports.

        Args:
            timeout: nanoseconds after the latest report until all are forgotten, unless they were
                enough (`groups.coordinator.timeout`, `clustering.replica.max.leader.timeout`).
        """
        self._timeout = timeout
        self._reports: WeakKeyDictionary[LedT, _Reports] = WeakKeyDictionary()

    def add(self, led: LedT, witness: str, quorum: int, now: int) -> bool:
        """Count a report.

        Args:
            led: what has the leader that is reported: a partition or a group, told from an earlier
                one of the same name by its identity.
            witness: who reports; counts once.
            quorum: how many witnesses are not yet enough, see `partition_quorum` and
                `group_quorum`.
            now: the time.

        Returns:
            Whether another leader is to be chosen.
        """
        reports = self._reports.get(led)
        if reports is None or (reports.deadline is not None and reports.deadline <= now):
            reports = self._reports[led] = _Reports()
        reports.witnesses.add(witness)
        is_enough = len(reports.witnesses) > quorum
        reports.deadline = None if is_enough else now + self._timeout
        return is_enough

    def forget(self) -> None:
        """Forget all reports, as when another broker leads the metadata."""
        self._reports.clear()


def partition_quorum(in_sync: int) -> int:
    """Return the reports not yet enough, of that many in-sync replicas, the leader among them."""
    return (in_sync - 1) // 2


def group_quorum(members: int) -> int:
    """Return the reports that are not yet enough, of that many members."""
    return members // 2
