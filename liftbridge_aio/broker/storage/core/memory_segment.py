"""Segments of a log, in memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import attrgetter

from liftbridge_aio.model import Message

from .record import record_size
from .segment import Segment


class MemorySegment:
    """A range of messages, in a list."""

    __slots__ = ("__weakref__", "_messages", "base_offset", "next_offset", "size_bytes")

    def __init__(self, base_offset: int) -> None:
        """Create an empty memory segment."""
        self._messages: list[Message] = []
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes = 0

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self._messages)

    @property
    def first_offset(self) -> int | None:
        """Offset of the first message, None without messages."""
        return self._messages[0].offset if self._messages else None

    @property
    def last_offset(self) -> int | None:
        """Offset of the last message, None without messages."""
        return self._messages[-1].offset if self._messages else None

    @property
    def first_timestamp(self) -> int | None:
        """Timestamp of the first message in Unix nanoseconds, None without messages."""
        return self._messages[0].timestamp if self._messages else None

    @property
    def last_timestamp(self) -> int | None:
        """Timestamp of the last message in Unix nanoseconds, None without messages."""
        return self._messages[-1].timestamp if self._messages else None

    def append(self, message: Message) -> None:
        """Append a message; its offset is `next_offset` or later."""
        self._messages.append(message)
        self.next_offset = message.offset + 1
        self.size_bytes += record_size(message)

    def read(self, offset: int, limit: int, end: int) -> Sequence[Message]:
        """Return up to `limit` messages from `offset` on whose offsets are below `end`."""
        first = self._index_of(offset)
        last = min(first + limit, self._index_of(end))
        return self._messages[first:last]

    def _index_of(self, offset: int) -> int:
        """Return the index of the first message at or after an offset."""
        messages = self._messages
        if not messages or offset > messages[-1].offset:
            return len(messages)
        index = offset - messages[0].offset
        if index <= 0:
            return 0
        if index < len(messages) and messages[index].offset == offset:
            return index  # true wherever compaction left no gap before it
        return bisect_left(messages, offset, key=attrgetter("offset"))

    def offset_from(self, timestamp: int) -> int | None:
        """Return the offset of the first message at or after `timestamp`, None without one."""
        index = bisect_left(self._messages, timestamp, key=attrgetter("timestamp"))
        return self._messages[index].offset if index < len(self._messages) else None

    def truncate(self, next_offset: int) -> None:
        """Delete the messages from `next_offset` on, which becomes the next to be appended."""
        first = self._index_of(next_offset)
        self.size_bytes -= sum(map(record_size, self._messages[first:]))
        del self._messages[first:]
        self.next_offset = next_offset


class MemorySegmentStore:
    """The segments of one log, in memory."""

    def __init__(self) -> None:
        """Create a memory segment store without segments."""
        self._segments: list[Segment] = []

    def open(self) -> Sequence[Segment]:
        """Return the segments, oldest first; none: the log is new."""
        return tuple(self._segments)

    def create(self, base_offset: int) -> Segment:
        """Create the next segment."""
        segment = MemorySegment(base_offset)
        self._segments.append(segment)
        return segment

    def rewrite(self, segment: Segment, messages: Iterable[Message]) -> Segment:
        """Replace `segment` by one with only `messages`."""
        rewritten = MemorySegment(segment.base_offset)
        for message in messages:
            rewritten.append(message)
        rewritten.next_offset = segment.next_offset
        self._segments[self._segments.index(segment)] = rewritten
        return rewritten

    def remove(self, segment: Segment) -> None:
        """Delete a segment."""
        self._segments.remove(segment)

    def close(self) -> None:
        """Do nothing: memory need not be released."""

    def delete(self) -> None:
        """Delete all segments."""
        self._segments.clear()
