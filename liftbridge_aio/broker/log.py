"""The log of one partition, in memory.

Pure: no clock and no waiting. Whoever wants to know of changes registers a plain callback.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import attrgetter

from liftbridge_aio.model import UNCHECKED_OFFSET, Message

NO_OFFSET = -1
"""What the wire calls "there is no such offset"."""


class LogReadonly(Exception):
    """Nothing is appended to a read-only log."""


class IncorrectOffset(Exception):
    """The message would not get the offset that its publisher expects."""


class LookupFailed(Exception):
    """No offset could be found for a timestamp; the text is the real server's (W23)."""


class LogState(enum.Enum):
    """Whether a log can be read. Each state is final but OPEN; resuming makes a new log."""

    OPEN = "open"
    CLOSED = "closed"
    DELETED = "deleted"


class PartitionLog:
    """Messages of a partition, in the order of their offsets.

    A message is stored first and committed later (at once on a single node); readers see committed
    messages only.
    """

    def __init__(self, *, concurrency_control: bool = False) -> None:
        """Begin empty.

        Args:
            concurrency_control: check the expected offset of each message.
        """
        self.concurrency_control = concurrency_control
        self._messages: list[Message] = []
        self._base_offset = 0
        self._high_watermark = NO_OFFSET
        self._readonly = False
        self._state = LogState.OPEN
        self._watchers: list[Callable[[], None]] = []

    @property
    def oldest_offset(self) -> int:
        """Offset of the first stored message, -1 where there is none."""
        return self._base_offset if self._messages else NO_OFFSET

    @property
    def newest_offset(self) -> int:
        """Offset of the last stored message, -1 where there never was one."""
        return self.next_offset - 1

    @property
    def next_offset(self) -> int:
        """Offset of the message that is appended next."""
        return self._base_offset + len(self._messages)

    @property
    def high_watermark(self) -> int:
        """Offset of the last committed message, -1 where there is none."""
        return self._high_watermark

    @property
    def readonly(self) -> bool:
        """Whether messages are refused."""
        return self._readonly

    @property
    def state(self) -> LogState:
        """Whether the log can be read."""
        return self._state

    def append(self, message: Message, expected_offset: int = UNCHECKED_OFFSET) -> int:
        """Store a message, give it its offset and return that.

        Args:
            message: changed in place: its `offset` is set.
            expected_offset: with concurrency control, the only offset it may get; -1: any.

        Raises:
            LogReadonly: the log is read-only.
            IncorrectOffset: the message would get another offset than the expected one.
        """
        if self._readonly:
            raise LogReadonly
        offset = self.next_offset
        if self.concurrency_control and expected_offset not in (UNCHECKED_OFFSET, offset):
            raise IncorrectOffset
        message.offset = offset
        self._messages.append(message)
        return offset

    def commit(self, offset: int) -> None:
        """Let readers see messages up to `offset`; never goes back."""
        if offset > self._high_watermark:
            self._high_watermark = min(offset, self.newest_offset)
            self._changed()

    def read(self, offset: int, limit: int) -> Sequence[Message]:
        """Return up to `limit` committed messages from `offset` on."""
        first = max(offset - self._base_offset, 0)
        last = min(first + limit, self._high_watermark + 1 - self._base_offset)
        return self._messages[first:last]

    def set_readonly(self, readonly: bool) -> None:
        """Refuse or accept messages; readers at the end are told."""
        self._readonly = readonly
        self._changed()

    def close(self) -> None:
        """End all reading; what is stored stays for `reopened`."""
        if self._state is LogState.OPEN:
            self._state = LogState.CLOSED
            self._changed()

    def delete(self) -> None:
        """End all reading for good and forget what is stored."""
        self._state = LogState.DELETED
        self._base_offset = self.next_offset
        self._messages = []
        self._changed()

    def reopened(self) -> PartitionLog:
        """Return a new, open log that goes on where this closed one ended.

        As on a real server, the new log is not read-only even if the old one was.
        """
        log = PartitionLog(concurrency_control=self.concurrency_control)
        log._messages = self._messages
        log._base_offset = self._base_offset
        log._high_watermark = self._high_watermark
        return log

    def earliest_offset_from(self, timestamp: int) -> int:
        """Return the offset of the first message at or after `timestamp`, else the next offset.

        Raises:
            LookupFailed: the log is closed.
        """
        self._check_open()
        return self._base_offset + self._index_from(timestamp)

    def latest_offset_until(self, timestamp: int) -> int:
        """Return the offset of the last message at or before `timestamp`.

        Of several messages with exactly this timestamp it is the first, as on a real server.

        Raises:
            LookupFailed: the log is closed, is empty or begins later.
        """
        self._check_open()
        if not self._messages:
            text = "failed to find log segment for timestamp: EOF"
            raise LookupFailed(text)
        if timestamp < self._messages[0].timestamp:
            text = "timestamp is before the beginning of the log"
            raise LookupFailed(text)
        index = self._index_from(timestamp)
        if index < len(self._messages) and self._messages[index].timestamp == timestamp:
            return self._base_offset + index
        return self._base_offset + index - 1

    def _check_open(self) -> None:
        if self._state is not LogState.OPEN:
            text = "failed to find log segment for timestamp: segment has been closed"
            raise LookupFailed(text)

    def _index_from(self, timestamp: int) -> int:
        return bisect_left(self._messages, timestamp, key=attrgetter("timestamp"))

    def watch(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each commit and each change of state."""
        self._watchers.append(callback)

    def unwatch(self, callback: Callable[[], None]) -> None:
        """Undo `watch`."""
        self._watchers.remove(callback)

    def _changed(self) -> None:
        for callback in self._watchers:
            callback()
