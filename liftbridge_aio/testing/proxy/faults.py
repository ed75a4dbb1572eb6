"""The words of the fault proxy: directions, kinds of faults, records of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, Flag


class Direction(Flag):
    """Which way bytes go through a proxy."""

    TO_TARGET = 1
    """From clients to the target."""
    TO_CLIENTS = 2
    """From the target to clients."""
    BOTH = 3

    def __str__(self) -> str:
        return (self.name or "nowhere").lower().replace("_", " ")


class FaultKind(Enum):
    """What a proxy can do."""

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
    """Something that a proxy was told to do, or did to one connection.

    Its text is one line for people. Two are equal if they say the same, whenever it happened.
    """

    kind: FaultKind
    """What was done."""
    direction: Direction
    """Which way the bytes went."""
    connection: int | None = None
    """The connection it was done to, counted from 1; None: the order, which is for them all."""
    position: int | None = None
    """The byte it was done at, counted from 0 in this direction of the connection."""
    detail: str = ""
    """More, for people."""
    seconds: float = field(default=0.0, compare=False)
    """When: seconds after the proxy was entered."""

    def __str__(self) -> str:
        who = "ordered" if self.connection is None else f"connection {self.connection}"
        where = "" if self.position is None else f" at byte {self.position}"
        more = f": {self.detail}" if self.detail else ""
        return f"{self.seconds:8.3f} s {who}, {self.direction}, {self.kind.value}{where}{more}"


@dataclass(frozen=True, slots=True)
class ProxyStatistics:
    """What a `FaultProxy` has done so far."""

    connections: int
    """Connections that clients have opened."""
    open_connections: int
    """Those of them that are open now."""
    bytes_to_target: int
    """Bytes forwarded from clients to the target."""
    bytes_to_clients: int
    """Bytes forwarded from the target to clients."""
    swallowed_bytes: int
    """Bytes lost in either direction."""
    held_bytes: int
    """Bytes on their way now, in memory."""
