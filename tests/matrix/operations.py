"""Operations of users, each written down once; the columns of the matrix.

An operation is a coroutine that takes a cell and says how it went, in the words of the table.
Errors of the client are left to the runner, which notes their names.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from matrix.cells import Cell, On


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """A column.

    Attributes:
        name: Its heading.
        table: The table that it is in.
        run: Does it, and says how it went.
        on: What stream it works on.
        midway: Whether it begins before the state arises, and says so by `until_arisen`.
        settings: Fields of `StreamOptions` that its stream needs.
        slow: Whether it is left to the full run.
    """

    name: str
    table: str
    run: Callable[[Cell], Awaitable[str]]
    on: On
    midway: bool = False
    settings: Mapping[str, object] = field(default_factory=dict)
    slow: bool = False


OPERATIONS: Final[dict[str, Operation]] = {}
"""All columns, by their headings."""

_Run = Callable[[Cell], Awaitable[str]]


def operation(
    table: str,
    name: str,
    *,
    on: On = On.OWN,
    midway: bool = False,
    settings: Mapping[str, object] | None = None,
    slow: bool = False,
) -> Callable[[_Run], _Run]:
    """Make a column of a coroutine function."""

    def decorate(run: _Run) -> _Run:
        assert name not in OPERATIONS
        OPERATIONS[name] = Operation(name, table, run, on, midway, settings or {}, slow)
        return run

    return decorate
