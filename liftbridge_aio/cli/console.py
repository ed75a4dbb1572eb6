"""Tables, figures and checks printed with rich. Imported only by commands that print them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import rich.console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

if TYPE_CHECKING:
    from .demo_checks import Check

__all__ = [
    "Console",
    "Table",
    "print_checks",
    "print_figures",
    "show_progress",
    "step_printer",
]

_REFRESHED: Final = 0.25
"""Seconds between two counts of progress."""


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


async def show_progress(count: Callable[[], int], total: int | None) -> None:
    """Show progress on stderr until cancelled: messages, their rate, and the time left.

    Args:
        count: returns how many messages are done.
        total: how many there will be; None: not known.
    """
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:,.0f}/s"),
        TimeElapsedColumn() if total is None else TimeRemainingColumn(),
    )
    # Otherwise rich sends what is written to stdout to its own console, which is stderr.
    bar_only = Progress(
        *columns,
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
    )
    with bar_only as bar:
        task = bar.add_task("", total=total, rate=0.0)
        then, before = time.perf_counter(), 0
        while True:
            await asyncio.sleep(_REFRESHED)
            now, done = time.perf_counter(), count()
            bar.update(task, completed=done, rate=(done - before) / (now - then))
            bar.refresh()
            then, before = now, done
