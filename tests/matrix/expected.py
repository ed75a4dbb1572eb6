"""The expected outcome of each cell, read from the tables of `expected.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TABLES: Final = Path(__file__).with_name("expected.md")
PATIENCE: Final = 20.0
"""Seconds more than the table says, as machines are busy."""

_LIMIT: Final = re.compile(r" \((\d+) s\)$")
_SENSELESS: Final = re.compile(r"^n/a (\d+)$")


class BadTable(Exception):
    """The tables cannot be read; the text says why."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected outcome of a cell.

    Attributes:
        texts: How it may go, in the words of the operation.
        seconds: Within which time, on an idle machine.
    """

    texts: tuple[str, ...]
    seconds: float

    @property
    def deadline(self) -> float:
        """Seconds after which it has failed on any machine."""
        return self.seconds + PATIENCE

    def __str__(self) -> str:
        return f"{' or '.join(self.texts)} within {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of one table.

    Attributes:
        seconds: Within which time what is in it is to come, unless a cell says otherwise.
        cells: Its cells as they are written, by the headings of their columns.
    """

    seconds: float
    cells: dict[str, str]


@dataclass(frozen=True, slots=True)
class Tables:
    """All tables.

    Attributes:
        rows: Rows by the name of their table and that of their state.
        reasons: Why cells make no sense, by number.
    """

    rows: dict[tuple[str, str], Row]
    reasons: dict[str, str]

    def expected(self, table: str, state: str, operation: str, kind: str) -> Expected | None:
        """Look up a cell.

        Args:
            table: The table of the operation.
            state: The row.
            operation: The column.
            kind: The server: where a cell has an outcome for it, that counts.

        Returns:
            What is to come of it; None where the cell makes no sense.

        Raises:
            BadTable: There is no such cell, or it makes no sense and no reason is given.
        """
        row = self.rows.get((table, state))
        if row is None or operation not in row.cells:
            raise BadTable(
                f"{TABLES.name} has no cell for {state!r} / {operation!r} under {table!r}"
            )
        general, *special = row.cells[operation].split("; ")
        by_kind = dict(one.split(": ", 1) for one in special)
        text = by_kind.get(kind, general)
        senseless = _SENSELESS.match(text)
        if senseless:
            if senseless[1] not in self.reasons:
                raise BadTable(f"{state!r} / {operation!r}: there is no reason {senseless[1]}")
            return None
        limit = _LIMIT.search(text)
        seconds = float(limit[1]) if limit else row.seconds
        return Expected(tuple(_LIMIT.sub("", text).split(" or ")), seconds)


def read_tables(text: str) -> Tables:
    """Read the tables of a page: each stands below a heading that names it."""
    rows: dict[tuple[str, str], Row] = {}
    reasons: dict[str, str] = {}
    heading, columns = "", list[str]()
    for line in text.splitlines():
        if line.startswith("## "):
            heading, columns = line.removeprefix("## "), []
        elif line.startswith("| "):
            first, *cells = _cells(line)
            if not columns:
                columns = cells[1:]
            elif len(cells) != len(columns) + 1:
                raise BadTable(
                    f"{heading}, {first}: {len(cells)} cells under {len(columns) + 1} columns"
                )
            else:
                seconds = float(cells[0].removesuffix(" s"))
                named = dict(zip(columns, cells[1:], strict=True))
                rows[heading, first] = Row(seconds, named)
        elif match := re.match(r"(\d+)\. (.+)", line):
            reasons[match[1]] = match[2]
    return Tables(rows, reasons)


def _cells(line: str) -> Iterator[str]:
    return (cell.strip() for cell in line.strip().strip("|").split("|"))
