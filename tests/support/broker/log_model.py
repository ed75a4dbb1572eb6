"""The specification of a log, in plain lists: slow and simple."""

from __future__ import annotations

from dataclasses import dataclass, field

from liftbridge_aio.broker.storage.core.log import LogState, PartitionLog
from liftbridge_aio.broker.storage.core.reader import LogReader, ReadEnd
from liftbridge_aio.broker.storage.core.record import record_size
from liftbridge_aio.broker.storage.core.stream_config import LogLimits
from liftbridge_aio.model import Message


@dataclass(eq=False)
class ModelSegment:
    """Some messages, and their state."""

    base: int
    messages: list[Message] = field(default_factory=list)
    was_compacted: bool = False
    ends_readers: bool = False


@dataclass(eq=False)
class ModelLog:
    """Segments in a list; the offsets are in the messages."""

    limits: LogLimits
    segments: list[ModelSegment] = field(default_factory=lambda: [ModelSegment(0)])
    next_offset: int = 0
    committed: int = -1
    epochs: dict[int, int] = field(default_factory=dict)
    """The base offset of each segment."""

    @property
    def active(self) -> ModelSegment:
        return self.segments[-1]

    @property
    def messages(self) -> list[Message]:
        return [message for segment in self.segments for message in segment.messages]

    def between(self, first: int, last: int) -> list[Message]:
        return [message for message in self.messages if first <= message.offset <= last]

    def must_roll(self, now: int) -> bool:
        if self.size(self.active) >= self.limits.segment_max_bytes:
            return True
        age = self.limits.segment_max_age
        return age != 0 and any(now - message.timestamp >= age for message in self.active.messages)

    def roll(self, now: int) -> bool:
        must = self.must_roll(now)
        if must:
            self.segments.append(ModelSegment(self.next_offset))
        return must

    def append(self, message: Message) -> None:
        self.roll(message.timestamp)
        self.active.messages.append(message)
        self.next_offset = message.offset + 1

    def commit(self, offset: int) -> None:
        self.committed = max(self.committed, min(offset, self.next_offset - 1))

    def truncate(self, next_offset: int) -> None:
        self.epochs = {epoch: at for epoch, at in self.epochs.items() if at < next_offset}
        if next_offset >= self.next_offset:
            return
        kept = [segment for segment in self.segments if segment.base < next_offset]
        if self.segments[0].base == next_offset:
            kept = self.segments[:1]
        for segment in self.segments:
            if segment not in kept:
                segment.ends_readers = not segment.was_compacted
        self.segments = kept or [ModelSegment(next_offset)]
        self.active.messages = [one for one in self.active.messages if one.offset < next_offset]
        self.active.was_compacted = False
        self.next_offset = next_offset
        self.committed = min(self.committed, next_offset - 1)

    def clean(self, now: int) -> None:
        if self.roll(now):
            return
        while len(self.segments) > 1 and self.is_surplus(now):
            removed = self.segments.pop(0)
            removed.ends_readers = not removed.was_compacted
        oldest = self.segments[0].base
        self.epochs = {epoch: max(at, oldest) for epoch, at in self.epochs.items()}
        if self.limits.compact:
            self.compact()

    def is_surplus(self, now: int) -> bool:
        limits = self.limits
        max_age, max_count = limits.retention_max_age, limits.retention_max_messages
        return (
            (max_age > 0 and self.segments[0].messages[-1].timestamp < now - max_age)
            or 0 < max_count < len(self.messages)
            or 0 < limits.retention_max_bytes < sum(map(self.size, self.segments))
        )

    @staticmethod
    def size(segment: ModelSegment) -> int:
        return sum(map(record_size, segment.messages))

    def compact(self) -> None:
        committed = self.between(0, self.committed)
        for segment in self.segments[:-1]:
            segment.was_compacted = True
            segment.messages = [
                message
                for message in segment.messages
                if not message.key
                or message.offset >= self.committed
                or not any(
                    later.key == message.key and later.offset > message.offset
                    for later in committed
                )
            ]
        self.segments = [one for one in self.segments if one.messages or one is self.active]

    def begin_epoch(self, epoch: int) -> None:
        if epoch > max(self.epochs, default=0):
            self.epochs[epoch] = self.next_offset

    def end_offset_of(self, epoch: int) -> int:
        later = [at for one, at in self.epochs.items() if one > epoch]
        return min(later, default=self.next_offset)

    def segment_of(self, offset: int) -> ModelSegment:
        older = [segment for segment in self.segments if segment.base <= offset]
        return older[-1] if older else self.segments[0]

    def earliest_from(self, timestamp: int) -> int:
        at = self.last_begun_until(timestamp) or 0
        found = [one for one in self.segments[at].messages if one.timestamp >= timestamp]
        if not found and at + 1 < len(self.segments) - 1:
            found = self.segments[at + 1].messages
        return found[0].offset if found else self.next_offset

    def latest_until(self, timestamp: int) -> int | None:
        at = self.last_begun_until(timestamp)
        if at is None:
            return None
        messages = self.segments[at].messages
        found = [message for message in messages if message.timestamp >= timestamp]
        if not found:
            return messages[-1].offset
        return found[0].offset - (found[0].timestamp > timestamp)

    def last_begun_until(self, timestamp: int) -> int | None:
        begun = [
            index
            for index, segment in enumerate(self.segments)
            if segment.messages and segment.messages[0].timestamp <= timestamp
        ]
        return begun[-1] if begun else None

    def forget_where_it_came_from(self) -> None:
        """Drop what a log that is opened again cannot know."""
        for segment in self.segments:
            segment.was_compacted = False


class ModelReader:
    """A real reader, and what it must return."""

    def __init__(self, log: PartitionLog, model: ModelLog, start: int, stop: int) -> None:
        self.log = log
        self.model = model
        waits = start > model.committed or not model.segments[0].messages
        self.next = model.committed + 1 if waits else start
        self.stop = stop
        self.reads_from = None if waits else model.segment_of(start)
        self.reader = LogReader(log, start, stop)
        self.stopped = False

    def check(self, limit: int, *, readonly: bool) -> None:
        expected = self.expected(limit, readonly=readonly)
        found = self.reader.poll(limit)
        assert (found if isinstance(found, ReadEnd) else list(found)) == expected

    def expected(self, limit: int, *, readonly: bool) -> list[Message] | ReadEnd:
        if self.stopped:
            return ReadEnd.STOP_REACHED
        if self.log.state is LogState.CLOSED:
            return ReadEnd.CLOSED
        self.next = min(self.next, self.model.committed + 1)
        batch = self.model.between(self.next, self.model.committed)[:limit]
        removed = self.reads_from is not None and self.reads_from.ends_readers
        if removed and (batch or self.next <= self.model.committed):
            return ReadEnd.SEGMENT_REMOVED
        if not batch:
            all_committed = self.model.committed == self.model.next_offset - 1
            return ReadEnd.READONLY if readonly and all_committed else []
        self.stopped = self.stop in [message.offset for message in batch]
        if self.stopped:
            batch = [message for message in batch if message.offset <= self.stop]
        self.next = batch[-1].offset + 1
        self.reads_from = self.model.segment_of(batch[-1].offset)
        return batch
