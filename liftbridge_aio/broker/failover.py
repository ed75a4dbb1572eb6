"""When a leader counts as dead: enough witnesses have said so in time.

Serves for leaders of partitions, reported by their followers, and for coordinators of groups,
reported by the members. Pure: the time comes in as an argument, in nanoseconds of any one clock.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


class _Case:
    def __init__(self) -> None:
        self.witnesses: set[str] = set()
        self.deadline: int | None = None


class Reports(Generic[KeyT]):
    """Reports of dead leaders, as the leader of the metadata counts them.

    A real server has one count for each partition and group, whoever leads it, and does not forget
    the witnesses when they were enough: the next leader falls by a single report.
    """

    def __init__(self, timeout: int) -> None:
        """Begin without reports.

        Args:
            timeout: nanoseconds after the latest report until all are forgotten, unless they were
                enough (`groups.coordinator.timeout`, `clustering.replica.max.leader.timeout`).
        """
        self._timeout = timeout
        self._cases: dict[KeyT, _Case] = {}

    def add(self, key: KeyT, witness: str, quorum: int, now: int) -> bool:
        """Count a report.

        Args:
            key: what has the leader that is reported.
            witness: who reports; counts once.
            quorum: how many witnesses are not yet enough: half of a group's members, or of a
                partition's followers in sync, rounded down.
            now: the time.

        Returns:
            Whether another leader is to be chosen.
        """
        case = self._cases.get(key)
        if case is None or (case.deadline is not None and case.deadline <= now):
            case = self._cases[key] = _Case()
        case.witnesses.add(witness)
        is_enough = len(case.witnesses) > quorum
        case.deadline = None if is_enough else now + self._timeout
        return is_enough

    def forget(self, key: KeyT) -> None:
        """Forget all reports about one leader, as when what it leads is gone."""
        self._cases.pop(key, None)
