"""What a log is made of: segments, and the place where they are kept.

Two places exist: memory and a folder on disk. A log rolls to a new segment when the last one is
full or old; retention removes whole segments, compaction rewrites them; only the last segment is
ever appended to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from liftbridge_aio.model import Message


class Segment(Protocol):
    """A run of messages in the order of their offsets. Compaction leaves gaps between them.

    Segments are compared and hashed by identity and can be weakly referenced: a reader holds on to
    the one it reads from. What is known of a closed segment, its messages aside, stays readable.
    """

    @property
    def base_offset(self) -> int:
        """The offset that the segment was begun for; none of its messages has a lower one."""

    @property
    def next_offset(self) -> int:
        """The offset after the last one that was ever appended, whether it is kept or not."""

    @property
    def count(self) -> int:
        """Messages that are kept."""

    @property
    def size_bytes(self) -> int:
        """What the kept messages take, by the measure of a real server's files."""

    @property
    def first_offset(self) -> int | None:
        """Offset of the first message that is kept; None where there is none."""

    @property
    def last_offset(self) -> int | None:
        """Offset of the last message that is kept; None where there is none."""

    @property
    def first_timestamp(self) -> int | None:
        """When its first message was stored, in Unix nanoseconds; None where there is none."""

    @property
    def last_timestamp(self) -> int | None:
        """When its last message was stored, in Unix nanoseconds; None where there is none."""

    def append(self, message: Message) -> None:
        """Keep a message; its offset is `next_offset` or later.

        Once this returns, the message outlives the process, where the place does at all.

        Raises:
            OSError: it cannot be kept; the segment is as it was before.
        """

    def read(self, offset: int, limit: int, end: int) -> Sequence[Message]:
        """Return up to `limit` messages from `offset` on whose offsets are below `end`.

        Raises:
            CorruptSegment: what was kept has changed since.
        """

    def offset_from(self, timestamp: int) -> int | None:
        """Return the offset of the first message at or after `timestamp`; None: all are earlier."""

    def truncate(self, next_offset: int) -> None:
        """Forget the messages from `next_offset` on, which is then the next to be appended.

        It is never below `base_offset`; the segment may be empty afterwards.
        """


class SegmentStore(Protocol):
    """Where the segments of one log are kept."""

    def open(self) -> Sequence[Segment]:
        """Return what is kept, oldest first; none: the log is new."""

    def create(self, base_offset: int) -> Segment:
        """Begin a segment, which follows all others."""

    def rewrite(self, segment: Segment, messages: Iterable[Message]) -> Segment:
        """Put in the place of `segment` one that keeps only `messages`, all of them or nothing.

        The new segment is another object, with the same base offset; the old one is no longer used.
        `messages` are some of those of `segment`, in their order, and at least one.
        """

    def remove(self, segment: Segment) -> None:
        """Forget a segment and what is in it."""

    def close(self) -> None:
        """Release what is held open; nothing is forgotten, and `open` may follow."""

    def delete(self) -> None:
        """Forget everything."""


class CorruptSegment(Exception):
    """Stored bytes do not have the checksum that they were stored with: messages are lost.

    What comes before and after them can be read.
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
