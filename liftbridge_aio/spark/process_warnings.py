"""Warnings of this room in the processes that Spark starts, in which nobody sets up logging.

They go to stderr, and so to the log of the driver or of the executor. Without this they would go
nowhere, as the logger of the package is silent until a program sets up logging.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

LOGGER: Final = "liftbridge_aio.spark"
_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_MARK: Final = f" WARNING {LOGGER}: "


class _Unheard(logging.Handler):
    """Writes to stderr what no other handler gets."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter(_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, as Python does for loggers of which nobody has heard."""
        if not any(_listens(handler) for handler in _handlers(record.name)):
            print(self.format(record), file=sys.stderr, flush=True)  # noqa: T201 - that is the log


def tell_unheard_warnings() -> None:
    """Have warnings written to stderr where logging is not set up. May be called again."""
    logger = logging.getLogger(LOGGER)
    if not any(isinstance(handler, _Unheard) for handler in logger.handlers):
        logger.addHandler(_Unheard())


class WarningsInLog:
    """Finds the warnings in a log of Spark, each text once.

    Args:
        log: the file; it need not be there yet.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._place = 0
        self._told: set[str] = set()

    def new(self) -> list[str]:
        """Return the texts that came since the last call."""
        if not self._log.exists():
            return []
        with self._log.open("rb") as log:
            log.seek(self._place)
            lines, _, rest = log.read().rpartition(b"\n")
            self._place = log.tell() - len(rest)
        texts = [
            text
            for line in lines.decode(errors="replace").splitlines()
            if (text := line.partition(_MARK)[2])
        ]
        found = [text for text in dict.fromkeys(texts) if text not in self._told]
        self._told.update(found)
        return found


def _handlers(name: str) -> Iterator[logging.Handler]:
    """The handlers that get a record of this logger."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        yield from logger.handlers
        logger = logger.parent if logger.propagate else None


def _listens(handler: logging.Handler) -> bool:
    return not isinstance(handler, (_Unheard, logging.NullHandler))
