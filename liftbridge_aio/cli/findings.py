"""How a demo shows what it found: one line for each check, and whether it held."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .console import Console
    from .demo_checks import Check


def print_figures(console: Console, figures: Iterable[tuple[str, str]]) -> None:
    """Show names and their values as a table."""
    from .console import Table  # noqa: PLC0415 (help must not wait for it)

    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in figures:
        table.add_row(name, value)
    console.print()
    console.print(table)
    console.print()


def print_checks(console: Console, checks: Iterable[Check]) -> None:
    """Show checks, each with a sign in front."""
    for check in checks:
        sign = "[bold green]✓[/]" if check.held else "[bold red]✗[/]"
        console.print(sign, end=" ")
        console.print(check.statement, markup=False)  # brackets in texts are brackets
        if check.detail:
            console.print(f"  {check.detail}", style="dim", markup=False)
    console.print()
