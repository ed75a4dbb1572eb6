"""A segment of a log on disk: a file of records, and a file of its index.

Damaged records are never served, and never skipped in silence: reading into a damaged range raises
`CorruptSegment`, reading before or after it works.

Messages survive the process. A failure of the machine may lose the newest ones of a log, as on a
real server: a segment is synced with its first message and when its index is stored, so that no
index claims messages that the disk does not have.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from liftbridge_aio.model import Message, StreamPartition

from .atomic_files import replace_file
from .core.record import CorruptRecord, RecordMark, TornRecord, decode, encode
from .core.record_scan import CHUNK_BYTES, Damage, scan
from .core.segment import CorruptSegment
from .core.segment_index import SegmentIndex
from .open_files import OpenFiles

logger = logging.getLogger("liftbridge_aio.broker")

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"

_SMALLEST_READ: Final = 4096
_REMEMBERED_POSITIONS: Final = 64


class DiskSegment:
    """A range of messages in a file named after its base offset."""

    def __init__(
        self,
        path: Path,
        partition: StreamPartition,
        index: SegmentIndex,
        files: OpenFiles,
        lost: range | None = None,
    ) -> None:
        """Use an existing file.

        Args:
            path: the file, named after the base offset.
            partition: the partition, which the records do not name.
            index: index of the file.
            files: opens the file.
            lost: offsets of messages that were in it, but of which no trace is left.
        """
        self.path = path
        self.base_offset = int(path.stem)
        self._file = str(path)
        self._partition = partition
        self._index = index
        self._files = files
        self._lost = lost
        # File positions by offset, where reads continue without a scan from an index entry.
        self._positions: dict[int, int] = {}

    @property
    def next_offset(self) -> int:
        """The offset after the last one ever appended, whether that message remains or not."""
        return self._index.next_offset

    @property
    def count(self) -> int:
        """Number of messages."""
        return self._index.count

    @property
    def size_bytes(self) -> int:
        """Bytes of the messages, and of damaged ranges between them."""
        return self._index.size

    @property
    def first_offset(self) -> int | None:
        """Offset of the first message, None without messages."""
        return self._index.first_offset if self._index.count else None

    @property
    def last_offset(self) -> int | None:
        """Offset of the last message, None without messages."""
        return self._index.last_offset if self._index.count else None

    @property
    def first_timestamp(self) -> int | None:
        """Timestamp of the first message in Unix nanoseconds, None without messages."""
        return self._index.first_timestamp if self._index.count else None

    @property
    def last_timestamp(self) -> int | None:
        """Timestamp of the last message in Unix nanoseconds, None without messages."""
        return self._index.last_timestamp if self._index.count else None

    def append(self, message: Message) -> None:
        """Append a message; its offset is `next_offset` or later.

        Raises:
            OSError: it cannot be stored; the segment is unchanged.
            ValueError: it does not fit in a record.
        """
        index = self._index
        record = encode(message, index.size)
        self._files.write(self._file, record, index.size)
        index.add(len(record), message.offset, message.timestamp)
        if index.count == 1:
            self.persist_index()

    def read(self, offset: int, limit: int, end: int) -> Sequence[Message]:
        """Return up to `limit` messages from `offset` on whose offsets are below `end`.

        Raises:
            CorruptSegment: requested messages are lost. To read those before them, call again with
                `first_offset` of the error as `end`.
            OSError: the file cannot be read.
        """
        batch: list[Message] = []
        end = min(end, self.next_offset)
        if offset < end and limit > 0:
            self._read_into(batch, offset, limit, end)
            self._check_none_lost(batch, offset, limit, end)
        return batch

    def _read_into(self, batch: list[Message], offset: int, limit: int, end: int) -> None:
        stream, partition = self._partition
        size = self._index.size
        position = self._positions.get(offset)
        lowest = offset
        if position is None:
            position, lowest = self._index.seek(offset)
        wanted = self._bytes_for(limit)
        while position < size and lowest < end:
            asked = min(wanted, size - position)
            data = self._files.read(self._file, asked, position)
            at = 0
            try:
                while at < asked:
                    message, following = decode(data, at, position + at, stream, partition)
                    lowest = message.offset + 1
                    if lowest > end:
                        return
                    at = following
                    if lowest > offset:
                        batch.append(message)
                        if len(batch) == limit:
                            self._remember(lowest, position + at)
                            return
                position += at
            except TornRecord as torn:
                position += at
                if at or (len(data) == asked and position + torn.needed <= size):
                    wanted = max(torn.needed, self._bytes_for(limit - len(batch)))
                else:
                    position, lowest = self._skip_damage(position, lowest, offset, end)
            except CorruptRecord:
                position, lowest = self._skip_damage(position + at, lowest, offset, end)
        self._remember(lowest, position)

    def _bytes_for(self, messages: int) -> int:
        average = self._index.size // max(self._index.count, 1) + 1
        return min(max(messages * average, _SMALLEST_READ), CHUNK_BYTES)

    def _remember(self, offset: int, position: int) -> None:
        if len(self._positions) >= _REMEMBERED_POSITIONS:
            del self._positions[next(iter(self._positions))]
        self._positions[offset] = position

    def _skip_damage(self, position: int, lowest: int, offset: int, end: int) -> tuple[int, int]:
        """Return where reading of `offset` continues, unless it is lost."""
        if lowest >= end:
            return position, lowest
        found = next(self._scan(position, lowest), None)
        following = self.next_offset
        if isinstance(found, Damage) and found.next_offset is not None:
            following = found.next_offset
            if following <= offset:
                return found.end, following
        raise CorruptSegment(self._file, max(lowest, self.base_offset), following)

    def _check_none_lost(self, batch: Sequence[Message], offset: int, limit: int, end: int) -> None:
        lost = self._lost
        if lost is None or offset >= lost.stop or end <= lost.start:
            return
        if len(batch) < limit or batch[-1].offset >= lost.start:
            raise CorruptSegment(self._file, lost.start, lost.stop)

    def _scan(self, position: int, lowest: int) -> Iterator[RecordMark | Damage]:
        read = partial(self._files.read, self._file)
        return scan(read, position, self._index.size, lowest)

    def offset_from(self, timestamp: int) -> int | None:
        """Return the offset of the first message at or after `timestamp`, None if all are earlier.

        Raises:
            OSError: the file cannot be read.
        """
        for found in self._scan(self._index.seek_time(timestamp), self.base_offset):
            if not isinstance(found, Damage) and found.timestamp >= timestamp:
                return found.offset
        return None

    def truncate(self, next_offset: int) -> None:
        """Delete the messages from `next_offset` on, which becomes the next to be appended.

        Raises:
            OSError: they cannot be deleted; the segment is unchanged.
        """
        index = SegmentIndex.decode(self._index.encode())
        index.cut_before(next_offset)
        lost = None
        for found in self._scan(index.size, self.base_offset):
            if isinstance(found, Damage):
                if found.next_offset is None or found.next_offset > next_offset:
                    lost = range(index.next_offset, next_offset)
                    break
                index.skip(found.end - found.position)
            elif found.offset >= next_offset:
                break
            else:
                index.add(found.size, found.offset, found.timestamp)
        index.next_offset = next_offset
        # The index is written first: one that covers less than the file is not trusted, so if the
        # process ends in between, nothing was truncated.
        self._store(index)
        self._files.truncate(self._file, index.size)
        self._index = index
        self._lost = lost or self._lost
        self._positions.clear()

    def seal(self, next_offset: int) -> None:
        """Store the index of a segment to which nothing is appended any more.

        Args:
            next_offset: base offset of the next segment.

        Raises:
            OSError: it cannot be stored; the next start scans the segment.
        """
        self._index.next_offset = next_offset
        if self._lost is None:  # else the next start scans again and finds the loss
            self._store(self._index)

    def persist_index(self) -> None:
        """Store the index as evidence of the messages, so that a start notices their loss.

        Messages may follow: an index that covers less than the file is not trusted.
        """
        if self._lost is not None or not self._index.count:
            return
        try:
            self._store(self._index)
        except OSError as error:  # the messages are stored
            logger.warning(
                "cannot store the index of %s, a loss of its messages would go unnoticed: %s",
                self.path,
                error,
            )

    def _store(self, index: SegmentIndex) -> None:
        self._files.sync(self._file)
        replace_file(self.path.with_suffix(INDEX_SUFFIX), [index.encode()])
