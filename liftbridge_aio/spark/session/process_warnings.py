"""Show warnings of this package in Spark's processes, which do not configure logging.

They are written to stderr, and so to the log of the driver or executor, with a time and the name of
the logger, by which they are found there.
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


class _UnhandledWarnings(logging.Handler):
    """Writes warnings to stderr that no other handler receives."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter(_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record if it has no other handler, as Python's handler of last resort does."""
        if not any(_is_configured(handler) for handler in _handlers(record.name)):
            print(self.format(record), file=sys.stderr, flush=True)  # noqa: T201 - stderr is the log


def write_unhandled_warnings() -> None:
    """Write warnings to stderr where logging is not configured. May be called again."""
    logger = logging.getLogger(LOGGER)
    if not any(isinstance(handler, _UnhandledWarnings) for handler in logger.handlers):
        logger.addHandler(_UnhandledWarnings())


class WarningsInLog:
    """Finds the warnings of this package in a log of Spark, each text once.

    Args:
        log: the file; it may not exist yet.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._place = 0
        self._seen: set[str] = set()

    def new(self) -> list[str]:
        """Return the new texts since the last call."""
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
        found = [text for text in dict.fromkeys(texts) if text not in self._seen]
        self._seen.update(found)
        return found


def _handlers(name: str) -> Iterator[logging.Handler]:
    """Yield the handlers that receive records of a logger."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        yield from logger.handlers
        logger = logger.parent if logger.propagate else None


def _is_configured(handler: logging.Handler) -> bool:
    return not isinstance(handler, _UnhandledWarnings)
