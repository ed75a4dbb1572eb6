"""The folder of everything that a broker stores on disk.

==================================== ==============================================================
Path                                 Contents
==================================== ==============================================================
`lock`                               empty; locked by the broker that uses the folder
`format`                             the version of this layout, as a decimal number
`journal`                            metadata operations, see `journal.py`
`streams/<stream id>/<partition>/`   segments of a log, see `disk_store.py`
==================================== ==============================================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from weakref import WeakSet

from liftbridge_aio._runtime.file_lock import FileLock, FileLocked

from .atomic_files import DELETED_SUFFIX, delete_folder, finish_deletions, replace_file, temporary
from .core.operations import CreateStream
from .disk_store import DiskSegmentStore
from .journal import CorruptJournal, Journal
from .open_files import OpenFiles

_NUMBER: Final = re.compile(r"[1-9][0-9]{0,8}")
FORMAT_VERSION: Final = 1
"""Version of the layout that this code reads and writes."""


class DataDirectoryError(Exception):
    """A data directory cannot be used; the text says which, why, and what to do about it."""


class DataDirectory:
    """A data directory, used by one broker at a time."""

    def __init__(self, path: Path) -> None:
        """Lock a folder, which is created if necessary, and open its journal.

        Args:
            path: the folder: empty, or used by a broker before.

        Raises:
            DataDirectoryError: another broker uses it, it contains something else, a newer version
                wrote it, it is damaged, or it is not accessible.
        """
        self.path = path
        self._files = OpenFiles()
        self._lock: FileLock | None = None
        self._stores: WeakSet[DiskSegmentStore] = WeakSet()
        try:
            self.journal = self._open()
            """Metadata operations."""
        except BaseException:
            self._release()
            raise

    def _open(self) -> Journal:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._check_contents()
            self._lock = FileLock(self.path / "lock")
            self._check_format()
            journal = self.path / "journal"
            temporary(journal).unlink(missing_ok=True)
            if journal.exists() and not self._streams.exists():
                raise DataDirectoryError(_missing(self._streams))
            self._streams.mkdir(exist_ok=True)
            return Journal(journal)
        except FileLocked as error:
            raise DataDirectoryError(
                f"the data directory {self.path} is in use by another broker; "
                "stop that one, or choose another directory"
            ) from error
        except CorruptJournal as error:
            raise DataDirectoryError(str(error)) from error
        except OSError as error:
            raise DataDirectoryError(
                f"the data directory {self.path} cannot be used: {error}"
            ) from error

    @property
    def _streams(self) -> Path:
        return self.path / "streams"

    def _folder(self, stream_id: int, partition: int) -> Path:
        return self._streams / str(stream_id) / str(partition)

    def log_store(self, stream_id: int, partition: int, stream: str) -> DiskSegmentStore:
        """Return the store of a partition's log; nothing is created before the log is opened.

        Args:
            stream_id: identifies the stream among others of the same name.
            partition: number of the partition.
            stream: name of the stream.
        """
        folder = self._folder(stream_id, partition)
        store = DiskSegmentStore(folder, stream, partition, self._files)
        self._stores.add(store)
        return store

    def remove_stream(self, stream_id: int) -> None:
        """Delete all logs of a stream, which the caller has closed or deleted.

        Raises:
            OSError: a file cannot be removed; `check_streams` retries.
        """
        delete_folder(self._streams / str(stream_id))

    def make_stream(self, stream_id: int, partitions: int) -> None:
        """Create the folders of a stream, before the stream itself.

        Raises:
            OSError: they cannot be created.
        """
        for partition in range(partitions):
            self._folder(stream_id, partition).mkdir(parents=True, exist_ok=True)

    def check_streams(self, streams: Mapping[int, CreateStream], last_index: int) -> None:
        """Check that journal and folders agree, and finish interrupted deletions.

        Files that no broker creates, such as those of a file manager, stay.

        Args:
            streams: the existing streams, according to the journal.
            last_index: last index of the journal; no stream that it ever knew has a higher id.

        Raises:
            DataDirectoryError: the journal, its end or a folder of a stream is missing.
            OSError: a file cannot be removed.
        """
        known = {str(stream_id) for stream_id in streams}
        folders = [
            one
            for one in self._streams.iterdir()
            if one.name.removesuffix(DELETED_SUFFIX).isdecimal() and one.is_dir()
        ]
        for folder in folders:
            if (
                folder.name.isdecimal()
                and int(folder.name) > last_index
                and any(one.is_file() for one in folder.rglob("*"))
            ):
                lack = "is empty or was removed" if not last_index else "lacks its end"
                raise DataDirectoryError(
                    f"{self.path / 'journal'} {lack}, but there are messages of a stream in"
                    f" {folder}; put back a copy of the whole data directory, or begin with an"
                    " empty one"
                )
        for stream_id, stream in streams.items():
            for partition in range(len(stream.partitions)):
                folder = self._folder(stream_id, partition)
                if not folder.is_dir():
                    raise DataDirectoryError(
                        f"{_missing(folder)}. It held {stream.name}/{partition}"
                    )
        for folder in folders:
            if folder.name in known:
                finish_deletions(folder)
            else:
                delete_folder(folder)

    def close(self) -> None:
        """Close all files and unlock the folder; may be called again."""
        for store in self._stores:
            store.close()
        self._stores.clear()
        self.journal.close()
        self._release()

    def _release(self) -> None:
        self._files.close()
        if self._lock is not None:
            self._lock.release()

    def _check_contents(self) -> None:
        if (self.path / "lock").exists():
            return
        found = {one.name for one in self.path.iterdir()} - {"lost+found"}
        if "format" in found:
            raise DataDirectoryError(
                f"{self.path / 'lock'} is missing; make an empty file of that name if you removed"
                " it, and no broker uses the directory"
            )
        foreign = sorted(found)
        if foreign:
            raise DataDirectoryError(
                f"{self.path} is no data directory: it holds {foreign[0]!r}; "
                "choose an empty directory"
            )

    def _check_format(self) -> None:
        path = self.path / "format"
        try:
            written = path.read_text(encoding="utf-8", errors="backslashreplace").strip()
        except FileNotFoundError:
            if (self.path / "journal").exists():
                raise DataDirectoryError(
                    f"{path} is missing; write {FORMAT_VERSION} into it if you removed it"
                ) from None
            replace_file(path, [f"{FORMAT_VERSION}\n".encode()])
            return
        if not _NUMBER.fullmatch(written):
            raise DataDirectoryError(
                f"{path} is damaged: it should hold a number, and holds {written[:20]!r}"
            )
        if int(written) > FORMAT_VERSION:
            raise DataDirectoryError(
                f"the data directory {self.path} has format {written}, which is newer than "
                f"{FORMAT_VERSION}; use a newer version of liftbridge-aio, or another directory"
            )


def _missing(folder: Path) -> str:
    return (
        f"{folder} is missing; put back a copy of the whole data directory, or make the folder to"
        " give up the messages that were in it"
    )
