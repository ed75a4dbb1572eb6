"""The bounds of a segment, and the positions of some of its records. Pure.

The index is sparse: one entry per 4 KiB of messages, so a search ends with a scan of a few records
after an entry. It is stored beside the segment, which saves scanning the segment at a start.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from struct import Struct, error
from typing import Final, Self
from zlib import crc32

ENTRY_INTERVAL: Final = 4096
"""Bytes of records per entry."""

_MAGIC: Final = b"LbIndex\x01"
_CHECKSUM: Final = Struct("<8sI")
_FIELDS: Final = Struct("<9q")
_COLUMNS: Final = 4


class CorruptIndex(Exception):
    """The bytes are no intact index."""


class SegmentIndex:
    """The bounds of a segment and the positions of some of its records."""

    def __init__(self, base_offset: int) -> None:
        """Create a segment index without records."""
        self.size = 0
        """Bytes of all records; the position of the next one."""
        self.next_offset = base_offset
        """The offset after the last one ever appended."""
        self.count = 0
        self.first_offset = 0
        """Meaningless without records, as are the next three."""
        self.first_timestamp = 0
        self.last_offset = 0
        self.last_timestamp = 0
        self._latest = -(2**63)  # the highest timestamp: clocks may be set back
        self._next_entry_at = 0
        # Columns, one value per entry: offset and position of its record, and the count and highest
        # timestamp of the records before.
        self._offsets = array("q")
        self._positions = array("q")
        self._counts = array("q")
        self._latests = array("q")

    def add(self, size: int, offset: int, timestamp: int) -> None:
        """Add the next record."""
        position = self.size
        if position >= self._next_entry_at:
            self._offsets.append(offset)
            self._positions.append(position)
            self._counts.append(self.count)
            self._latests.append(self._latest)
            self._next_entry_at = position + ENTRY_INTERVAL
        if not self.count:
            self.first_offset = offset
            self.first_timestamp = timestamp
        self.count += 1
        self.size = position + size
        self.last_offset = offset
        self.last_timestamp = timestamp
        self._latest = max(self._latest, timestamp)
        self.next_offset = offset + 1

    def skip(self, size: int) -> None:
        """Skip bytes that contain no readable record."""
        self.size += size

    def seek(self, offset: int) -> tuple[int, int]:
        """Return where to start a scan for the first record at or after `offset`.

        Returns:
            A position, and the lowest offset that the record there can have.
        """
        at = bisect_right(self._offsets, offset) - 1
        return (self._positions[at], self._offsets[at]) if at >= 0 else (0, 0)

    def seek_time(self, timestamp: int) -> int:
        """Return where to start a scan for the first record at or after `timestamp`."""
        at = bisect_left(self._latests, timestamp) - 1
        return self._positions[at] if at >= 0 else 0

    def cut_before(self, offset: int) -> None:
        """Roll back to an entry from which all records below `offset` can be added again."""
        at = max(bisect_left(self._offsets, offset) - 1, 0)
        if at < len(self._offsets):
            self.size = self._positions[at]
            self.count = self._counts[at]
            self._latest = self._latests[at]
        for column in self._columns():
            del column[at:]
        self._next_entry_at = self.size

    def encode(self) -> bytes:
        """Encode the index, with a checksum."""
        fields = _FIELDS.pack(
            self.size,
            self.next_offset,
            self.count,
            self.first_offset,
            self.first_timestamp,
            self.last_offset,
            self.last_timestamp,
            self._latest,
            self._next_entry_at,
        )
        columns = array("q")
        for column in self._columns():
            columns.extend(column)
        if sys.byteorder == "big":
            columns.byteswap()
        body = fields + columns.tobytes()
        return _CHECKSUM.pack(_MAGIC, crc32(body)) + body

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode an index.

        Raises:
            CorruptIndex: the checksum does not match, or the format is unknown.
        """
        try:
            magic, checksum = _CHECKSUM.unpack_from(data)
        except error:
            raise CorruptIndex from None
        body = data[_CHECKSUM.size :]
        if magic != _MAGIC or crc32(body) != checksum:
            raise CorruptIndex
        index = cls(0)
        (
            index.size,
            index.next_offset,
            index.count,
            index.first_offset,
            index.first_timestamp,
            index.last_offset,
            index.last_timestamp,
            index._latest,
            index._next_entry_at,
        ) = _FIELDS.unpack_from(body)
        values = array("q")
        values.frombytes(body[_FIELDS.size :])
        if sys.byteorder == "big":
            values.byteswap()
        length = len(values) // _COLUMNS
        for number, column in enumerate(index._columns()):
            column.extend(values[number * length : (number + 1) * length])
        return index

    def _columns(self) -> tuple[array[int], ...]:
        return self._offsets, self._positions, self._counts, self._latests
