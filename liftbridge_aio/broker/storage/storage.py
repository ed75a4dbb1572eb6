"""What a broker stores, in memory or in a data directory."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from .core.log import PartitionLog
from .core.operation_list import IndexedOperation, existing_streams
from .core.operations import CreateStream, Operation
from .core.segment import SegmentStore
from .core.stream_config import LogLimits
from .data_directory import DataDirectory
from .operation_journal import OperationJournal

logger = logging.getLogger("liftbridge_aio.broker")


class MemoryStorage:
    """Logs that live as long as the broker object."""

    def open_log(self, stream: CreateStream, index: int, number: int) -> PartitionLog:
        """Return an empty log."""
        del index, number
        return _open(stream, None)

    def remove_stream(self, index: int) -> None:
        """Do nothing: logs delete their own memory."""


class DiskStorage:
    """Operations and logs in a data directory."""

    def __init__(self, directory: DataDirectory) -> None:
        """Store operations and logs in a data directory.

        Raises:
            CorruptJournal: a stored operation cannot be read.
            OSError: the journal cannot be rewritten.
        """
        self._directory = directory
        self._journal = OperationJournal(directory.journal)

    @property
    def operations(self) -> Sequence[IndexedOperation]:
        """The operations that were stored before, with their indices."""
        return self._journal.stored

    def check_streams(self) -> None:
        """Check that operations and folders agree; errors are those of `DataDirectory`."""
        self._directory.check_streams(existing_streams(self.operations), self._journal.last_index)

    def store(self, index: int, operation: Operation) -> None:
        """Store an operation, before it is applied.

        Raises:
            OSError: it cannot be stored.
        """
        if isinstance(operation, CreateStream):  # folders first: a missing one means lost data
            self._directory.make_stream(index, len(operation.partitions))
        self._journal.append(index, operation)

    def open_log(self, stream: CreateStream, index: int, number: int) -> PartitionLog:
        """Open a log.

        Raises:
            OSError: stored data cannot be read.
        """
        return _open(stream, self._directory.log_store(index, number, stream.name))

    def remove_stream(self, index: int) -> None:
        """Delete the folder of a stream; the next start retries if that fails."""
        try:
            self._directory.remove_stream(index)
        except OSError:
            logger.exception("cannot delete the folder of a deleted stream; the next start retries")


def _open(stream: CreateStream, store: SegmentStore | None) -> PartitionLog:
    return PartitionLog(
        store,
        LogLimits.from_config(stream.config),
        concurrency_control=stream.config.optimistic_concurrency_control,
    )
