"""Replace files and delete folders atomically: a crash leaves all of the old, or all of the new."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

TEMPORARY_SUFFIX: Final = ".tmp"
"""Suffix of files that are not complete; those found at a start can be removed."""


def temporary(path: Path) -> Path:
    """Return the path at which a replacement of `path` is written."""
    return path.with_name(path.name + TEMPORARY_SUFFIX)


def write_temporary(path: Path, parts: Iterable[bytes]) -> Path:
    """Write a replacement of `path`, synced to the disk, and return its temporary path.

    Without the sync, a failure of the machine could leave an empty file in the place of the old.

    Args:
        path: the file to be replaced.
        parts: the contents.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    written = temporary(path)
    try:
        with written.open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        written.unlink(missing_ok=True)
        raise
    return written


def replace_file(path: Path, parts: Iterable[bytes]) -> None:
    """Create or replace `path`, with contents that are synced to the disk.

    Raises:
        OSError: it cannot be written; `path` is unchanged.
    """
    written = write_temporary(path, parts)
    try:
        written.replace(path)
    except BaseException:
        written.unlink(missing_ok=True)
        raise


DELETED_SUFFIX: Final = ".deleted"
"""Suffix of folders that are being deleted."""


def delete_folder(folder: Path) -> None:
    """Delete a folder, if it exists.

    Raises:
        OSError: it cannot be renamed, or something in it cannot be removed.
    """
    deleted = folder.with_name(folder.name + DELETED_SUFFIX)
    if deleted.exists():
        shutil.rmtree(deleted)
    if folder.exists():
        folder.rename(deleted)
        shutil.rmtree(deleted)


def finish_deletions(parent: Path) -> None:
    """Finish the deletions of an earlier process in a folder.

    Raises:
        OSError: something cannot be removed.
    """
    for left in list(parent.glob(f"*{DELETED_SUFFIX}")):
        shutil.rmtree(left)
