"""Figures by kind of fault: what was sent, and what went wrong, while each of them lasted. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from chaos.evidence import Evidence, FaultRecord
from chaos.journal import Finding, sent_at
from chaos.plan import Kind
from liftbridge_aio.testing import Defect, DefectKind, Event, EventKind

PEACE: Final = "before the first fault"


@dataclass(slots=True)
class Row:
    """Fates of the messages that were sent while a kind of fault lasted."""

    name: str
    faults: int = 0
    spoiled: int = 0
    """Faults that the servers spoiled: they show nothing, and are not counted as faults."""
    sent: int = 0
    acked: int = 0
    unknown: int = 0
    refused: int = 0
    lost: int = 0
    repeated: int = 0
    reordered: int = 0
    invented: int = 0
    stall: float = 0.0
    recoveries: list[float] = field(default_factory=list)


class Windows:
    """The time of a run, cut where faults begin: what is sent later belongs to the latest fault.

    What the servers spoiled ends with the fault and its healing.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._begins = [fault.began for fault in evidence.faults]
        self._rows: dict[str, Row] = {}
        for fault in evidence.faults:
            row = self._row(fault.kind.value)
            if fault.spoiled:
                row.spoiled += 1
            else:
                row.faults += 1
                row.recoveries += [recovery.seconds for recovery in fault.recoveries]
                row.stall = max(row.stall, self._stall(fault)[0])

    def _row(self, name: str) -> Row:
        return self._rows.setdefault(name, Row(name))

    def _row_at(self, moment: float | None) -> Row:
        at = -1 if moment is None else bisect_right(self._begins, moment) - 1
        return self._row(self._evidence.faults[at].kind.value if at >= 0 else PEACE)

    def _stall(self, fault: FaultRecord) -> tuple[float, str]:
        """The longest stall while a fault lasted, and of what."""
        until = fault.ended or self._evidence.ended
        gaps = (
            (lane.longest_gap(fault.began, until), lane.name)
            for lane in self._evidence.lanes.values()
        )
        return max(gaps, default=(0.0, "nothing"))

    def excuses(self, finding: Finding) -> bool:
        """True if the servers were to blame for what was found."""
        at = bisect_right(self._begins, finding.time) - 1
        if at < 0 or not finding.excusable:
            return False
        fault = self._evidence.faults[at]
        return bool(fault.spoiled) and finding.time <= (fault.ended or self._evidence.ended)

    def count_sends(self, events: Iterable[Event]) -> None:
        """Count what was sent and how it ended, by when it was sent."""
        for event in events:
            row = self._row_at(sent_at(event.value) or event.time)
            match event.kind:
                case EventKind.SENT:
                    row.sent += 1
                case EventKind.ACKED:
                    row.acked += 1
                case EventKind.UNKNOWN:
                    row.unknown += 1
                case EventKind.REFUSED:
                    row.refused += 1
                case _:
                    pass

    def count_defect(self, defect: Defect) -> None:
        """Count a defect of a message, by when it was sent."""
        row = self._row_at(sent_at(defect.value))
        if defect.kind is not DefectKind.UNFOUNDED:
            setattr(row, defect.kind.value, getattr(row, defect.kind.value) + 1)

    def rows(self) -> list[Row]:
        """The rows, in the order of `Kind`."""
        order = [PEACE, *(kind.value for kind in Kind)]
        return sorted(self._rows.values(), key=lambda row: order.index(row.name))

    def total(self) -> Row:
        """All rows as one."""
        total = Row("all")
        for row in self._rows.values():
            for name in (
                *("faults", "spoiled", "sent", "acked", "unknown", "refused"),
                *("lost", "repeated", "reordered", "invented"),
            ):
                setattr(total, name, getattr(total, name) + getattr(row, name))
            total.stall = max(total.stall, row.stall)
            total.recoveries += row.recoveries
        return total

    def bad_recoveries(self, bound: float) -> list[str]:
        """Recoveries that took too long or were never measured, in words."""
        counted = [fault for fault in self._evidence.faults if not fault.spoiled]
        return [
            f"nobody measured how clients recovered from fault {fault.number} ({fault.kind.value})"
            for fault in counted
            if not fault.recoveries
        ] + [
            f"after fault {fault.number} ({fault.kind.value}: {fault.detail}) clients took "
            f"{recovery} to work again"
            for fault in counted
            for recovery in fault.recoveries
            if recovery.seconds > bound
        ]

    def timeline(self) -> list[str]:
        """The faults, a line each."""
        return [self._line(fault) for fault in self._evidence.faults]

    def _line(self, fault: FaultRecord) -> str:
        began = fault.began - self._evidence.began
        stall, of = self._stall(fault)
        line = (
            f"{began:8.2f} s  {fault.number:3}. {fault.kind.value}: {fault.detail}; "
            f"whole after {fault.ended - fault.began:.1f} s, recovered in "
            f"{', '.join(map(str, fault.recoveries)) or '-'}, longest stall {stall:.1f} s ({of})"
        )
        return f"{line} (does not count: {fault.spoiled})" if fault.spoiled else line


def percentile(values: Sequence[float], part: float) -> float:
    """The smallest value that this part of all values does not exceed; 0.0 of none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]
