"""Tables and figures printed with rich. Imported only by commands that print them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

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

__all__ = [
    "Console",
    "Table",
    "print_figures",
    "show_progress",
]

_REFRESHED: Final = 0.25
"""Seconds between two counts of progress."""


class Console(rich.console.Console):
    """A console that raises `BrokenPipeError` for `main` to handle, where rich would exit."""

    def on_broken_pipe(self) -> None:
        """Re-raise the `BrokenPipeError` that rich is handling when it calls this."""
        raise  # noqa: PLE0704 (rich calls this from its except clause)


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
