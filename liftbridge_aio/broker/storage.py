"""Where a broker keeps its logs: in memory."""

from __future__ import annotations

from .log import PartitionLog
from .log_limits import LogLimits
from .stream_config import StreamConfig


class MemoryStorage:
    """Logs that live as long as the broker object."""

    def open_log(self, stream_index: int, number: int, config: StreamConfig) -> PartitionLog:
        """Make an empty log."""
        del stream_index, number
        return PartitionLog(
            limits=LogLimits.from_config(config),
            concurrency_control=config.optimistic_concurrency_control,
        )

    def remove_stream(self, stream_index: int) -> None:
        """There is nothing else."""
