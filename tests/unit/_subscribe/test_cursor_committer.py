from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio import LiftbridgeError, PermissionDenied, RequestTimeout, ServerNotTrusted
from liftbridge_aio._subscribe import cursor_committer
from liftbridge_aio._subscribe.cursor_committer import CursorCommitter
from liftbridge_aio.model import StreamPartition
from liftbridge_aio.telemetry import CommitFailed
from support.waiting import until

CURSOR = "reader"


class Memory:
    """Cursors in memory, which may refuse to be written, or take until they are told to go on."""

    def __init__(self) -> None:
        self.cursors: dict[tuple[str, str, int], int] = {}
        self.writes: list[tuple[str, int, int]] = []
        self.refused: set[int] = set()
        self.refusal: LiftbridgeError | None = None
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.writing = 0
        self.most_at_once = 0

    async def set(
        self, cursor_id: str, stream: str, partition: int, offset: int, timeout: float
    ) -> None:
        self.writing += 1
        self.most_at_once = max(self.most_at_once, self.writing)
        try:
            async with asyncio.timeout(timeout):
                await self.go_on.wait()
            await asyncio.sleep(0)
        finally:
            self.writing -= 1
        if partition in self.refused:
            raise self.refusal or RequestTimeout("not in time")
        self.writes.append((stream, partition, offset))
        self.cursors[cursor_id, stream, partition] = offset

    async def fetch(
        self, cursor_id: str, stream: str, partition: int, timeout: float
    ) -> int | None:
        assert timeout > 0
        return self.cursors.get((cursor_id, stream, partition))


class Rig:
    """A committer of some partitions, whose finished offsets are in `at`."""

    def __init__(self, partitions: int = 1, stored: int | None = None) -> None:
        self.memory = Memory()
        self.failures: list[CommitFailed] = []
        self.committer = CursorCommitter(
            CURSOR, self.memory, timeout=5, failed=self.failures.append
        )
        self.at: dict[int, int | None] = {}
        for partition in range(partitions):
            self.keep(partition, stored)

    def keep(self, partition: int, stored: int | None = None) -> None:
        self.at[partition] = None
        self.committer.keep("s", partition, lambda: self.at[partition], stored)

    @property
    def offsets(self) -> list[int]:
        return [offset for _, _, offset in self.memory.writes]


@given(st.lists(st.none() | st.integers(-1, 20)), st.none() | st.integers(0, 20))
def test_what_is_stored_only_rises(positions: list[int | None], stored: int | None) -> None:
    async def run() -> None:
        rig = Rig(stored=stored)
        highest = stored
        for position in positions:
            rig.at[0] = position
            await rig.committer.commit()
            if position is not None and position >= 0:
                highest = position if highest is None else max(highest, position)
            assert rig.committer.stored.get(("s", 0)) == highest  # type: ignore[call-overload]
        before = [] if stored is None else [stored]
        assert before + rig.offsets == sorted({*before, *rig.offsets})

    asyncio.run(run())


async def test_a_reader_sent_elsewhere_while_it_is_stored_stores_again() -> None:
    rig = Rig()
    rig.at[0] = 9
    rig.memory.go_on.clear()
    first = asyncio.create_task(rig.committer.commit())
    await until(lambda: rig.memory.writing == 1)
    rig.committer.rewound("s", 0)
    rig.at[0] = 2
    rig.memory.go_on.set()
    await first
    await rig.committer.commit()
    assert rig.offsets == [9, 2]


async def test_all_are_stored_some_at_a_time() -> None:
    rig = Rig(partitions=100)
    rig.at = {partition: partition + 5 for partition in rig.at}
    await rig.committer.commit()
    assert sorted(rig.memory.writes) == [("s", n, n + 5) for n in range(100)]
    assert 1 < rig.memory.most_at_once <= 16


async def test_only_the_partitions_that_are_named_are_stored() -> None:
    rig = Rig(partitions=3)
    rig.at = dict.fromkeys(rig.at, 5)
    await rig.committer.commit([("s", 1), ("s", 8)])
    assert rig.memory.writes == [("s", 1, 5)]


async def test_two_who_store_the_same_store_it_once() -> None:
    rig = Rig()
    rig.at[0] = 5
    await asyncio.gather(rig.committer.commit(), rig.committer.commit())
    assert rig.offsets == [5]


async def test_giving_up_stores_a_last_time_behind_what_is_being_stored() -> None:
    rig = Rig()
    rig.at[0] = 5
    rig.memory.go_on.clear()
    first = asyncio.create_task(rig.committer.commit())
    await until(lambda: rig.memory.writing == 1)
    rig.at[0] = 6
    giving_up = asyncio.create_task(rig.committer.give_up("s", 0))
    third = asyncio.create_task(rig.committer.commit())
    await asyncio.sleep(0)
    assert not giving_up.done()
    rig.memory.go_on.set()
    await asyncio.gather(first, giving_up, third)
    assert rig.offsets == [5, 6]
    rig.at[0] = 7
    await rig.committer.commit()
    assert rig.offsets == [5, 6]
    assert rig.committer.stored == {}


async def test_nothing_is_on_its_way_when_giving_up_returns() -> None:
    rig = Rig()
    rig.at[0] = 5
    rig.memory.go_on.clear()
    first = asyncio.create_task(rig.committer.commit())
    await until(lambda: rig.memory.writing == 1)
    # Nothing more is due, but what is being stored is waited for.
    rig.at[0] = None
    giving_up = asyncio.create_task(rig.committer.give_up("s", 0))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not giving_up.done()
    rig.memory.go_on.set()
    await giving_up
    assert rig.memory.writing == 0
    await first


async def test_who_waited_for_his_turn_stores_nothing_that_was_given_up() -> None:
    rig = Rig()
    rising = itertools.count(1)
    rig.committer.keep("s", 0, lambda: next(rising), None)
    rig.memory.go_on.clear()
    commits = [asyncio.create_task(rig.committer.commit()) for _ in range(2)]
    giving_up = asyncio.create_task(rig.committer.give_up("s", 0))
    commits += [asyncio.create_task(rig.committer.commit()) for _ in range(2)]
    await until(lambda: rig.memory.writing == 1)
    rig.memory.go_on.set()
    await giving_up
    stored = len(rig.memory.writes)
    await asyncio.gather(*commits)
    assert len(rig.memory.writes) == stored > 0


async def test_a_partition_that_is_kept_anew_is_stored_anew() -> None:
    rig = Rig()
    rig.at[0] = 5
    await rig.committer.give_up("s", 0)
    rig.keep(0, stored=8)
    for position in (7, 9):
        rig.at[0] = position
        await rig.committer.commit()
    assert rig.offsets == [5, 9]


@pytest.mark.parametrize("error", [PermissionDenied("no"), ServerNotTrusted("no")])
async def test_what_forbids_storing_for_good_is_told_once_it_is_certain(
    error: LiftbridgeError, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(partitions=3)
    rig.at = dict.fromkeys(rig.at, 5)
    rig.memory.refused, rig.memory.refusal = {0, 1}, error
    lasting: list[StreamPartition] = []
    running = asyncio.create_task(rig.committer.run(0, lambda place, _: lasting.append(place)))
    await until(lambda: len(rig.failures) == 6)
    if isinstance(error, ServerNotTrusted):  # certificates may just be being replaced
        assert not lasting
        monkeypatch.setattr(cursor_committer, "UNTRUSTED_FOR", 0)
    await until(lambda: set(lasting) == {("s", 0), ("s", 1)})
    (warning,) = caplog.messages
    assert "'reader' cannot be stored" in warning
    rig.memory.refused = set()
    await until(lambda: len(rig.memory.writes) == 3)
    told = len(lasting)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(lasting) == told
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
