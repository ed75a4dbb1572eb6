"""The log of a partition, against a plain list."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from liftbridge_aio.broker.log import (
    IncorrectOffset,
    LogReadonly,
    LogState,
    PartitionLog,
)
from liftbridge_aio.broker.reader import LogReader, ReadEnd
from liftbridge_aio.broker.timestamp_lookup import LookupFailed
from liftbridge_aio.model import UNCHECKED_OFFSET, Message


def message(timestamp: int = 0, value: bytes = b"") -> Message:
    return Message("s", 0, 0, b"", value, timestamp)


class LogMachine(RuleBasedStateMachine):
    """Appends, commits, closes and reads in any order."""

    readers: Bundle[tuple[LogReader, list[int]]] = Bundle("readers")

    def __init__(self) -> None:
        super().__init__()
        self.log = PartitionLog(concurrency_control=True)
        self.timestamps: list[int] = []
        self.committed = -1
        self.readonly = False
        self.now = 1_000
        self.changes = 0
        self.log.watch(self.count_change)

    def count_change(self) -> None:
        self.changes += 1

    @rule(step=st.integers(0, 3), ahead=st.integers(-2, 2), checked=st.booleans())
    def append(self, step: int, ahead: int, checked: bool) -> None:
        self.now += step
        expected = max(len(self.timestamps) + ahead, 0) if checked else UNCHECKED_OFFSET
        if self.readonly:
            with pytest.raises(LogReadonly):
                self.log.append(message(self.now), expected)
        elif checked and expected != len(self.timestamps):
            with pytest.raises(IncorrectOffset):
                self.log.append(message(self.now), expected)
        else:
            assert self.log.append(message(self.now), expected) == len(self.timestamps)
            self.timestamps.append(self.now)

    @rule(offset=st.integers(-1, 30))
    def commit(self, offset: int) -> None:
        before = self.changes
        self.log.commit(offset)
        moved = min(offset, len(self.timestamps) - 1) > self.committed
        self.committed = max(self.committed, min(offset, len(self.timestamps) - 1))
        assert not moved or self.changes > before

    @rule(readonly=st.booleans())
    def set_readonly(self, readonly: bool) -> None:
        before = self.changes
        self.log.set_readonly(readonly)
        self.readonly = readonly
        assert self.changes > before

    @rule()
    def close_and_reopen(self) -> None:
        before = self.changes
        self.log.close()
        assert self.changes > before
        self.log = self.log.reopened()
        self.log.watch(self.count_change)
        self.readonly = False

    @rule(target=readers, start=st.integers(0, 30))
    def read_from(self, start: int) -> tuple[LogReader, list[int]]:
        first = start if start <= self.committed else self.committed + 1
        return LogReader(self.log, start), [first]

    @rule(reader=readers, limit=st.integers(1, 5))
    def poll(self, reader: tuple[LogReader, list[int]], limit: int) -> None:
        cursor, expected = reader
        batch = cursor.poll(limit)
        at_end = expected[0] > self.committed
        if cursor._log is not self.log:
            assert batch is ReadEnd.CLOSED
        elif at_end and self.readonly and self.committed == len(self.timestamps) - 1:
            assert batch is ReadEnd.READONLY
        else:
            assert not isinstance(batch, ReadEnd)
            offsets = [one.offset for one in batch]
            count = min(limit, max(self.committed + 1 - expected[0], 0))
            assert offsets == list(range(expected[0], expected[0] + count))
            expected[0] += count

    @rule(timestamp=st.integers(990, 1_050))
    def look_up(self, timestamp: int) -> None:
        from_it = [at for at, one in enumerate(self.timestamps) if one >= timestamp]
        first = from_it[0] if from_it else len(self.timestamps)
        assert self.log.earliest_offset_from(timestamp) == first
        if not self.timestamps or timestamp < self.timestamps[0]:
            with pytest.raises(LookupFailed):
                self.log.latest_offset_until(timestamp)
        else:
            exact = from_it and self.timestamps[first] == timestamp
            expected = first if exact else first - 1
            assert self.log.latest_offset_until(timestamp) == expected

    @invariant()
    def offsets_add_up(self) -> None:
        count = len(self.timestamps)
        assert self.log.newest_offset == count - 1
        assert self.log.oldest_offset == (0 if count else -1)
        assert self.log.high_watermark == self.committed


TestLogMachine = LogMachine.TestCase


def test_a_deleted_log_tells_its_readers_and_holds_nothing() -> None:
    log = PartitionLog()
    log.commit(log.append(message()))
    reader = LogReader(log, 0)

    log.delete()

    assert log.state is LogState.DELETED
    assert reader.poll(1) is ReadEnd.DELETED
    assert log.read(0, 10) == []


def test_nobody_is_called_who_no_longer_watches() -> None:
    log = PartitionLog()
    calls: list[int] = []

    def watcher() -> None:
        calls.append(1)

    log.watch(watcher)
    log.unwatch(watcher)
    log.set_readonly(True)

    assert calls == []
