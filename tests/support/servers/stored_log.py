"""Reads the offsets of a log from the disk of a real server, without the server."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path
from typing import Final

_HEAD: Final = struct.Struct(">qqqi")
"""Of each message: offset, timestamp, leader epoch, bytes that follow."""


def stored_offsets(partition: Path) -> list[int]:
    """The offsets in the segments of a partition's folder, one after the other."""
    offsets = []
    for segment in sorted(partition.glob("*.log")):
        data, at = segment.read_bytes(), 0
        while at + _HEAD.size <= len(data):
            offset, _, _, size = _HEAD.unpack_from(data, at)
            offsets.append(offset)
            at += _HEAD.size + size
    return offsets


def gives_offsets_anew(partition: Path) -> bool:
    """Return True if an offset comes after a higher one."""
    return any(later <= earlier for earlier, later in pairwise(stored_offsets(partition)))
