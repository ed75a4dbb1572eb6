"""Reads and writes files in place, with a limited number of them open.

A broker may have many thousand segments; a process may open far fewer files.
"""

from __future__ import annotations

import os
import sys
from typing import Final

MAX_OPEN: Final = 128
"""Files open at once; half of the default limit on macOS."""

_FLAGS: Final = os.O_RDWR | getattr(os, "O_BINARY", 0)

if sys.platform == "win32":

    def _read_at(descriptor: int, length: int, position: int) -> bytes:
        os.lseek(descriptor, position, os.SEEK_SET)
        return os.read(descriptor, length)

    def _write_at(descriptor: int, data: bytes | memoryview, position: int) -> int:
        os.lseek(descriptor, position, os.SEEK_SET)
        return os.write(descriptor, data)

else:
    _read_at = os.pread
    _write_at = os.pwrite


class OpenFiles:
    """Opens files on demand and closes the least recently used ones."""

    def __init__(self, limit: int = MAX_OPEN) -> None:
        """Create a pool without open files.

        Args:
            limit: the maximum of open files.
        """
        self._limit = limit
        self._descriptors: dict[str, int] = {}  # least recently used first

    def read(self, path: str, length: int, position: int) -> bytes:
        """Return `length` bytes from `position` on, fewer only where the file ends.

        Raises:
            OSError: the file cannot be read.
        """
        descriptor = self._descriptor(path)
        data = _read_at(descriptor, length, position)
        while len(data) < length:
            more = _read_at(descriptor, length - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def write(self, path: str, data: bytes, position: int) -> None:
        """Write `data` at `position`, in one system call unless that is partial.

        Raises:
            OSError: not everything was written; the file is truncated to `position`.
        """
        descriptor = self._descriptor(path)
        try:
            written = _write_at(descriptor, data, position)
            while written < len(data):  # the next call continues or raises the reason
                written += _write_at(descriptor, memoryview(data)[written:], position + written)
        except OSError:
            os.ftruncate(descriptor, position)
            raise

    def truncate(self, path: str, size: int) -> None:
        """Truncate a file.

        Raises:
            OSError: it cannot be truncated.
        """
        os.ftruncate(self._descriptor(path), size)

    def sync(self, path: str) -> None:
        """Sync a file to the disk, so that it survives a failure of the machine.

        Raises:
            OSError: it is not known to be there.
        """
        os.fsync(self._descriptor(path))

    def release(self, path: str) -> None:
        """Close a file if it is open, so that it can be replaced or removed on any system."""
        descriptor = self._descriptors.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        """Close all files; they are opened again on demand."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def _descriptor(self, path: str) -> int:
        descriptor = self._descriptors.pop(path, None)
        if descriptor is None:
            if len(self._descriptors) >= self._limit:
                self.release(next(iter(self._descriptors)))
            descriptor = os.open(path, _FLAGS)
        self._descriptors[path] = descriptor
        return descriptor
