"""What is shared out among the members of a consumer group: partitions of streams."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class StreamPartition(NamedTuple):
    """A partition of a stream."""

    stream: str
    partition: int


Assignment: TypeAlias = frozenset[StreamPartition]
