"""Keep journals in files, one each."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from liftbridge_aio._runtime.file_lock import FileLock, FileLocked
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.transactions.core.framing import (
    CSV,
    FIXED_PROTOBUF,
    FIXED_WORD,
    JSON_LINES,
    Decoder,
    framing_for,
)
from liftbridge_aio.transactions.core.mapping import Journal
from liftbridge_aio.transactions.errors import Desynchronised, JournalLocked, TruncatedFrame

from .readers import ByteSource

logger = logging.getLogger("liftbridge_aio.transactions")

_CHUNK_BYTES: Final = 65_536
_LOCK_TIMEOUT: Final = 10.0
"""Seconds that an append waits for those of other processes."""
_LOCK_INTERVAL: Final = 0.01
_FRAMES: Final = {
    FIXED_PROTOBUF: re.compile(re.escape(FIXED_WORD)),
    JSON_LINES: re.compile(rb"\{"),
    CSV: re.compile(rb"[0-9a-f]{8}-[0-9a-f-]{27},"),
}
"""The beginning of a frame, by the content type of its journal: intents have no content type."""


class FileJournals:
    """Journals that are files of a folder, which any number of processes may append to.

    A process that ends within an append leaves a part of a frame at the end of the file. The next
    append cuts it off, and readers end before it. So the first append of each process reads the
    journal. In a journal with a framing of your own a part of a frame is not recognised.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Use a folder, which is created with the first journal."""
        self._folder = Path(folder)
        self._locks: dict[str, asyncio.Lock] = {}
        self._ends: dict[Path, int] = {}
        """The offset after the last whole frame, as far as journals are known to be whole."""

    async def append(self, journal: str, frame: Callable[[], bytes]) -> tuple[int, int]:
        """Append a frame and return the offsets of its begin and end, once it is on the disk.

        Appends to a journal are done one after the other, by one process at a time. One that fails
        leaves nothing behind. Cancelling does not end one that has begun.

        Args:
            journal: the name of the journal, a path in the folder.
            frame: returns the bytes.

        Raises:
            InvalidRequest: the name leads out of the folder.
            JournalLocked: other processes append all the time, or one of them hangs.
            OSError: the file could not be written.
        """
        path = self._path(journal)
        async with self._locks.setdefault(journal, asyncio.Lock()):
            return await asyncio.shield(asyncio.ensure_future(self._append(path, frame)))

    def source(self, journal: Journal) -> FileSource:
        """Return what reads a journal, up to its end.

        Raises:
            InvalidRequest: the name leads out of the folder.
        """
        return FileSource(journal, self._path(journal.name))

    async def _append(self, path: Path, frame: Callable[[], bytes]) -> tuple[int, int]:
        with await _locked(path):
            data = frame()
            begin = await asyncio.to_thread(_append, path, data, self._ends.get(path, 0))
            self._ends[path] = begin + len(data)
        return begin, begin + len(data)

    def _path(self, journal: str) -> Path:
        path = Path(journal)
        if not path.parts or path.anchor or ".." in path.parts or "\0" in journal:
            raise InvalidRequest(
                f"a journal is the path of a file within {self._folder}, not {journal!r}"
            )
        return self._folder / path


class FileSource(ByteSource):
    """A journal in a file."""

    def __init__(self, journal: Journal, path: Path) -> None:
        """Read a journal from a file."""
        self.journal = journal
        self._path = path

    async def frames(
        self, decoder: Decoder, begin: int, end: int | None
    ) -> AsyncIterator[tuple[int, int, bytes]]:
        """Return frames with the offsets of their begins and ends, in order.

        A part of a frame at the end of the journal is an append that has not ended, or never will.

        Raises:
            FramingError: a frame is too long, or the range ends within one.
            OSError: the file cannot be read.
        """
        try:
            async for each in super().frames(decoder, begin, end):
                yield each
        except TruncatedFrame as error:
            if end is not None:
                raise
            logger.warning("reading %s ends before a part of a frame: %s", self.journal.name, error)

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


async def _locked(path: Path) -> FileLock:
    """Lock a journal against other processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.with_name(f".{path.name}.lock")  # not itself: Windows would keep readers out
    deadline = time.monotonic() + _LOCK_TIMEOUT
    while True:
        try:
            return FileLock(file)
        except FileLocked as error:
            if time.monotonic() > deadline:
                raise JournalLocked(
                    f"{path} was locked by another process for {_LOCK_TIMEOUT:g} s"
                ) from error
        await asyncio.sleep(_LOCK_INTERVAL)


def _append(path: Path, data: bytes, whole: int) -> int:
    """Append a frame after the last whole one, and return its offset.

    Args:
        path: of the journal.
        data: the frame.
        whole: an offset up to which the journal is known to have whole frames.
    """
    with path.open("ab") as file:
        begin = file.tell()
        if begin != whole:
            begin = _end_of_frames(path, data, whole if whole < begin else 0, begin)
            file.truncate(begin)
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            os.ftruncate(file.fileno(), begin)
            raise
    return begin


def _end_of_frames(path: Path, data: bytes, whole: int, size: int) -> int:
    """Return the offset after the last whole frame; the size of the file if that is not known."""
    content_type = next((kind for kind, begin in _FRAMES.items() if begin.match(data)), None)
    if content_type is None:
        return size
    decoder = framing_for(content_type).decoder()
    at = whole
    while chunk := _read(path, at, _CHUNK_BYTES):
        at += len(chunk)
        decoder.feed(chunk)
        while True:
            try:
                frame = decoder.next_frame()
            except Desynchronised as error:
                frame = error.skipped
            if frame is None:
                break
            whole += len(frame)
    if whole < size:
        logger.warning("%s ends with %d bytes of a frame: cut off", path, size - whole)
    return whole


def _read(path: Path, at: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(at)
        return file.read(size)
