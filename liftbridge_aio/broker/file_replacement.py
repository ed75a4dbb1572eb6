"""Files that are replaced as a whole: at any moment there is the old one or the new one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

TEMPORARY_SUFFIX: Final = ".tmp"
"""How files are called until they are whole; one that is found at a start may be removed."""


def temporary(path: Path) -> Path:
    """Return under which name a file is written before it takes the place of `path`."""
    return path.with_name(path.name + TEMPORARY_SUFFIX)


def write_temporary(path: Path, parts: Iterable[bytes], *, synced: bool = False) -> Path:
    """Write what is to take the place of `path`, and return where it is until then.

    Args:
        path: what will be replaced.
        parts: the contents.
        synced: have the contents reach the disk, so that they outlive the machine as well.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    written = temporary(path)
    try:
        with written.open("wb") as file:
            for part in parts:
                file.write(part)
            if synced:
                file.flush()
                os.fsync(file.fileno())
    except BaseException:
        written.unlink(missing_ok=True)
        raise
    return written


def replace_file(path: Path, parts: Iterable[bytes], *, synced: bool = False) -> None:
    """Put a file in the place of `path`, whether that exists or not.

    Raises:
        OSError: it cannot be; `path` is as it was.
    """
    written = write_temporary(path, parts, synced=synced)
    try:
        written.replace(path)
    except BaseException:
        written.unlink(missing_ok=True)
        raise
