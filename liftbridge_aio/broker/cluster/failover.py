"""Counts reports of dead leaders and coordinators until a failover is due.

Leaders of partitions are reported by their followers, coordinators of groups by the members. Pure:
the time comes in as an argument, in nanoseconds of any one clock.
"""

from __future__ import annotations

from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

TargetT = TypeVar("TargetT")


class _Reports:
    def __init__(self) -> None:
        self.witnesses: set[str] = set()
        self.deadline: int | None = None


class FailoverReports(Generic[TargetT]):
    """Reports about leaders, as the metadata leader counts them.

    As on a real server, a failover does not reset its witnesses: with them, a single report can
    depose the next leader.
    """

    def __init__(self, timeout: int) -> None:
        """Create an empty collection of reports.

        Args:
            timeout: nanoseconds after the latest report until all are dropped, unless they
                reached the quorum (`groups.coordinator.timeout`,
                `clustering.replica.max.leader.timeout`).
        """
        self._timeout = timeout
        self._reports: WeakKeyDictionary[TargetT, _Reports] = WeakKeyDictionary()

    def add(self, target: TargetT, witness: str, quorum: int, now: int) -> bool:
        """Count a report.

        Args:
            target: the partition or group whose leader is reported, compared by identity.
            witness: the id of the reporter, which counts once.
            quorum: the number of witnesses that must be exceeded, see `partition_quorum` and
                `group_quorum`.
            now: the time.

        Returns:
            True if another leader must be chosen.
        """
        reports = self._reports.get(target)
        if reports is None or (reports.deadline is not None and reports.deadline <= now):
            reports = self._reports[target] = _Reports()
        reports.witnesses.add(witness)
        is_enough = len(reports.witnesses) > quorum
        reports.deadline = None if is_enough else now + self._timeout
        return is_enough

    def clear(self) -> None:
        """Drop all reports, as when another node leads the metadata."""
        self._reports.clear()


def partition_quorum(in_sync: int) -> int:
    """Return the number of reports to exceed, given the in-sync replicas with the leader."""
    return (in_sync - 1) // 2


def group_quorum(members: int) -> int:
    """Return the number of reports to exceed, given the number of members."""
    return members // 2
