"""The log of a partition on disk: like that in memory, with restarts after torn writes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import rule

from liftbridge_aio.broker.storage.core.segment import SegmentStore
from liftbridge_aio.broker.storage.disk_store import DiskSegmentStore
from liftbridge_aio.broker.storage.open_files import OpenFiles
from support.broker.log_machine import LogMachine


def store_in(folder: Path) -> SegmentStore:
    return DiskSegmentStore(folder, "s", 0, OpenFiles(limit=2))


class DiskLogMachine(LogMachine):
    """Segments in a folder; few files may be open at once."""

    @staticmethod
    def new_store() -> SegmentStore:
        return store_in(Path(tempfile.mkdtemp()) / "log")

    @property
    def folder(self) -> Path:
        assert isinstance(self.store, DiskSegmentStore)
        return self.store._folder

    def store_after_restart(self) -> SegmentStore:
        return store_in(self.folder)

    @rule(garbage=st.binary(min_size=1, max_size=100))
    def end_in_the_middle_of_a_write(self, garbage: bytes) -> None:
        self.log.close()
        with max(self.folder.glob("*.log")).open("ab") as file:
            file.write(garbage)
        self.restart()

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder.parent)


TestLogOnDisk = DiskLogMachine.TestCase
