"""A file to which byte strings are appended, each with a checksum: they are all read at a start.

Each entry is a record, as messages are, numbered by its offset.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from liftbridge_aio.model import Message

from .file_replacement import replace_file
from .open_files import OpenFiles
from .record import decode, encode
from .record_scan import Damage, scan

logger = logging.getLogger("liftbridge_aio.broker")


class CorruptJournal(OSError):
    """Entries are damaged that others follow; nobody can tell what the later ones rest on."""


class Journal:
    """Entries in a file, for one process at a time."""

    def __init__(self, path: Path) -> None:
        """Open the file, which is made if it does not exist, and read it.

        An entry at its end that is not whole is cut off: it was being written when the process
        ended.

        Args:
            path: the file; its folder exists.

        Raises:
            OSError: it cannot be read or made.
            CorruptJournal: it is damaged elsewhere than at its end.
        """
        self._path = path
        self._file = str(path)
        self._files = OpenFiles(limit=1)
        path.touch()
        self._size = 0
        self.entries: Sequence[bytes] = self._read()
        """What was in the file when it was opened, oldest first."""
        self._count = len(self.entries)

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def append(self, data: bytes) -> None:
        """Add an entry; once this returns, it outlives the process.

        Raises:
            OSError: it cannot be added; the file is as it was before.
        """
        entry = _entry(data, self._count, self._size)
        self._files.write(self._file, entry, self._size)
        self._count += 1
        self._size += len(entry)

    def rewrite(self, entries: Iterable[bytes]) -> None:
        """Put other entries in the place of all there are; these outlive the machine as well.

        Raises:
            OSError: they cannot be written; the file is as it was before.
        """
        written: list[bytes] = []
        size = 0
        for data in entries:
            written.append(_entry(data, len(written), size))
            size += len(written[-1])
        self._files.close()
        replace_file(self._path, written, synced=True)
        self._count = len(written)
        self._size = size

    def close(self) -> None:
        """Close the file; may be called again."""
        self._files.close()

    def _read(self) -> Sequence[bytes]:
        data = self._path.read_bytes()
        entries: list[bytes] = []
        for found in scan(lambda length, at: data[at : at + length], 0, len(data), 0):
            if isinstance(found, Damage):
                if found.next_offset is not None:
                    text = (
                        f"{self._path} is damaged at byte {found.position}, before its end; "
                        "put back a copy of the whole data directory, or begin with an empty one"
                    )
                    raise CorruptJournal(text)
                logger.warning(
                    "the last %d bytes of %s are no whole entry and were cut off",
                    found.end - found.position,
                    self._path,
                )
                self._files.truncate(self._file, found.position)
            else:
                message, self._size = decode(data, self._size, self._size, "", 0)
                entries.append(message.value)
        return entries


def _entry(data: bytes, number: int, position: int) -> bytes:
    return encode(Message("", 0, number, b"", data, 0), position)
