"""All operations on a log, in any order, on any store of segments."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from liftbridge_aio.broker.storage.core.leader_epochs import LeaderEpochs
from liftbridge_aio.broker.storage.core.log import (
    IncorrectOffset,
    LogReadonly,
    PartitionLog,
)
from liftbridge_aio.broker.storage.core.segment import SegmentStore
from liftbridge_aio.broker.storage.core.stream_config import LogLimits
from liftbridge_aio.broker.storage.core.timestamp_lookup import LookupFailed
from liftbridge_aio.model import UNCHECKED_OFFSET, Message
from support.broker.log_model import ModelLog, ModelReader

KEYS = st.sampled_from([b"", b"a", b"b", b"c"])
STEPS = st.sampled_from([0, 0, 1, 3, 15])
LIMITS = st.builds(
    LogLimits,
    retention_max_bytes=st.sampled_from([0, 0, 400]),
    retention_max_messages=st.sampled_from([-1, 0, 4]),
    retention_max_age=st.sampled_from([0, 0, 30]),
    segment_max_bytes=st.sampled_from([1, 140, 10_000]),
    segment_max_age=st.sampled_from([0, 0, 10]),
    compact=st.booleans(),
)


class LogMachine(RuleBasedStateMachine):
    """A log beside its model; subclasses set `new_store`."""

    new_store: ClassVar[Callable[[], SegmentStore]]
    """Returns an empty store."""

    readers: Bundle[ModelReader] = Bundle("readers")

    def __init__(self) -> None:
        super().__init__()
        self.store = type(self).new_store()
        self.readonly = False
        self.now = 1_000
        self.changes = 0

    def store_after_restart(self) -> SegmentStore:
        """Return the store as another process would find it."""
        return self.store

    @initialize(limits=LIMITS)
    def begin(self, limits: LogLimits) -> None:
        self.log = PartitionLog(self.store, limits, concurrency_control=True)
        self.model = ModelLog(limits)
        self.log.watch(self.count_change)

    def count_change(self) -> None:
        self.changes += 1

    def message(self, key: bytes, offset: int = 0) -> Message:
        headers = {"subject": b"subject", "reply": b""}
        return Message("s", 0, offset, key, b"v", self.now, headers, "subject")

    @rule(key=KEYS, step=STEPS, ahead=st.integers(-2, 2), checked=st.booleans())
    def append(self, key: bytes, step: int, ahead: int, checked: bool) -> None:
        self.now += step
        following = self.model.next_offset
        expected = max(following + ahead, 0) if checked else UNCHECKED_OFFSET
        message = self.message(key)
        if self.readonly:
            with pytest.raises(LogReadonly):
                self.log.append(message, expected)
        elif checked and expected != following:
            with pytest.raises(IncorrectOffset):
                self.log.append(message, expected)
            self.model.roll(self.now)
        else:
            assert self.log.append(message, expected) == following
            self.model.append(message)

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4), step=STEPS, is_committed=st.booleans())
    def append_some(self, keys: list[bytes], step: int, is_committed: bool) -> None:
        for key in keys:
            self.append(key, step, 0, checked=False)
        if is_committed:
            self.commit(self.model.next_offset - 1)

    @rule(gaps=st.lists(st.integers(0, 2), max_size=3), key=KEYS, newer=st.integers(0, 2))
    def append_replicated(self, gaps: list[int], key: bytes, newer: int) -> None:
        messages = []
        offset = self.model.next_offset
        for gap in gaps:
            messages.append(self.message(key, offset + gap))
            offset += gap + 1
        epoch = max(self.model.epochs, default=0) + newer
        leader = LeaderEpochs()
        leader.begin(epoch, 0)
        self.log.append_replicated(messages, leader)
        for message in messages:
            self.model.append(message)
        if newer and messages:
            self.model.epochs[epoch] = messages[0].offset

    @rule(behind=st.integers(1, 3))
    def what_does_not_follow_is_refused(self, behind: int) -> None:
        with pytest.raises(ValueError, match="must follow"):
            self.log.append_replicated([self.message(b"", self.model.next_offset - behind)])

    @rule(offset=st.integers(-1, 30))
    def commit(self, offset: int) -> None:
        before, committed = self.changes, self.model.committed
        self.log.commit(offset)
        self.model.commit(offset)
        assert self.changes > before or self.model.committed == committed

    @rule(back=st.integers(-1, 12))
    def truncate(self, back: int) -> None:
        before, following = self.changes, self.model.next_offset
        target = max(following - back, 0)
        self.log.truncate(target)
        self.model.truncate(target)
        assert self.changes > before or self.model.next_offset == following

    @rule(step=st.sampled_from([0, 5, 40]), times=st.integers(1, 3))
    def clean(self, step: int, times: int) -> None:
        for _ in range(times):
            self.now += step
            self.log.clean(self.now)
            self.model.clean(self.now)

    @rule(newer=st.integers(-1, 3))
    def begin_epoch(self, newer: int) -> None:
        epoch = max(max(self.model.epochs, default=0) + newer, 0)
        self.log.begin_epoch(epoch)
        self.model.begin_epoch(epoch)

    @rule(epoch=st.integers(0, 12))
    def ask_for_the_end_of_an_epoch(self, epoch: int) -> None:
        assert self.log.end_offset_of(epoch) == self.model.end_offset_of(epoch)

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
        self.go_on_with(self.log.reopened())

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.store = self.store_after_restart()
        log = PartitionLog(self.store, self.model.limits, concurrency_control=True)
        assert log.high_watermark == -1
        log.commit(self.model.committed)
        self.model.epochs.clear()
        self.go_on_with(log)

    def go_on_with(self, log: PartitionLog) -> None:
        self.log = log
        self.log.watch(self.count_change)
        self.model.forget_where_it_came_from()
        self.readonly = False

    @rule(target=readers, start=st.integers(0, 30), stop=st.integers(-1, 30))
    def read_from(self, start: int, stop: int) -> ModelReader:
        return ModelReader(self.log, self.model, start, stop)

    @rule(reader=readers, limit=st.integers(1, 5))
    def poll(self, reader: ModelReader, limit: int) -> None:
        reader.check(limit, readonly=self.readonly)

    @rule(offset=st.integers(-2, 30), limit=st.integers(1, 30))
    def read_stored(self, offset: int, limit: int) -> None:
        expected = self.model.between(offset, self.model.next_offset)[:limit]
        assert list(self.log.read_stored(offset, limit)) == expected

    @rule(timestamp=st.integers(990, 1_200))
    def look_up(self, timestamp: int) -> None:
        earliest = self.log.earliest_offset_from(timestamp)
        try:
            latest = self.log.latest_offset_until(timestamp)
        except LookupFailed:
            latest = None
        expected = (self.model.earliest_from(timestamp), self.model.latest_until(timestamp))
        # The number of segments decides if the search probes an empty last one: test_log_cleaning.
        met_nothing = (self.model.next_offset, None)
        assert (earliest, latest) in {expected} | (
            set() if self.model.active.messages else {met_nothing}
        )

    @invariant()
    def offsets_add_up(self) -> None:
        oldest = self.model.segments[0].messages[:1]
        assert self.log.next_offset == self.model.next_offset
        assert self.log.newest_offset == self.model.next_offset - 1
        assert self.log.oldest_offset == (oldest[0].offset if oldest else -1)
        assert self.log.high_watermark == self.model.committed
        assert self.log.last_epoch == max(self.model.epochs, default=0)

    @invariant()
    def segments_hold_what_they_should(self) -> None:
        found = [
            (
                segment.base_offset,
                list(segment.read(segment.base_offset, segment.count, segment.next_offset)),
                segment.size_bytes,
            )
            for segment in self.log.segments
        ]
        model = self.model
        assert found == [(one.base, one.messages, model.size(one)) for one in model.segments]
