"""Positions in the log of cursors, and whether one went back. Pure.

Cursors are not fenced: a write that is held up on its way is stored when it arrives, when its
writer has long written more, and nobody can call it back. So a step back is excused if something
held writes up between the beginning of the call and the moment at which it was stored, and only
then.
Readers and members look positions up before they go on; after a change of leaders v1.9.0 may tell
an older one. So theirs are excused also where a leader went down after the higher one was stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from chaos.evidence import FaultRecord
from chaos.plan import Kind

CURSORS_STREAM: Final = "__cursors"
WITNESS: Final = "raw-"
"""Prefix of the keys that the witness stores: through several nodes at once."""
HOLDS_UP: Final = frozenset(
    {
        *(Kind.FREEZE_LEADER, Kind.NATS_RESTART),
        *(Kind.STALL, Kind.SILENT, Kind.THROTTLE, Kind.DELAY),
    }
)
"""Faults in which a write is kept and goes on later, in a node, in NATS or on a link."""
MOVES_LEADERS: Final = frozenset(
    {
        *(Kind.KILL_LEADER, Kind.KILL_FOLLOWER, Kind.KILL_TWO, Kind.KILL_EACH),
        *(Kind.FREEZE_LEADER, Kind.ROLLING_RESTART, Kind.NATS_RESTART, Kind.MOVE_BROKER),
    }
)
"""Faults after which a node may tell an older position. Who leads cursors was not asked for."""


class Stored(NamedTuple):
    """A position in the log."""

    position: int
    time: float
    """When a server took it, by the monotonic clock."""


class StepBack(NamedTuple):
    """A position that was stored behind a higher one."""

    key: str
    stored: Stored
    higher: Stored

    def __str__(self) -> str:
        later = self.stored.time - self.higher.time
        return (
            f"{self.key} was stored as {self.stored.position} after {self.higher.position}, "
            f"{later:.2f} s later"
        )


def steps_back(log: Mapping[str, Iterable[Stored]]) -> list[StepBack]:
    """Positions that are lower than an earlier one of the same cursor, each with that one."""
    found = []
    for key, entries in log.items():
        highest: Stored | None = None
        for stored in entries:
            if highest is not None and stored.position < highest.position:
                found.append(StepBack(key, stored, highest))
            else:
                highest = stored
    return found


def unexcused(
    steps: Iterable[StepBack],
    began: Mapping[str, Mapping[int, float]],
    handed: Mapping[str, Mapping[int, float]],
    faults: Sequence[FaultRecord],
) -> list[StepBack]:
    """Those steps back that the client must have made.

    Args:
        steps: all that were found.
        began: by the key of those cursors that have one writer: when the call began that set a
            position.
        handed: by the key of those that readers or members of the group move: when the first of
            them was handed the message at an offset. It can only be stored after that.
        faults: what happened meanwhile.
    """
    found = []
    for step in steps:
        if step.key.startswith(WITNESS):
            continue
        until = step.stored.time
        if step.key in began:
            since = began[step.key].get(step.stored.position, until)
            excused = _overlaps(faults, HOLDS_UP, since, until)
        else:
            since = handed.get(step.key, {}).get(step.stored.position, until)
            excused = _overlaps(faults, HOLDS_UP, since, until) or _overlaps(
                faults, MOVES_LEADERS, step.higher.time, until, spoiled=True
            )
        if not excused:
            found.append(step)
    return found


def _overlaps(
    faults: Iterable[FaultRecord],
    kinds: frozenset[Kind],
    since: float,
    until: float,
    *,
    spoiled: bool = False,
) -> bool:
    return any(
        (fault.kind in kinds or (spoiled and fault.spoiled))
        and fault.began <= until
        and (not fault.ended or fault.ended >= since)
        for fault in faults
    )
