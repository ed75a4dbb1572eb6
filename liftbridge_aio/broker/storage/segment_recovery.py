"""Recovery of the segment files of an earlier process.

A file that is missing or has no message left, although its index has some, keeps the broker from
starting: otherwise offsets of acked messages would be assigned again.

The index of a segment that is followed by another is trusted if it is intact and matches the length
of the file; otherwise the file is scanned. The last one is always scanned: it may end with an
incomplete write, which is cut off; it cannot have been acked, unless the disk failed. Damage
elsewhere stays where it is: it is never served, and reading into it is an error.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

from liftbridge_aio.model import StreamPartition

from .core.record_scan import Damage, scan
from .core.segment import LostSegment
from .core.segment_index import CorruptIndex, SegmentIndex
from .disk_segment import INDEX_SUFFIX, DiskSegment
from .open_files import OpenFiles

logger = logging.getLogger("liftbridge_aio.broker")


def open_sealed(
    path: Path, partition: StreamPartition, following: int, files: OpenFiles
) -> DiskSegment:
    """Open a segment that is followed by another.

    Args:
        path: its file.
        partition: the partition, which the records do not name.
        following: base offset of the next segment.
        files: opens the file.

    Raises:
        LostSegment: none of its messages is left.
        OSError: it cannot be read.
    """
    size = path.stat().st_size
    stored = stored_index(path)
    if stored is not None and stored.size == size:
        lost = _lost_range(path, stored.next_offset, following)
        stored.next_offset = following
        return DiskSegment(path, partition, stored, files, lost)
    index = _scan_file(path, size, files)
    _check_not_all_lost(path, index, stored)
    is_cut = index.size < size or (stored is not None and index.size < stored.size)
    lost = _lost_range(path, index.next_offset, following) if is_cut else None
    segment = DiskSegment(path, partition, index, files, lost)
    segment.seal(following)
    return segment


def open_last(path: Path, partition: StreamPartition, files: OpenFiles) -> DiskSegment:
    """Open the last segment, and cut off an incomplete record at its end.

    Args:
        path: its file.
        partition: the partition, which the records do not name.
        files: opens the file.

    Raises:
        LostSegment: none of its messages is left.
        OSError: it cannot be read or cut.
    """
    size = path.stat().st_size
    index = _scan_file(path, size, files)
    stored = stored_index(path)
    _check_not_all_lost(path, index, stored)
    if index.size < size:
        logger.warning(
            "the last %d bytes of %s, an incomplete message, were cut off", size - index.size, path
        )
        files.truncate(str(path), index.size)
    lost = None
    if stored is not None and stored.next_offset > index.next_offset:
        if index.size < stored.size:
            lost = _lost_range(path, index.next_offset, stored.next_offset)
        index.next_offset = stored.next_offset  # the last messages may have been compacted away
    return DiskSegment(path, partition, index, files, lost)


def lost_segment(path: Path, problem: str, stored: SegmentIndex | None) -> LostSegment:
    """Return the error for a segment whose messages are all lost."""
    messages = "" if stored is None else f" It held messages from offset {stored.first_offset} on."
    return LostSegment(
        f"{path} {problem}.{messages} Put back a copy of the whole data directory, or begin with an"
        f" empty one; to give these messages up, remove {path.with_suffix(INDEX_SUFFIX).name} too"
    )


def _check_not_all_lost(path: Path, found: SegmentIndex, stored: SegmentIndex | None) -> None:
    if stored is not None and stored.count and not found.count:
        raise lost_segment(path, "is empty or damaged as a whole", stored)


def stored_index(path: Path) -> SegmentIndex | None:
    """Read the stored index of a segment; None if there is none, or it is damaged."""
    stored = path.with_suffix(INDEX_SUFFIX)
    try:
        return SegmentIndex.decode(stored.read_bytes())
    except FileNotFoundError:
        return None
    except CorruptIndex:
        logger.warning("%s is damaged; the segment is scanned instead", stored)
        return None


def _scan_file(path: Path, size: int, files: OpenFiles) -> SegmentIndex:
    index = SegmentIndex(int(path.stem))
    for found in scan(partial(files.read, str(path)), 0, size, index.next_offset):
        if not isinstance(found, Damage):
            index.add(found.size, found.offset, found.timestamp)
        elif found.next_offset is not None:
            index.skip(found.end - found.position)
            _lost_range(path, index.next_offset, found.next_offset)
    return index


def _lost_range(path: Path, first: int, following: int) -> range | None:
    """Return the range of lost offsets and log it; None if it is empty."""
    if first >= following:
        return None
    logger.warning("messages from offset %d to %d in %s are lost", first, following - 1, path)
    return range(first, following)
