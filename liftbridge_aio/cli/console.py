"""What rich prints; imported only by commands that print it."""

from __future__ import annotations

import rich.console
from rich.table import Table

__all__ = ["Console", "Table"]


class Console(rich.console.Console):
    """A console that leaves it to `main` to end where nobody reads any more."""

    def on_broken_pipe(self) -> None:
        """Let the `BrokenPipeError` through, which rich is handling when it calls this."""
        raise  # noqa: PLE0704 (rich calls this from its except clause)
