"""Opens the logs of a broker, in memory or in a data directory."""

from __future__ import annotations

import logging

from .core.log import PartitionLog
from .core.operations import CreateStream
from .core.segment import SegmentStore
from .core.stream_config import LogLimits
from .data_directory import DataDirectory

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
    """Logs in a data directory."""

    def __init__(self, directory: DataDirectory) -> None:
        """Store logs in a data directory."""
        self._directory = directory

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
