"""Tables, figures and checks printed with rich. Imported only by commands that print them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import rich.console
from rich.table import Table

if TYPE_CHECKING:
    from .demo_checks import Check

__all__ = ["Console", "Table", "print_checks", "print_figures", "step_printer"]


class Console(rich.console.Console):
    """A console that raises `BrokenPipeError` for `main` to handle, where rich would exit."""

    def on_broken_pipe(self) -> None:
        """Re-raise the `BrokenPipeError` that rich is handling when it calls this."""
        raise  # noqa: PLE0704 (rich calls this from its except clause)


def step_printer(console: Console) -> Callable[[str], None]:
    """Return a function that prints a line with the seconds since this call in front."""
    started = time.perf_counter()

    def print_step(step: str) -> None:
        console.print(f"[dim]{time.perf_counter() - started:6.2f} s[/]  {step}")

    return print_step


def print_figures(console: Console, figures: Iterable[tuple[str, str]]) -> None:
    """Print names and their values as a table."""
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in figures:
        table.add_row(name, value)
    console.print()
    console.print(table)
    console.print()


def print_checks(console: Console, checks: Iterable[Check]) -> None:
    """Print checks, each with a sign for success or failure."""
    for check in checks:
        sign = "[bold green]✓[/]" if check.held else "[bold red]✗[/]"
        console.print(sign, end=" ")
        console.print(check.statement, markup=False)  # brackets in texts are not markup
        if check.detail:
            console.print(f"  {check.detail}", style="dim", markup=False)
    console.print()
