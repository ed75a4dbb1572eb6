"""Finding out what is in the segment files that an earlier process left behind.

A segment that is followed by another is believed through its index if that is whole and speaks of a
file of this length; else the file is read. The last one is always read: its end may be a write that
was cut short. That is cut off; nothing there can have been acked, unless the disk failed. Damage
anywhere else stays where it is: it is never served, and reading into it is an error.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

from .disk_segment import INDEX_SUFFIX, DiskSegment, LogPlace
from .open_files import OpenFiles
from .record_scan import Damage, scan
from .segment_index import CorruptIndex, SegmentIndex

logger = logging.getLogger("liftbridge_aio.broker")


def open_sealed(path: Path, place: LogPlace, following: int, files: OpenFiles) -> DiskSegment:
    """Open a segment that is followed by another.

    Args:
        path: its file.
        place: whose messages are in it.
        following: base offset of the next segment.
        files: opens the file.

    Raises:
        OSError: it cannot be read.
    """
    size = path.stat().st_size
    stored = _stored_index(path)
    if stored is not None and stored.size == size:
        lost = _lost(path, stored.next_offset, following)
        stored.next_offset = following
        return DiskSegment(path, place, stored, files, lost)
    index = _read_through(path, size, files)
    is_cut = index.size < size or (stored is not None and index.size < stored.size)
    lost = _lost(path, index.next_offset, following) if is_cut else None
    segment = DiskSegment(path, place, index, files, lost)
    segment.seal(following)
    return segment


def open_last(path: Path, place: LogPlace, files: OpenFiles) -> DiskSegment:
    """Open the segment that is appended to, and cut off what is not whole at its end.

    Args:
        path: its file.
        place: whose messages are in it.
        files: opens the file.

    Raises:
        OSError: it cannot be read or cut.
    """
    size = path.stat().st_size
    index = _read_through(path, size, files)
    if index.size < size:
        logger.warning(
            "the last %d bytes of %s are no whole message and were cut off", size - index.size, path
        )
        files.truncate(str(path), index.size)
    lost = None
    stored = _stored_index(path)
    if stored is not None and stored.next_offset > index.next_offset:
        if index.size < stored.size:
            lost = _lost(path, index.next_offset, stored.next_offset)
        index.next_offset = stored.next_offset  # the last messages may have been compacted away
    return DiskSegment(path, place, index, files, lost)


def _stored_index(path: Path) -> SegmentIndex | None:
    stored = path.with_suffix(INDEX_SUFFIX)
    try:
        return SegmentIndex.decode(stored.read_bytes())
    except FileNotFoundError:
        return None
    except CorruptIndex:
        logger.warning("%s is damaged; the segment is read instead", stored)
        return None


def _read_through(path: Path, size: int, files: OpenFiles) -> SegmentIndex:
    index = SegmentIndex(int(path.stem))
    for found in scan(partial(files.read, str(path)), 0, size, index.next_offset):
        if not isinstance(found, Damage):
            index.add(found.size, found.offset, found.timestamp)
        elif found.next_offset is not None:
            index.skip(found.end - found.position)
            _lost(path, index.next_offset, found.next_offset)
    return index


def _lost(path: Path, first: int, following: int) -> range | None:
    """Tell of messages that are lost, if there are any."""
    if first >= following:
        return None
    logger.warning("messages from offset %d to %d in %s are lost", first, following - 1, path)
    return range(first, following)
