"""Keep journals in files, one each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from liftbridge_aio.transactions.core.mapping import Journal

from .readers import ByteSource

_CHUNK_BYTES: Final = 65_536


class FileJournals:
    """Journals that are files of a folder, which one process at a time may append to."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Use a folder, which is created with the first journal."""
        self._folder = Path(folder)
        self._locks: dict[str, asyncio.Lock] = {}

    async def append(self, journal: str, frame: Callable[[], bytes]) -> tuple[int, int]:
        """Append a frame and return the offsets of its begin and end, once it is on the disk.

        Appends to a journal are done one after the other. One that fails leaves nothing behind.
        Cancelling does not end one that has begun.

        Args:
            journal: the name of the journal, a path in the folder.
            frame: returns the bytes.

        Raises:
            OSError: the file could not be written.
        """
        async with self._locks.setdefault(journal, asyncio.Lock()):
            return await asyncio.shield(asyncio.to_thread(_append, self._path(journal), frame()))

    def source(self, journal: Journal) -> FileSource:
        """Return what reads a journal, up to its end."""
        return FileSource(journal, self._path(journal.name))

    def _path(self, journal: str) -> Path:
        return self._folder / journal


class FileSource(ByteSource):
    """A journal in a file."""

    def __init__(self, journal: Journal, path: Path) -> None:
        """Read a journal from a file."""
        self.journal = journal
        self._path = path

    async def read(self, begin: int, end: int | None) -> AsyncIterator[tuple[int, bytes]]:
        """Return pieces of the journal with their offsets, in order.

        Raises:
            OSError: the file cannot be read.
        """
        at = begin
        while end is None or at < end:
            size = _CHUNK_BYTES if end is None else min(_CHUNK_BYTES, end - at)
            data = await asyncio.to_thread(_read, self._path, at, size)
            if not data:
                return
            yield at, data
            at += len(data)


def _append(path: Path, data: bytes) -> tuple[int, int]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        begin = file.tell()
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            os.ftruncate(file.fileno(), begin)
            raise
    return begin, begin + len(data)


def _read(path: Path, at: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(at)
        return file.read(size)
