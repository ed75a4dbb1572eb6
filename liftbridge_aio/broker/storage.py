"""Where a broker keeps its logs: in memory, or in a data directory."""

from __future__ import annotations

import logging

from .data_directory import DataDirectory
from .log import PartitionLog
from .log_limits import LogLimits
from .operations import CreateStream
from .segment import SegmentStore

_log = logging.getLogger("liftbridge_aio.broker")


class MemoryStorage:
    """Logs that live as long as the broker object."""

    def open_log(self, stream: CreateStream, index: int, number: int) -> PartitionLog:
        """Make an empty log."""
        del index, number
        return _open(stream, None)

    def remove_stream(self, index: int) -> None:
        """There is nothing else."""


class DiskStorage:
    """Logs in a data directory."""

    def __init__(self, directory: DataDirectory) -> None:
        """Keep them there."""
        self._directory = directory

    def open_log(self, stream: CreateStream, index: int, number: int) -> PartitionLog:
        """Open a log.

        Raises:
            OSError: what is kept cannot be read.
        """
        return _open(stream, self._directory.log_store(index, number, stream.name))

    def remove_stream(self, index: int) -> None:
        """Remove the folder of a deleted stream, at the next start if not now."""
        try:
            self._directory.remove_stream(index)
        except OSError:
            _log.exception("cannot remove the folder of a deleted stream")


def _open(stream: CreateStream, store: SegmentStore | None) -> PartitionLog:
    return PartitionLog(
        store,
        LogLimits.from_config(stream.config),
        concurrency_control=stream.config.optimistic_concurrency_control,
    )
