"""Scanning a file of records that may be torn or damaged. Pure: a function returns the bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from .record import HEADER_BYTES, CorruptRecord, RecordMark, TornRecord, check, find_header

CHUNK_BYTES: Final = 256 * 1024
"""Bytes of one read."""

ReadAt = Callable[[int, int], bytes]
"""Returns `length` bytes at `position`, fewer only at the end of the file."""


class Damage(NamedTuple):
    """A range of a file in which no record can be read."""

    position: int
    end: int
    """Position of the next record, or the end of the file."""
    next_offset: int | None
    """Offset of the next record; None if there is none, as after an incomplete write."""


def scan(read: ReadAt, position: int, size: int, next_offset: int) -> Iterator[RecordMark | Damage]:
    """Iterate over all records, and the damage between them.

    Args:
        read: reads the file.
        position: position of the first record.
        size: size of the file.
        next_offset: the lowest offset that the next record can have.
    """
    for found_at, mark in _whole_records(read, position, size):
        is_behind_damage = found_at > position
        if mark.offset >= next_offset + is_behind_damage:  # one record at least was damaged
            if is_behind_damage:
                yield Damage(position, found_at, mark.offset)
            yield mark
            position = found_at + mark.size
            next_offset = mark.offset + 1
    if position < size:
        yield Damage(position, size, None)


def _whole_records(read: ReadAt, position: int, size: int) -> Iterator[tuple[int, RecordMark]]:
    wanted = CHUNK_BYTES
    while position < size:
        asked = min(wanted, size - position)
        data = read(asked, position)
        wanted = CHUNK_BYTES
        at = 0
        try:
            while at < asked:
                mark = check(data, at, position + at)
                yield position + at, mark
                at += mark.size
            position += at
        except TornRecord as torn:
            if not at and (len(data) < asked or asked == size - position):
                return  # more cannot be read
            position += at
            wanted = max(torn.needed, CHUNK_BYTES)
        except CorruptRecord as corrupt:
            step = corrupt.size or _bytes_to_next(read, position + at, size)
            if step is None:
                return
            position += at + step


def _bytes_to_next(read: ReadAt, position: int, size: int) -> int | None:
    start = position
    position += 1
    while size - position >= HEADER_BYTES:
        data = read(min(CHUNK_BYTES, size - position), position)
        found = find_header(data, 0, position)
        if found is not None:
            return position + found - start
        if len(data) < HEADER_BYTES:
            return None
        position += len(data) - HEADER_BYTES + 1
    return None
