"""What came of a run, as a table for people and as JSON. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

from liftbridge_aio.testing import Event, EventKind

PEACE: Final = "before the first fault"
COLUMNS: Final = (
    *("fault", "count", "sent", "acked", "unknown", "not sent"),
    *("recovery p50", "p99", "max"),
)
OUTCOMES: Final = (EventKind.SENT, EventKind.ACKED, EventKind.UNKNOWN, EventKind.REFUSED)


class Recovery(NamedTuple):
    """Seconds from the witness's acks until programs worked again."""

    seconds: float
    last: str
    """The last program to work again."""

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s ({self.last})"


@dataclass(slots=True)
class FaultRecord:
    """One fault as it happened. Times are those of the monotonic clock."""

    number: int
    kind: str
    began: float
    ended: float = 0.0
    """When everything was whole again and the next one could begin."""
    recoveries: list[Recovery] = field(default_factory=list)
    """Each time that was measured."""
    is_spoiled: bool = False
    """True if nothing of it counts against clients, as the servers failed by themselves."""

    def __str__(self) -> str:
        recovered = ", ".join(map(str, self.recoveries)) or "-"
        spoiled = " (the servers failed by themselves)" if self.is_spoiled else ""
        return f"{self.number:3}. {self.kind}: recovered in {recovered}{spoiled}"


@dataclass(slots=True)
class Verdict:
    """What a run tells.

    Attributes:
        seed: of its plan.
        began: when, by the monotonic clock.
        ended: when.
        faults: those that were inflicted.
        events: of the orders.
        recovered: for each program: the seconds after the last fault until it lacked nothing.
        failures: what did not hold.
        servers: what the servers did, which does not count.
        story: tracebacks.
    """

    seed: int
    began: float
    ended: float = 0.0
    faults: list[FaultRecord] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    recovered: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    servers: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)

    @property
    def counted(self) -> list[FaultRecord]:
        """The faults that the servers did not spoil."""
        return [each for each in self.faults if not each.is_spoiled]

    @property
    def kinds(self) -> set[str]:
        """The kinds of these."""
        return {each.kind for each in self.counted}

    def judge(self, recovery_bound: float, of_processes: Collection[str] = ()) -> None:
        """Demand that recoveries were measured, and took no longer than they may.

        Args:
            recovery_bound: seconds.
            of_processes: faults that have another bound.
        """
        for fault in self.counted:
            slow = [each for each in fault.recoveries if each.seconds > recovery_bound]
            if fault.ended and not fault.recoveries:
                self.failures.append(f"nobody measured how programs recovered: {fault}")
            elif slow and fault.kind not in of_processes:
                self.failures.append(f"programs took long to work again: {fault}")

    def rows(self) -> list[list[str]]:
        """The table: a row for each kind of fault."""
        counts = self._counts()
        kinds = [PEACE, *dict.fromkeys(each.kind for each in self.faults)]
        rows = [self._row(kind, counts[kind], [kind]) for kind in kinds]
        total = Counter[EventKind]()
        for each in counts.values():
            total.update(each)
        return [*rows, self._row("all", total, kinds)]

    def _counts(self) -> dict[str, Counter[EventKind]]:
        """Return how orders ended, by the latest fault before they were sent."""
        begins = [fault.began for fault in self.faults]
        sent_in: dict[bytes, str] = {}
        counts = {kind: Counter[EventKind]() for kind in (PEACE, *(f.kind for f in self.faults))}
        for event in self.events:
            if event.kind is EventKind.SENT:
                at = bisect_right(begins, event.time)
                sent_in[event.value] = self.faults[at - 1].kind if at else PEACE
            if event.kind in OUTCOMES:
                counts[sent_in[event.value]][event.kind] += 1
        return counts

    def _row(self, name: str, counts: Counter[EventKind], kinds: Collection[str]) -> list[str]:
        faults = [each for each in self.counted if each.kind in kinds]
        seconds = [recovery.seconds for each in faults for recovery in each.recoveries]
        return [
            *(name, f"{len(faults) or '-'}"),
            *(f"{counts[outcome]:,}" for outcome in OUTCOMES),
            *(f"{percentile(seconds, part):.2f} s" if seconds else "-" for part in (0.5, 0.99, 1)),
        ]

    def text(self) -> str:
        """Everything that is printed at the end of a run."""
        recovered = ", ".join(f"{name} {after:.1f} s" for name, after in self.recovered.items())
        faults = f"{len(self.counted)} faults of {len(self.kinds)} kinds"
        lines = [
            f"Chaos of {self.ended - self.began:.0f} s, seed {self.seed}: {faults}",
            "",
            markdown([list(COLUMNS), *self.rows()]),
            "",
            f"After the last fault everything was done in: {recovered}",
        ]
        if self.servers:
            lines += ["", "What the servers did, which does not count:", *self.servers]
        if not self.failures:
            return "\n".join([*lines, "", "Everything held."])
        timeline = [f"{each.began - self.began:8.2f} s {each}" for each in self.faults]
        lines += ["", f"BROKEN, seed {self.seed}:", *self.failures[:40], "", *timeline, *self.story]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        figures = {name: value for name, value in asdict(self).items() if name != "events"}
        return {"ok": not self.failures, "table": [list(COLUMNS), *self.rows()], **figures}


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return a table, whose first row is its head, as it can stand in a page."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    head, *rest = (
        " | ".join(
            f"{cell:{'>' if at else '<'}{width}}"
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    rule = " | ".join("-" * (width - bool(at)) + ":" * bool(at) for at, width in enumerate(widths))
    return "\n".join(f"| {line} |" for line in (head, rule, *rest))


def percentile(values: Sequence[float], part: float) -> float:
    """The smallest value that this part of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]
