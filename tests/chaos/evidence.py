"""Evidence that a run has gathered, as it is judged. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from chaos.journal import Finding, Journal
from chaos.lanes import Lane
from chaos.plan import Kind

Log = Mapping[tuple[str, int], Mapping[bytes, int]]
"""By stream and partition: the offset of each value that is in the end in the servers' log."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """Seconds from the witness's ack until clients worked again in everything."""

    seconds: float
    last: str
    """The last thing to work again."""

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s ({self.last})"


@dataclass(slots=True)
class FaultRecord:
    """One fault as it happened. Times are those of the monotonic clock."""

    number: int
    kind: Kind
    began: float
    detail: str = ""
    ended: float = 0.0
    """When everything was whole again and the next one could begin."""
    recoveries: list[Recovery] = field(default_factory=list)
    """Each time that was measured."""
    story: list[str] = field(default_factory=list)
    """Of a recovery that took long: what clients told meanwhile, by time from that ack."""
    spoiled: str = ""
    """Why nothing of it counts against the client: what the servers themselves did."""


@dataclass(slots=True)
class Evidence:
    """All that a run has seen."""

    seed: int
    began: float
    ended: float
    faults: list[FaultRecord]
    journal: Journal
    lanes: Mapping[str, Lane]
    log: Log
    streams_all: Collection[str]
    """Streams whose messages are all published with ack ALL: nothing of them may be lost."""
    streams_leader: Collection[str]
    groups: Mapping[str, str]
    """The group of each member."""
    findings: list[Finding]
    """Faults of clients: overdue calls, untyped errors, leftovers."""
    servers: list[str]
    """Faults of the servers themselves, in words."""
    extra: dict[str, Any]
    """More figures."""
    readers: Collection[tuple[str, int, str]] = ()
    """Readers that must have read everything: stream, partition and name."""
    grouped: Collection[tuple[str, int]] = ()
    """The partitions that members of the group must have read."""
