"""The log of a partition in memory, against its model; and what the model does not cover."""

from __future__ import annotations

from liftbridge_aio.broker.storage.core.log import LogState, PartitionLog
from liftbridge_aio.broker.storage.core.memory_segment import MemorySegmentStore
from liftbridge_aio.broker.storage.core.reader import LogReader, ReadEnd
from liftbridge_aio.model import Message
from support.broker.log_machine import LogMachine


def message(timestamp: int = 0, value: bytes = b"") -> Message:
    return Message("s", 0, 0, b"", value, timestamp)


class MemoryLogMachine(LogMachine):
    """Segments in memory."""

    new_store = MemorySegmentStore


TestLogInMemory = MemoryLogMachine.TestCase


def test_a_deleted_log_ends_its_readers_and_has_no_messages() -> None:
    store = MemorySegmentStore()
    log = PartitionLog(store)
    log.commit(log.append(message()))
    reader = LogReader(log, 0)

    log.delete()

    assert log.state is LogState.DELETED
    assert reader.poll(1) is ReadEnd.DELETED
    assert list(log.read(0, 10)) == []
    assert list(store.open()) == []


def test_an_unwatched_callback_is_not_called() -> None:
    log = PartitionLog()
    calls: list[int] = []

    def watcher() -> None:
        calls.append(1)

    log.watch(watcher)
    log.unwatch(watcher)
    log.set_readonly(True)

    assert calls == []
