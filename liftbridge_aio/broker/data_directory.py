"""The folder in which a broker keeps everything that outlives it.

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

from collections.abc import Collection
from pathlib import Path
from typing import Final

from .disk_store import DiskSegmentStore
from .file_lock import FileLock, FileLocked
from .file_replacement import replace_file, temporary
from .folder_deletion import DELETED_SUFFIX, delete_folder, finish_deletions
from .journal import CorruptJournal, Journal
from .open_files import OpenFiles

FORMAT_VERSION: Final = 1
"""Version of the layout that this code reads and writes."""


class DataDirectoryError(Exception):
    """A data directory cannot be used; the text says which, why, and what to do about it."""


class DataDirectory:
    """A data directory, in use by one broker at a time."""

    def __init__(self, path: Path) -> None:
        """Take possession of a folder, which is made if it does not exist.

        Args:
            path: the folder: empty, or used by a broker before.

        Raises:
            DataDirectoryError: another broker uses it, it holds something else, a newer version
                wrote it, it is damaged, or the system does not let us.
        """
        self.path = path
        self._files = OpenFiles()
        self._lock: FileLock | None = None
        try:
            self.journal = self._open()
            """Metadata operations."""
        except BaseException:
            self._release()
            raise

    def _open(self) -> Journal:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._check_it_is_ours()
            self._lock = FileLock(self.path / "lock")
            self._check_format()
            temporary(self.path / "journal").unlink(missing_ok=True)
            self._streams.mkdir(exist_ok=True)
            return Journal(self.path / "journal")
        except FileLocked as error:
            text = (
                f"the data directory {self.path} is in use by another broker; "
                "stop that one, or choose another directory"
            )
            raise DataDirectoryError(text) from error
        except CorruptJournal as error:
            raise DataDirectoryError(str(error)) from error
        except OSError as error:
            text = f"the data directory {self.path} cannot be used: {error}"
            raise DataDirectoryError(text) from error

    @property
    def _streams(self) -> Path:
        return self.path / "streams"

    def log_store(self, stream_id: int, partition: int, stream: str) -> DiskSegmentStore:
        """Return where the log of a partition is kept; nothing is made before the log is opened.

        Args:
            stream_id: tells streams apart that have the same name one after the other.
            partition: number of the partition.
            stream: name of the stream.
        """
        folder = self._streams / str(stream_id) / str(partition)
        return DiskSegmentStore(folder, stream, partition, self._files)

    def remove_stream(self, stream_id: int) -> None:
        """Forget all logs of a stream; those of them that are open are deleted or closed before.

        Raises:
            OSError: a file cannot be removed; `remove_other_streams` goes on with it.
        """
        delete_folder(self._streams / str(stream_id))

    def remove_other_streams(self, stream_ids: Collection[int]) -> None:
        """Remove what the end of an earlier process left behind in the middle of a removal.

        What no broker makes, such as the notes of a file manager, stays.

        Args:
            stream_ids: the streams that exist, by the journal.

        Raises:
            DataDirectoryError: there are streams, but the journal is gone.
            OSError: a file cannot be removed.
        """
        known = {str(stream_id) for stream_id in stream_ids}
        folders = [
            one
            for one in self._streams.iterdir()
            if one.name.removesuffix(DELETED_SUFFIX).isdecimal() and one.is_dir()
        ]
        if folders and not known and not self.journal.entries:
            text = (
                f"{self.path / 'journal'} is empty or was removed, but there are streams; "
                "put back a copy of the whole data directory, or begin with an empty one"
            )
            raise DataDirectoryError(text)
        for folder in folders:
            if folder.name in known:
                finish_deletions(folder)
            else:
                delete_folder(folder)

    def close(self) -> None:
        """Let another broker have the folder; may be called again."""
        self.journal.close()
        self._release()

    def _release(self) -> None:
        self._files.close()
        if self._lock is not None:
            self._lock.release()

    def _check_it_is_ours(self) -> None:
        if (self.path / "lock").exists():
            return
        foreign = sorted({one.name for one in self.path.iterdir()} - {"lost+found"})
        if foreign:
            text = (
                f"{self.path} is no data directory: it holds {foreign[0]!r}; "
                "choose an empty directory"
            )
            raise DataDirectoryError(text)

    def _check_format(self) -> None:
        path = self.path / "format"
        try:
            written = path.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            if (self.path / "journal").exists():
                text = f"{path} is missing; write {FORMAT_VERSION} into it if you removed it"
                raise DataDirectoryError(text) from None
            replace_file(path, [f"{FORMAT_VERSION}\n".encode()])
            return
        if not written.isascii() or not written.isdecimal():
            text = f"{path} is damaged: it should hold a number, and holds {written[:20]!r}"
            raise DataDirectoryError(text)
        if int(written) > FORMAT_VERSION:
            text = (
                f"the data directory {self.path} has format {written}, which is newer than "
                f"{FORMAT_VERSION}; use a newer version of liftbridge-aio, or another directory"
            )
            raise DataDirectoryError(text)
