"""What a run of the scenario left behind, whether that is right, and a table of it. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

KILLS: Final = ("leader", "worker", "driver") * 2
"""What is killed in each wave of orders."""


class Line(NamedTuple):
    """A line of the table."""

    what: str
    expected: str
    found: str
    held: bool


@dataclass(slots=True)
class Found:
    """What was found in the streams and files, by the ids of orders."""

    count: int
    """Orders that were published."""
    planned: tuple[str, ...] = KILLS
    """What is to be killed."""
    orders: Counter[str] = field(default_factory=Counter)
    invoices: Counter[str] = field(default_factory=Counter)
    plain_invoices: Counter[str] = field(default_factory=Counter)
    archived: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    """The totals by shop and window."""
    totalled: int = 0
    """The sales in all totals."""
    followed_as_stored: bool = False
    group_got_all: bool = False
    cursor_steps_back: int = 0
    tasks_left: int = 0
    descriptors_left: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def lines(self) -> list[Line]:
        """The lines of the table, in the order of the data's way."""
        count = f"{self.count:,}"
        planned = Counter(self.planned)
        return [
            Line("kill -9", _listed(planned), _listed(self.kills), self.kills == planned),
            self._each_once("orders", self.orders),
            self._each_once("invoices", self.invoices),
            self._each_once("archived invoices", self.archived),
            Line("sales in totals", count, f"{self.totalled:,}", self.totalled == self.count),
            Line("totals", "each once", *_repeats(self.totals)),
            Line("subscriber of totals", "as stored", *_told(self.followed_as_stored)),
            Line("group that reads totals", "all of them", *_told(self.group_got_all)),
            _none("cursors that stepped back", self.cursor_steps_back),
            _none("tasks left", self.tasks_left),
            _none("descriptors left", self.descriptors_left),
            Line(
                "invoices with plain delivery",
                "repeats, none missing",
                _counted(self.plain_invoices),
                len(self.plain_invoices) == self.count < self.plain_invoices.total(),
            ),
        ]

    @property
    def held(self) -> bool:
        """True if everything is as it must be."""
        return all(line.held for line in self.lines)

    def table(self) -> str:
        """Return the lines as a table in Markdown."""
        rows = [(line.what, line.expected, line.found, _sign(line)) for line in self.lines]
        heads = ("What", "Expected", "Found", "")
        cells = [heads, ("---",) * len(heads), *rows]
        return "\n".join(f"| {' | '.join(row)} |" for row in cells)

    def _each_once(self, what: str, ids: Counter[str]) -> Line:
        held = len(ids) == ids.total() == self.count
        return Line(what, f"{self.count:,} once each", _counted(ids), held)


def _listed(kills: Counter[str]) -> str:
    return ", ".join(f"{name} {kills[name]}" for name in KILLS[:3])


def _counted(ids: Counter[str]) -> str:
    return f"{len(ids):,}, {ids.total() - len(ids):,} repeats"


def _repeats(totals: Counter[str]) -> tuple[str, bool]:
    return _counted(totals), bool(totals) and totals.total() == len(totals)


def _told(held: bool) -> tuple[str, bool]:
    return "yes" if held else "no", held


def _none(what: str, number: int) -> Line:
    return Line(what, "0", str(number), not number)


def _sign(line: Line) -> str:
    return "✓" if line.held else "✗"
