"""The log of one partition: messages in segments, which it rolls, cleans and truncates.

Pure but for the store of the segments: no clock and no waiting. Changes are reported to plain
callbacks.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Final
from weakref import WeakSet

from liftbridge_aio.model import UNCHECKED_OFFSET, Message

from . import cleaning, timestamp_lookup
from .leader_epochs import LeaderEpochs
from .memory_segment import MemorySegment, MemorySegmentStore
from .segment import CorruptSegment, Segment, SegmentStore
from .stream_config import LogLimits
from .timestamp_lookup import LookupFailed

NO_OFFSET: Final = -1
"""The protocol's value for "no offset"."""


class LogReadonly(Exception):
    """The log is read-only."""


class IncorrectOffset(Exception):
    """The message would not get the offset that its publisher expects."""


class LogState(enum.Enum):
    """The states of a log. All but OPEN are final; resuming creates a new log."""

    OPEN = "open"
    CLOSED = "closed"
    DELETED = "deleted"


class PartitionLog:
    """The messages of a partition in the order of their offsets; cleaning leaves gaps.

    A message is stored first and committed later (at once on a single node); readers see committed
    messages only. Only the last segment is appended to.
    """

    def __init__(
        self,
        store: SegmentStore | None = None,
        limits: LogLimits | None = None,
        *,
        concurrency_control: bool = False,
    ) -> None:
        """Continue where the store ends; nothing is committed before `commit`.

        Args:
            store: stores the segments; None: in memory.
            limits: when to roll and what to delete; None: a real server's defaults.
            concurrency_control: check the expected offset of each message.

        Raises:
            OSError: the store cannot be opened.
        """
        self.concurrency_control = concurrency_control
        self._store: SegmentStore = MemorySegmentStore() if store is None else store
        self._limits = LogLimits() if limits is None else limits
        self._segments = list(self._store.open()) or [self._store.create(0)]
        self._active = self._segments[-1]
        self._next_offset = self._active.next_offset
        self._high_watermark = NO_OFFSET
        self._noted_watermark = NO_OFFSET
        """The high watermark that a real server would have on its disk."""
        self._epochs = LeaderEpochs()
        self._removed: WeakSet[Segment] = WeakSet()
        self._compacted_until = 0
        self._compacted_with: int | None = None
        self._readonly = False
        self._state = LogState.OPEN
        self._watchers: list[Callable[[], None]] = []

    @property
    def oldest_offset(self) -> int:
        """Offset of the first stored message, -1 if there is none."""
        first = self._segments[0].first_offset
        return NO_OFFSET if first is None else first

    @property
    def newest_offset(self) -> int:
        """Offset of the last message that was ever stored, -1 if there was none."""
        return self._next_offset - 1

    @property
    def next_offset(self) -> int:
        """Offset of the message that is appended next."""
        return self._next_offset

    @property
    def high_watermark(self) -> int:
        """Offset of the last committed message, -1 if there is none."""
        return self._high_watermark

    @property
    def readonly(self) -> bool:
        """True if messages are refused."""
        return self._readonly

    @property
    def state(self) -> LogState:
        """State of the log."""
        return self._state

    @property
    def segments(self) -> Sequence[Segment]:
        """The current segments, oldest first; at least one."""
        return tuple(self._segments)

    def append(self, message: Message, expected_offset: int = UNCHECKED_OFFSET) -> int:
        """Store a message, set its offset and return that.

        Args:
            message: changed in place: its `offset` is set. Its timestamp also serves as the
                current time, for the age of the segment.
            expected_offset: with concurrency control, the only offset that is accepted; -1: any.

        Raises:
            LogReadonly: the log is read-only.
            IncorrectOffset: the next offset is not the expected one.
            OSError: the store failed; the log is unchanged.
        """
        if self._readonly:
            raise LogReadonly
        if self._must_roll(message.timestamp):
            self._roll()
        offset = self._next_offset
        if self.concurrency_control and expected_offset not in (UNCHECKED_OFFSET, offset):
            raise IncorrectOffset
        message.offset = offset
        self._active.append(message)
        self._next_offset = offset + 1
        return offset

    def append_replicated(
        self, messages: Iterable[Message], epochs: LeaderEpochs | None = None
    ) -> None:
        """Store messages of a leader as they are, even if the log is read-only.

        Args:
            messages: their offsets ascend from `next_offset` or later.
            epochs: the epochs of the leader's log, to be recorded for these messages.

        Raises:
            ValueError: an offset is lower than the next one.
            OSError: the store failed; the messages before are stored.
        """
        for message in messages:
            if message.offset < self._next_offset:
                raise ValueError(
                    f"offset {message.offset} where {self._next_offset} or later must follow"
                )
            if self._must_roll(message.timestamp):
                self._roll()
            self._active.append(message)
            self._next_offset = message.offset + 1
            if epochs is not None:
                self._epochs.learn(epochs, message.offset)

    def commit(self, offset: int) -> None:
        """Raise the high watermark to `offset`; never lowers it."""
        if offset > self._high_watermark:
            self._high_watermark = min(offset, self._next_offset - 1)
            self._changed()

    def note_high_watermark(self) -> None:
        """Keep the high watermark for `lose_high_watermark`."""
        self._noted_watermark = self._high_watermark

    def lose_high_watermark(self) -> None:
        """Return to the noted high watermark, as a real server does in a crash."""
        self._high_watermark = min(self._high_watermark, self._noted_watermark)

    def read(self, offset: int, limit: int) -> Sequence[Message]:
        """Return up to `limit` committed messages from `offset` on.

        Raises:
            CorruptSegment: stored messages are damaged.
        """
        return self._read(offset, limit, self._high_watermark + 1)

    def read_stored(self, offset: int, limit: int) -> Sequence[Message]:
        """Return up to `limit` messages from `offset` on, whether they are committed or not.

        Raises:
            CorruptSegment: stored messages are damaged.
        """
        return self._read(offset, limit, self._next_offset)

    def _read(self, offset: int, limit: int, end: int) -> Sequence[Message]:
        try:
            return self._read_through(offset, limit, end)
        except CorruptSegment as damage:
            before = self._read_through(offset, limit, min(end, damage.first_offset))
            if not before:
                raise
            return before

    def _read_through(self, offset: int, limit: int, end: int) -> Sequence[Message]:
        if offset >= self._active.base_offset:
            return self._active.read(offset, limit, end)
        batch: list[Message] = []
        for index in range(self._index_of(offset), len(self._segments)):
            batch += self._segments[index].read(offset, limit - len(batch), end)
            if len(batch) == limit:
                break
        return batch

    def segment_of(self, offset: int) -> Segment:
        """Return the segment of an offset, the oldest if the offset is older."""
        if offset >= self._active.base_offset:
            return self._active
        return self._segments[self._index_of(offset)]

    def _index_of(self, offset: int) -> int:
        index = bisect_right(self._segments, offset, key=attrgetter("base_offset")) - 1
        return max(index, 0)

    def was_removed(self, segment: Segment) -> bool:
        """Return True if a segment was removed before compaction processed it."""
        return segment in self._removed

    def truncate(self, next_offset: int) -> None:
        """Delete all messages from `next_offset` on, and lower the high watermark with them.

        Epochs that began there are dropped even if they have no messages.

        Raises:
            OSError: the store failed; the log may have been truncated in part, from its end.
        """
        next_offset = max(next_offset, 0)
        self._epochs.forget_from(next_offset)
        if next_offset >= self._next_offset:
            return
        while len(self._segments) > 1 and self._segments[-1].base_offset >= next_offset:
            self._remove(-1)
        if self._segments[-1].base_offset > next_offset:
            self._remove(-1)
            self._segments.append(self._store.create(next_offset))
        else:
            self._segments[-1].truncate(next_offset)
        self._active = self._segments[-1]
        self._next_offset = next_offset
        self._high_watermark = min(self._high_watermark, next_offset - 1)
        self._compacted_until = min(self._compacted_until, self._active.base_offset)
        self._compacted_with = None
        self._changed()

    @property
    def epochs(self) -> LeaderEpochs:
        """The leader epochs of the log, read-only for callers."""
        return self._epochs

    @property
    def last_epoch(self) -> int:
        """The latest leader epoch, 0 if there is none."""
        return self._epochs.last

    def begin_epoch(self, epoch: int) -> None:
        """Record that a leader epoch begins at the next offset."""
        self._epochs.begin(epoch, self._next_offset)

    def end_offset_of(self, epoch: int) -> int:
        """Return the end offset of a leader epoch, the next offset if it has not ended."""
        end = self._epochs.end_of(epoch)
        return self._next_offset if end is None else end

    def clean(self, now: int) -> None:
        """Roll the last segment if due; otherwise apply retention, then compaction.

        As on a real server, a round that rolls does nothing else.

        Args:
            now: Unix nanoseconds.

        Raises:
            OSError: the store failed; the next round retries.
            CorruptSegment: stored messages are damaged.
        """
        if self._state is not LogState.OPEN:
            return
        if self._must_roll(now):
            self._roll()
            return
        for _ in range(cleaning.expired_segments(self._segments, self._limits, now)):
            self._remove(0)
        self._epochs.forget_before(self._segments[0].base_offset)
        if self._limits.compact:
            self._compact()

    def _must_roll(self, now: int) -> bool:
        if self._active.size_bytes >= self._limits.segment_max_bytes:
            return True
        age = self._limits.segment_max_age
        begun = self._active.first_timestamp
        return age != 0 and begun is not None and now - begun >= age

    def _roll(self) -> None:
        self._active = self._store.create(self._next_offset)
        self._segments.append(self._active)

    def _remove(self, index: int) -> None:
        segment = self._segments.pop(index)
        if segment.base_offset >= self._compacted_until:
            self._removed.add(segment)
        self._store.remove(segment)

    def _compact(self) -> None:
        until, committed = self._active.base_offset, self._high_watermark
        if (until, committed) == (self._compacted_until, self._compacted_with):
            return
        latest = cleaning.latest_offsets(self._segments, committed)
        for segment in self._segments[:-1]:
            retained = cleaning.retained(segment, latest, committed)
            index = self._segments.index(segment)
            if not retained:
                del self._segments[index]
                self._store.remove(segment)
            elif len(retained) < segment.count:
                self._segments[index] = self._store.rewrite(segment, retained)
        self._compacted_until, self._compacted_with = until, committed

    def set_readonly(self, readonly: bool) -> None:
        """Refuse or accept messages; readers at the end of a read-only log end."""
        self._readonly = readonly
        self._changed()

    def close(self) -> None:
        """End all readers; stored messages stay for `reopened`."""
        if self._state is LogState.OPEN:
            self._state = LogState.CLOSED
            self.note_high_watermark()
            self._store.close()
            self._changed()

    def delete(self) -> None:
        """End all readers and delete the stored messages."""
        if self._state is LogState.DELETED:
            return
        self._state = LogState.DELETED
        self._active = MemorySegment(self._next_offset)
        self._segments = [self._active]
        self._store.delete()
        self._changed()

    def reopened(self) -> PartitionLog:
        """Return a new, open log that continues where this closed one ended.

        As on a real server, the new log is not read-only even if the old one was.
        """
        log = PartitionLog(self._store, self._limits, concurrency_control=self.concurrency_control)
        log._high_watermark = self._high_watermark
        log._noted_watermark = self._noted_watermark
        log._epochs = self._epochs
        return log

    def earliest_offset_from(self, timestamp: int) -> int:
        """Return the offset of the first message at or after `timestamp`, else the next offset.

        Raises:
            LookupFailed: the log is closed.
        """
        self._check_open()
        found = timestamp_lookup.earliest_offset_from(self._segments, timestamp)
        return self._next_offset if found is None else found

    def latest_offset_until(self, timestamp: int) -> int:
        """Return the offset of the last message at or before `timestamp`.

        Raises:
            LookupFailed: the log is closed, is empty, begins later, or ends with an empty segment.
        """
        self._check_open()
        return timestamp_lookup.latest_offset_until(self._segments, timestamp)

    def _check_open(self) -> None:
        if self._state is not LogState.OPEN:
            raise LookupFailed("failed to find log segment for timestamp: segment has been closed")

    def watch(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each commit, truncation and change of state."""
        self._watchers.append(callback)

    def unwatch(self, callback: Callable[[], None]) -> None:
        """Undo `watch`."""
        self._watchers.remove(callback)

    def _changed(self) -> None:
        for callback in self._watchers:
            callback()
