"""Exclusive locks on files, which the operating system releases when the process ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class FileLocked(OSError):
    """The lock is held by somebody else."""


class FileLock:
    """An exclusive lock, held from construction until `release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        """Take the lock without waiting.

        Args:
            path: the lock file; created if it does not exist, and never deleted.

        Raises:
            FileLocked: the lock is held, by this process or another.
            OSError: the file cannot be created.
        """
        self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock(self._descriptor)
        except OSError as error:
            self.release()
            if isinstance(error, BlockingIOError | PermissionError):
                raise FileLocked(f"{path} is locked") from error
            raise

    def release(self) -> None:
        """Release the lock; may be called again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
