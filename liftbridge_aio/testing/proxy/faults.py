"""Directions, kinds and records of faults. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, Flag


class Direction(Flag):
    """The direction of bytes through a proxy."""

    TO_TARGET = 1
    """From clients to the target."""
    TO_CLIENTS = 2
    """From the target to clients."""
    BOTH = 3

    def __str__(self) -> str:
        return (self.name or "nowhere").lower().replace("_", " ")


class FaultKind(Enum):
    """The kind of a fault, or of the end of one."""

    CUT = "cut"
    RESET = "reset"
    REFUSE = "refuse"
    ACCEPT = "accept"
    FREEZE = "freeze"
    THAW = "thaw"
    SWALLOW = "swallow"
    DELAY = "delay"
    THROTTLE = "throttle"
    TRUNCATE = "truncate"
    FLIP = "flip"
    HEAL = "heal"


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """An order to a proxy, or its effect on one connection.

    Its text is one readable line. Equality ignores the time.
    """

    kind: FaultKind
    """The kind of the fault."""
    direction: Direction
    """The direction of the bytes; None for both."""
    connection: int | None = None
    """The affected connection, counted from 1; None for an order to all connections."""
    position: int | None = None
    """The affected byte, counted from 0 in this direction of the connection."""
    detail: str = ""
    """Details as readable text."""
    seconds: float = field(default=0.0, compare=False)
    """Seconds after the proxy was entered."""

    def __str__(self) -> str:
        who = "ordered" if self.connection is None else f"connection {self.connection}"
        where = "" if self.position is None else f" at byte {self.position}"
        more = f": {self.detail}" if self.detail else ""
        return f"{self.seconds:8.3f} s {who}, {self.direction}, {self.kind.value}{where}{more}"


@dataclass(frozen=True, slots=True)
class ProxyStatistics:
    """The counters of a `FaultProxy`."""

    connections: int
    """Connections opened by clients."""
    open_connections: int
    """Connections open now."""
    bytes_to_target: int
    """Bytes forwarded from clients to the target."""
    bytes_to_clients: int
    """Bytes forwarded from the target to clients."""
    swallowed_bytes: int
    """Bytes discarded in either direction."""
    held_bytes: int
    """Bytes in transit, held in memory."""
