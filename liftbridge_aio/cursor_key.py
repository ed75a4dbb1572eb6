"""Under which key, and so in which partition of `__cursors`, servers keep a cursor."""

from __future__ import annotations

import zlib


def cursor_key(cursor_id: str, stream: str, partition: int) -> bytes:
    """Make the key of a cursor: its id, stream and partition with commas between (W14)."""
    return f"{cursor_id},{stream},{partition}".encode()


def cursors_partition(cursor_id: str, stream: str, partition: int, partition_count: int) -> int:
    """Tell the partition of `__cursors` whose leader keeps this cursor (W14).

    Args:
        cursor_id: the cursor's id.
        stream: the stream that is read with it.
        partition: the partition that is read with it.
        partition_count: how many partitions `__cursors` has.
    """
    return zlib.crc32(cursor_key(cursor_id, stream, partition)) % partition_count
