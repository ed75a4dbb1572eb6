"""The interfaces of segments and of the stores that hold them.

There are two stores: memory and a folder on disk. A log rolls to a new segment when the last one is
full or old; retention deletes whole segments, compaction rewrites them; only the last segment is
ever appended to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from liftbridge_aio.model import Message


class Segment(Protocol):
    """A range of messages in the order of their offsets; compaction leaves gaps.

    Segments are compared and hashed by identity and can be weakly referenced: a reader holds the
    one that it reads from. The properties of a closed segment stay readable.
    """

    @property
    def base_offset(self) -> int:
        """The lowest offset that a message of the segment can have."""

    @property
    def next_offset(self) -> int:
        """The offset after the last one ever appended, whether that message remains or not."""

    @property
    def count(self) -> int:
        """Number of messages."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the messages in a real server's files."""

    @property
    def first_offset(self) -> int | None:
        """Offset of the first message, None without messages."""

    @property
    def last_offset(self) -> int | None:
        """Offset of the last message, None without messages."""

    @property
    def first_timestamp(self) -> int | None:
        """Timestamp of the first message in Unix nanoseconds, None without messages."""

    @property
    def last_timestamp(self) -> int | None:
        """Timestamp of the last message in Unix nanoseconds, None without messages."""

    def append(self, message: Message) -> None:
        """Append a message; its offset is `next_offset` or later.

        Once this returns, a message on disk survives the process.

        Raises:
            OSError: it cannot be stored; the segment is unchanged.
        """

    def read(self, offset: int, limit: int, end: int) -> Sequence[Message]:
        """Return up to `limit` messages from `offset` on whose offsets are below `end`.

        Raises:
            CorruptSegment: stored messages are damaged.
        """

    def offset_from(self, timestamp: int) -> int | None:
        """Return the offset of the first message at or after `timestamp`, None without one."""

    def truncate(self, next_offset: int) -> None:
        """Delete the messages from `next_offset` on, which becomes the next to be appended.

        It is never below `base_offset`; the segment may be empty afterwards.
        """


class SegmentStore(Protocol):
    """Stores the segments of one log."""

    def open(self) -> Sequence[Segment]:
        """Return the stored segments, oldest first; none: the log is new."""

    def create(self, base_offset: int) -> Segment:
        """Create the next segment."""

    def rewrite(self, segment: Segment, messages: Iterable[Message]) -> Segment:
        """Atomically replace `segment` by one with only `messages`.

        The new segment is another object with the same base offset; the old one is no longer used.
        `messages` are some of those of `segment`, in order, and at least one.
        """

    def remove(self, segment: Segment) -> None:
        """Delete a segment."""

    def close(self) -> None:
        """Release resources; `open` may follow."""

    def delete(self) -> None:
        """Delete all segments."""


class LostSegment(OSError):
    """A file with messages is missing or empty; the text says which, and what to do."""


class CorruptSegment(Exception):
    """Stored bytes do not match their checksum: messages are lost.

    Messages before and after them can be read.
    """

    def __init__(self, where: str, first_offset: int, next_offset: int) -> None:
        super().__init__(
            f"messages from offset {first_offset} to {next_offset - 1} are lost: {where} is damaged"
        )
        self.where = where
        """The file."""
        self.first_offset = first_offset
        """Offset of the first message that may be lost."""
        self.next_offset = next_offset
        """The offset from which messages can be read again."""
