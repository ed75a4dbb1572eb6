"""Output for a person at the terminal: tables on stdout, progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from .summary import CaseSummary
from .table import columns, remarks, rows

_WIDE: Final = 200
"""Columns where stdout is no terminal: nothing is cut off there."""


class Terminal:
    """Writes tables to stdout and progress to stderr.

    Args:
        quiet: Without tables: stdout is for something else.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        width = None if sys.stdout.isatty() else _WIDE
        self._out = Console(markup=False, emoji=False, highlight=False, width=width, quiet=quiet)
        self._progress = Console(stderr=True, markup=False, emoji=False, highlight=False)

    def tell(self, text: str) -> None:
        """Say how far it has come."""
        self._progress.print(text, style="dim", soft_wrap=True)

    def say(self, text: str) -> None:
        """Write a line of results."""
        self._out.print(text, soft_wrap=True)

    def show_case(self, summary: CaseSummary) -> None:
        """Show what the clients did in a case."""
        self.show_table(summary.case.title, columns(summary), rows(summary))
        for remark in remarks(summary):
            self.say(f"  {remark}")

    def show_table(self, title: str, heads: Sequence[str], cells: Iterable[Sequence[str]]) -> None:
        """Show a table: names on the left, figures on the right."""
        table = Table(title=title, title_justify="left")
        for number, head in enumerate(heads):
            table.add_column(head, justify="right" if number else "left")
        for row in cells:
            table.add_row(*row)
        self._out.print(table)
