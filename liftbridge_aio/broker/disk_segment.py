"""A segment of a log as a file of records, and beside it a file with its index.

What is damaged is never served, and never passed over in silence: reading into a damaged stretch
raises `CorruptSegment`, reading before or behind it works. Nothing is synced to the disk: messages
outlive the process, but not the machine, as on a real server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from liftbridge_aio.model import Message

from .file_replacement import replace_file
from .open_files import OpenFiles
from .record import CorruptRecord, RecordMark, TornRecord, decode, encode
from .record_scan import CHUNK_BYTES, Damage, scan
from .segment import CorruptSegment
from .segment_index import SegmentIndex

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"

_SMALLEST_READ: Final = 4096
_REMEMBERED_POSITIONS: Final = 64


class LogPlace(NamedTuple):
    """Which partition's messages are in a file; the records do not say."""

    stream: str
    partition: int


class DiskSegment:
    """A run of messages in a file named after its base offset."""

    def __init__(
        self,
        path: Path,
        place: LogPlace,
        index: SegmentIndex,
        files: OpenFiles,
        lost: range | None = None,
    ) -> None:
        """Use a file that exists.

        Args:
            path: the file, named after the base offset.
            place: whose messages are in it.
            index: what is in it.
            files: opens it.
            lost: offsets of messages that were in it, but of which no trace is left.
        """
        self.path = path
        self.base_offset = int(path.stem)
        self._file = str(path)
        self._place = place
        self._index = index
        self._files = files
        self._lost = lost
        # Where reading goes on: without it each batch would walk there from an entry of the index.
        self._positions: dict[int, int] = {}

    @property
    def next_offset(self) -> int:
        """The offset after the last one that was ever appended, whether it is kept or not."""
        return self._index.next_offset

    @property
    def count(self) -> int:
        """Messages that are kept."""
        return self._index.count

    @property
    def size_bytes(self) -> int:
        """What the kept messages take; with them, what is damaged between them."""
        return self._index.size

    @property
    def first_offset(self) -> int | None:
        """Offset of the first message that is kept; None where there is none."""
        return self._index.first_offset if self._index.count else None

    @property
    def last_offset(self) -> int | None:
        """Offset of the last message that is kept; None where there is none."""
        return self._index.last_offset if self._index.count else None

    @property
    def first_timestamp(self) -> int | None:
        """When its first message was stored, in Unix nanoseconds; None where there is none."""
        return self._index.first_timestamp if self._index.count else None

    @property
    def last_timestamp(self) -> int | None:
        """When its last message was stored, in Unix nanoseconds; None where there is none."""
        return self._index.last_timestamp if self._index.count else None

    def append(self, message: Message) -> None:
        """Keep a message; its offset is `next_offset` or later.

        Raises:
            OSError: it cannot be kept; the segment is as it was before.
            ValueError: no record can hold it.
        """
        index = self._index
        record = encode(message, index.size)
        self._files.write(self._file, record, index.size)
        index.add(len(record), message.offset, message.timestamp)

    def read(self, offset: int, limit: int, end: int) -> Sequence[Message]:
        """Return up to `limit` messages from `offset` on whose offsets are below `end`.

        Raises:
            CorruptSegment: messages among those asked for are lost. Those before them are returned
                to whoever asks again with its `first_offset` as the `end`.
            OSError: the file cannot be read.
        """
        batch: list[Message] = []
        end = min(end, self.next_offset)
        if offset < end and limit > 0:
            self._collect(batch, offset, limit, end)
            self._check_nothing_is_lost(batch, offset, limit, end)
        return batch

    def _collect(self, batch: list[Message], offset: int, limit: int, end: int) -> None:
        stream, partition = self._place
        size = self._index.size
        position = self._positions.get(offset)
        lowest = offset
        if position is None:
            position, lowest = self._index.place_before(offset)
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
                    position, lowest = self._behind_damage(position, lowest, offset, end)
            except CorruptRecord:
                position, lowest = self._behind_damage(position + at, lowest, offset, end)
        self._remember(lowest, position)

    def _bytes_for(self, messages: int) -> int:
        average = self._index.size // max(self._index.count, 1) + 1
        return min(max(messages * average, _SMALLEST_READ), CHUNK_BYTES)

    def _remember(self, offset: int, position: int) -> None:
        if len(self._positions) >= _REMEMBERED_POSITIONS:
            del self._positions[next(iter(self._positions))]
        self._positions[offset] = position

    def _behind_damage(self, position: int, lowest: int, offset: int, end: int) -> tuple[int, int]:
        """Return where reading for `offset` goes on, unless what it asks for is lost."""
        if lowest >= end:
            return position, lowest
        found = next(self._scan(position, lowest), None)
        following = self.next_offset
        if isinstance(found, Damage) and found.next_offset is not None:
            following = found.next_offset
            if following <= offset:
                return found.end, following
        raise CorruptSegment(self._file, max(lowest, self.base_offset), following)

    def _check_nothing_is_lost(
        self, batch: Sequence[Message], offset: int, limit: int, end: int
    ) -> None:
        lost = self._lost
        if lost is None or offset >= lost.stop or end <= lost.start:
            return
        if len(batch) < limit or batch[-1].offset >= lost.start:
            raise CorruptSegment(self._file, lost.start, lost.stop)

    def _scan(self, position: int, lowest: int) -> Iterator[RecordMark | Damage]:
        read = partial(self._files.read, self._file)
        return scan(read, position, self._index.size, lowest)

    def offset_from(self, timestamp: int) -> int | None:
        """Return the offset of the first message at or after `timestamp`; None: all are earlier.

        Raises:
            OSError: the file cannot be read.
        """
        for found in self._scan(self._index.position_before_time(timestamp), self.base_offset):
            if not isinstance(found, Damage) and found.timestamp >= timestamp:
                return found.offset
        return None

    def truncate(self, next_offset: int) -> None:
        """Forget the messages from `next_offset` on, which is then the next to be appended.

        Raises:
            OSError: they cannot be forgotten; the segment is as it was.
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
        # An index that knows of less than the file has is not believed, so this goes first: should
        # the process end in between, nothing was truncated.
        self._store(index)
        self._files.truncate(self._file, index.size)
        self._index = index
        self._lost = lost or self._lost
        self._positions.clear()

    def seal(self, next_offset: int) -> None:
        """Keep the index for the next start: nothing is appended any more.

        Args:
            next_offset: the base offset of the segment that follows.

        Raises:
            OSError: it cannot be kept; the next start reads the whole segment.
        """
        self._index.next_offset = next_offset
        if self._lost is None:  # else the next start shall find out again
            self._store(self._index)

    def _store(self, index: SegmentIndex) -> None:
        replace_file(self.path.with_suffix(INDEX_SUFFIX), [index.encode()])
