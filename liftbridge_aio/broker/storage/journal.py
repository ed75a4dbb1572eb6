"""An append-only file of checksummed entries, which are read at a start.

Each entry is a record, as those of messages; its offset is its number.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from liftbridge_aio.model import Message

from .atomic_files import replace_file
from .core.record import decode, encode
from .core.record_scan import Damage, scan
from .open_files import OpenFiles

logger = logging.getLogger("liftbridge_aio.broker")


class CorruptJournal(OSError):
    """An entry before the last is damaged, without which later ones have no meaning."""


class Journal:
    """Entries in a file, for one process at a time."""

    def __init__(self, path: Path) -> None:
        """Open the file, which is created if necessary, and read it.

        An incomplete entry at the end is cut off: it was being written when the process ended.

        Args:
            path: the file; its folder exists.

        Raises:
            OSError: it cannot be read or created.
            CorruptJournal: it is damaged elsewhere than at its end.
        """
        self._path = path
        self._file = str(path)
        self._files = OpenFiles(limit=1)
        path.touch()
        self._size = 0
        self.entries: Sequence[bytes] = self._read()
        """The entries of the file when it was opened, oldest first."""
        self._count = len(self.entries)

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def append(self, data: bytes) -> None:
        """Append an entry; once this returns, it survives a failure of the machine.

        So do the files and folders that were made before it.

        Raises:
            OSError: it cannot be written; the file is unchanged.
        """
        entry = _entry(data, self._count, self._size)
        self._files.write(self._file, entry, self._size)
        try:
            self._files.sync(self._file)
        except OSError:
            self._files.truncate(self._file, self._size)
            raise
        self._count += 1
        self._size += len(entry)

    def rewrite(self, entries: Iterable[bytes]) -> None:
        """Replace all entries, synced to the disk.

        Raises:
            OSError: they cannot be written; the file is unchanged.
        """
        written: list[bytes] = []
        size = 0
        for data in entries:
            written.append(_entry(data, len(written), size))
            size += len(written[-1])
        self._files.close()
        replace_file(self._path, written)
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
                    raise CorruptJournal(
                        f"{self._path} is damaged at byte {found.position}, before its end; "
                        "put back a copy of the whole data directory, or begin with an empty one"
                    )
                logger.warning(
                    "the last %d bytes of %s, an incomplete entry, were cut off",
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
