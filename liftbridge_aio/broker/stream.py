"""A stream as one broker knows it."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from liftbridge_aio.model import StreamInfo

from .log import PartitionLog
from .operations import CreateStream
from .partition import Partition


class Stream:
    """A stream and its partitions."""

    def __init__(
        self,
        operation: CreateStream,
        index: int,
        server_id: str,
        open_log: Callable[[int], PartitionLog],
    ) -> None:
        """Begin with closed partitions.

        Args:
            operation: what was created.
            index: index of the operation; tells a stream from an earlier one of the same name.
            server_id: the broker that knows the stream.
            open_log: opens the log of the partition with this number.
        """
        self.name = operation.name
        self.subject = operation.subject
        self.group = operation.group
        self.config = operation.config
        self.created = operation.created
        self.index = index
        self.resume_all = False

        def partition(number: int) -> Partition:
            return Partition(
                operation,
                number,
                index,
                server_id,
                lambda: open_log(number),
            )

        self.partitions = {number: partition(number) for number in range(len(operation.partitions))}

    def info(self) -> StreamInfo:
        """Describe the stream for metadata."""
        partitions = {number: one.info() for number, one in self.partitions.items()}
        return StreamInfo(self.name, self.subject, MappingProxyType(partitions), self.created)
