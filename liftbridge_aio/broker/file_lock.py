"""A lock on a file that the system takes back when its holder ends, however that happens."""

from __future__ import annotations

import os
import sys
from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class FileLocked(OSError):
    """Somebody else holds the lock."""


class FileLock:
    """Held from its making until `release`, or the end of the process."""

    def __init__(self, path: Path) -> None:
        """Take the lock.

        Args:
            path: the file; made if it does not exist, and left when the lock is released.

        Raises:
            FileLocked: somebody else holds it, in this process or another.
            OSError: the file cannot be made.
        """
        self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock(self._descriptor)
        except OSError as error:
            self.release()
            if isinstance(error, BlockingIOError | PermissionError):
                text = f"{path} is locked"
                raise FileLocked(text) from error
            raise

    def release(self) -> None:
        """Give the lock back; may be called again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
