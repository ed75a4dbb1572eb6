"""Positions of a group are not moved back by the member that stores them."""

from __future__ import annotations

import asyncio

import pytest

from liftbridge_aio import NotGroupMember
from liftbridge_aio.groups.fenced_cursors import FencedCursors, group_cursor
from liftbridge_aio.model import StreamPartition
from support.waiting import until

HERE = StreamPartition("orders", 0)
CURSOR = group_cursor("billing")


class SlowStore:
    """Cursors that are read at once and written when the test says so."""

    def __init__(self) -> None:
        self.stored: dict[StreamPartition, int] = {}
        self.writing: list[tuple[StreamPartition, int]] = []
        self.write = asyncio.Event()

    async def set(
        self, cursor_id: str, stream: str, partition: int, offset: int, timeout: float
    ) -> None:
        assert (cursor_id, timeout) == (CURSOR, 1.0)
        place = StreamPartition(stream, partition)
        self.writing.append((place, offset))
        await self.write.wait()
        self.stored[place] = offset

    async def fetch(
        self, cursor_id: str, stream: str, partition: int, timeout: float
    ) -> int | None:
        assert (cursor_id, timeout) == (CURSOR, 1.0)
        await asyncio.sleep(0)
        return self.stored.get(StreamPartition(stream, partition))


async def test_a_position_is_not_stored_below_what_is_there() -> None:
    store = SlowStore()
    store.write.set()
    guarded = FencedCursors(store, lambda _: True)
    for offset in (3, 5, 4, 5):
        await guarded.set(CURSOR, *HERE, offset, 1.0)

    assert store.writing == [(HERE, 3), (HERE, 5)]


async def test_two_writes_of_a_partition_take_turns_and_others_do_not_wait() -> None:
    store = SlowStore()
    guarded = FencedCursors(store, lambda _: True)
    there = StreamPartition("orders", 1)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(guarded.set(CURSOR, *HERE, 5, 1.0))
        tasks.create_task(guarded.set(CURSOR, *HERE, 4, 1.0))
        tasks.create_task(guarded.set(CURSOR, *there, 1, 1.0))
        await until(lambda: len(store.writing) == 2)
        store.write.set()

    assert store.writing == [(HERE, 5), (there, 1)]
    assert store.stored == {HERE: 5, there: 1}


async def test_whoever_loses_a_partition_during_the_look_does_not_write() -> None:
    store = SlowStore()
    store.write.set()
    ours = {HERE}
    guarded = FencedCursors(store, ours.__contains__)
    writing = asyncio.create_task(guarded.set(CURSOR, *HERE, 5, 1.0))
    await asyncio.sleep(0)
    ours.clear()

    with pytest.raises(NotGroupMember):
        await writing
    assert store.writing == []


async def test_a_new_reader_stores_nothing_before_the_former_ones_last_write() -> None:
    store = SlowStore()
    store.write.set()
    loop = asyncio.get_running_loop()
    free = loop.time() + 0.1
    guarded = FencedCursors(store, lambda _: True, lambda _: free)
    await guarded.set(CURSOR, *HERE, 5, 1.0)

    assert store.writing == [(HERE, 5)]
    assert loop.time() >= free


@pytest.mark.parametrize(
    ("offset", "seconds", "written"), [(5, 9, True), (5, -1, False), (4, 9, False)]
)
async def test_a_last_position_is_written_soon_and_upwards_or_not_at_all(
    offset: int, seconds: float, written: bool
) -> None:
    store = SlowStore()
    store.write.set()
    store.stored[HERE] = 4
    guarded = FencedCursors(store, lambda _: False)
    deadline = asyncio.get_running_loop().time() + seconds
    await guarded.hand_over(CURSOR, HERE, offset, deadline, 1.0)

    assert bool(store.writing) is written
