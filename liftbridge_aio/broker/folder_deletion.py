"""Folders that are deleted as a whole: at any moment there is all of one or nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

DELETED_SUFFIX: Final = ".deleted"
"""How a folder is called while what is in it is being removed."""


def delete_folder(folder: Path) -> None:
    """Delete a folder, whether it exists or not.

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
    """Remove what is left of folders that were being deleted when a process ended.

    Args:
        parent: the folder in which they stood.

    Raises:
        OSError: something cannot be removed.
    """
    for left in list(parent.glob(f"*{DELETED_SUFFIX}")):
        shutil.rmtree(left)
