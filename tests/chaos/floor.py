"""Minimum of a run, without which it shows nothing. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from chaos.evidence import Evidence
from chaos.windows import Row
from liftbridge_aio.testing import EventKind


@dataclass(frozen=True, slots=True)
class Floor:
    """Number of faults and of kinds; those that the servers spoiled are not among them."""

    faults: int = 1
    kinds: int = 1

    def lacking(self, rows: list[Row]) -> list[str]:
        """Return everything there is too little of, in words."""
        faults = sum(row.faults for row in rows)
        kinds = sum(1 for row in rows if row.faults)
        found = []
        if faults < self.faults:
            found.append(f"{faults} faults are less than {self.faults}")
        if kinds < self.kinds:
            found.append(f"{kinds} kinds of faults are less than {self.kinds}")
        return found


def floor_of(minutes: float) -> Floor:
    """Return the minimum of so long a run: six faults a minute, five if short, of eight kinds."""
    if minutes < 3:
        return Floor()
    return Floor(int(minutes * (6 if minutes >= 5 else 5)), 8)


def silent_parts(evidence: Evidence) -> list[str]:
    """Return who sent or received nothing at all, in words."""
    found = [
        f"nothing was acked of {stream}"
        for stream in (*evidence.streams_all, *evidence.streams_leader)
        if not any(
            event.kind is EventKind.ACKED and event.value.startswith(b"p:")
            for event in evidence.journal.sends[stream].events
        )
    ]
    given = {
        (stream, event.partition, reader.partition(" again")[0])
        for (stream, reader), events in evidence.journal.readings.items()
        for event in events
        if event.kind is EventKind.DELIVERED
    }
    found += [
        f"{reader} was given nothing of {stream}/{partition}"
        for stream, partition, reader in sorted(set(evidence.readers) - given)
    ]
    members = {(stream, partition) for stream, partition, by in given if by in evidence.groups}
    found += [
        f"the group was given nothing of {stream}/{partition}"
        for stream, partition in sorted(set(evidence.grouped) - members)
    ]
    return found
