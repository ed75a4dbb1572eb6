"""The partitioners that come with the package; any `model.Partitioner` will do.

Both take the number of partitions with every message, as it is at least 1 and never changes while
a stream lives (W15).
"""

from __future__ import annotations

import zlib

from .model import Partitioner


def by_key(stream: str, key: bytes | None, value: bytes, partition_count: int) -> int:  # noqa: ARG001 - the Partitioner protocol
    """Choose by the CRC-32 of the key, so that equal keys stay together and in order (W13).

    The same as the Go client's PartitionByKey. No key is the same as an empty one: partition 0.
    """
    return zlib.crc32(key or b"") % partition_count


def round_robin(*, start: int = 0) -> Partitioner:
    """Make a partitioner that takes one partition after the other, for each stream by itself.

    Args:
        start: where each stream begins. Give short-lived publishers different ones, or the first
            partitions get more than the others.
    """
    counters: dict[str, int] = {}

    def choose_next(stream: str, key: bytes | None, value: bytes, partition_count: int) -> int:  # noqa: ARG001 - the Partitioner protocol
        counter = counters.get(stream, start)
        counters[stream] = counter + 1
        return counter % partition_count

    return choose_next
