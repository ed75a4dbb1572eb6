from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from liftbridge_aio import LiftbridgeError, Message, StreamDeleted
from liftbridge_aio._subscribe.decoder import Decoder
from liftbridge_aio._subscribe.merge import Merge
from liftbridge_aio._subscribe.partition_reader import PartitionReader
from liftbridge_aio._subscribe.receive_buffer import ReceiveBuffer
from liftbridge_aio.model import EndReason
from liftbridge_aio.wire import proto
from support.examples import examples
from support.waiting import until

T = TypeVar("T")


class Poison(Exception):
    """Raised for every seventh message."""


def no_poison(message: Message) -> Message:
    if message.offset % 7 == 3:
        raise Poison(message)
    return message


class Partition:
    """Parts of a reader that a merge uses: a buffer, a decoder and a plan."""

    def __init__(self, number: int, capacity: int = 2**22) -> None:
        self.number = number
        self.plan = SimpleNamespace(stream="s", partition=number)
        self.buffer = ReceiveBuffer(lambda: capacity)
        self.decoder = Decoder(self.buffer, self, lambda _: None)
        self.credit = 0
        self.buffer.connect(self.drained)
        self.put_so_far = 0
        self.read: list[int] = []
        self.in_hand = 0

    @property
    def reader(self) -> PartitionReader:
        return cast("PartitionReader", self)

    def put(self, count: int) -> None:
        first = self.put_so_far
        self.put_so_far += count
        self.buffer.put(
            [
                bytes(proto.Message(stream="s", partition=self.number, offset=n, timestamp=n))
                for n in range(first, first + count)
            ]
        )

    def drained(self, size: int) -> None:
        self.credit += size

    def delivered(self) -> None:
        pass

    def stopped(self) -> None:
        self.buffer.end(EndReason.STOP_REACHED)

    def failed(self, error: LiftbridgeError, after: int | None) -> None:
        raise AssertionError(error, after)


class Rig:
    """A merge, and what it was told."""

    def __init__(
        self, partitions: int = 0, *, hook: bool = False, ends_with_last: bool = False
    ) -> None:
        self.ended: list[int] = []
        self.delivered: list[Message] = []
        self.merge = Merge(
            self.note_end, self.delivered.append if hook else None, ends_with_last=ends_with_last
        )
        self.partitions = [Partition(number) for number in range(partitions)]
        for partition in self.partitions:
            self.merge.add(partition.reader)

    def note_end(self, reader: PartitionReader) -> None:
        self.ended.append(reader.plan.partition)
        error = reader.buffer.take_error()
        if error is not None:
            raise error

    async def next(self) -> Message:
        """As a subscription does it."""
        ready = self.merge.ready
        return ready.popleft() if ready else await self.merge.take_next()


async def unless_it_waits(work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result; None where it would have to wait, and then it is cancelled."""
    task = asyncio.ensure_future(work)
    for _ in range(3):
        await asyncio.sleep(0)
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
        return None
    return task.result()


class Merging(RuleBasedStateMachine):
    """Partitions that fill, pause, end, come and go, read in all ways by turns."""

    @initialize(count=st.integers(1, 4), hook=st.booleans())
    def begin(self, count: int, hook: bool) -> None:
        self.runner = asyncio.Runner()
        self.rig = Rig(count, hook=hook)
        self.partitions = dict(enumerate(self.rig.partitions))
        self.gone: list[Partition] = []
        self.errors: dict[int, LiftbridgeError] = {}
        self.held: set[int] = set()
        self.delivered = 0

    def chosen(self, data: st.DataObject) -> Partition | None:
        if not self.partitions:
            return None
        return self.partitions[data.draw(st.sampled_from(sorted(self.partitions)))]

    @rule(data=st.data(), count=st.integers(1, 150))
    def put(self, data: st.DataObject, count: int) -> None:
        partition = self.chosen(data)
        if partition is not None and not partition.buffer.ended:
            partition.put(count)

    @rule(data=st.data(), error=st.booleans())
    def end(self, data: st.DataObject, error: bool) -> None:
        partition = self.chosen(data)
        if partition is None or partition.buffer.ended:
            return
        if error:
            self.errors[partition.number] = StreamDeleted("gone")
            partition.buffer.fail(self.errors[partition.number])
        else:
            partition.buffer.end(EndReason.READONLY)

    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        partition = self.chosen(data)
        if partition is not None:
            self.rig.merge.hold([partition.reader])
            self.held.add(partition.number)

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        partition = self.chosen(data)
        if partition is not None:
            self.rig.merge.release([partition.reader])
            self.held.discard(partition.number)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        partition = self.chosen(data)
        if partition is not None:
            self.rig.merge.remove(partition.reader)
            self.forget(partition)

    def forget(self, partition: Partition) -> None:
        del self.partitions[partition.number]
        self.held.discard(partition.number)
        self.errors.pop(partition.number, None)
        self.gone.append(partition)

    @rule()
    def add(self) -> None:
        partition = Partition(max([*self.partitions, *(one.number for one in self.gone)]) + 1)
        partition.put(partition.number)
        self.partitions[partition.number] = partition
        self.rig.merge.add(partition.reader)

    def something_waits(self) -> bool:
        return any(
            len(partition.read) < partition.put_so_far
            for partition in self.partitions.values()
            if partition.number not in self.held
        )

    def ask(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T | None:
        """Ask until something comes that is no error, and look at the errors."""
        while True:
            before = len(self.rig.ended)
            raised: LiftbridgeError | None = None
            result: T | None = None
            try:
                result = self.runner.run(unless_it_waits(ask()))
            except StreamDeleted as error:
                raised = error
            for number in self.rig.ended[before:]:
                partition = self.partitions[number]
                assert partition.buffer.ended
                assert number not in self.held
                assert len(partition.read) == partition.put_so_far
                expected = self.errors.get(number)
                self.forget(partition)
                assert expected is None or expected is raised
            if raised is None:
                return result
            # Whoever gets an error has asked for more.
            self.put_down()

    def put_down(self) -> None:
        for partition in [*self.partitions.values(), *self.gone]:
            partition.in_hand = 0

    @rule(count=st.integers(1, 40))
    def iterate(self, count: int) -> None:
        for _ in range(count):
            message = self.ask(self.rig.next)
            self.put_down()
            if message is None:
                assert not self.something_waits()
                return
            self.took([message])

    @rule(most=st.integers(1, 400), form=st.sampled_from(["decoded", "raw", "converted"]))
    def take_batch(self, most: int, form: str) -> None:
        merge = self.rig.merge
        taken: list[Message] | None
        if form == "raw":
            undecoded = self.ask(lambda: merge.take_raw(most, 0))
            taken = None if undecoded is None else [one.decode() for one in undecoded]
        elif form == "converted":
            taken = self.ask(lambda: self.take_converted(most))
        else:
            taken = self.ask(lambda: merge.take(most, 0))
        self.put_down()
        if taken is None:
            assert not self.something_waits()
            return
        assert 0 < len(taken) <= most
        self.took(taken, raw=form == "raw")
        if len(taken) < most and form != "converted":
            assert not self.something_waits()

    async def take_converted(self, most: int) -> list[Message]:
        try:
            return await self.rig.merge.take_as(most, 0, no_poison)
        except Poison as poison:
            message: Message = poison.args[0]
            return [message]

    def took(self, messages: list[Message], *, raw: bool = False) -> None:
        for message in messages:
            partition = self.partitions[message.partition]
            assert partition.number not in self.held
            assert message.offset == len(partition.read)
            partition.read.append(message.offset)
            partition.in_hand += 1
        if not raw and self.rig.delivered:
            assert self.rig.delivered[-len(messages) :] == messages

    @invariant()
    def what_is_finished_is_known(self) -> None:
        if not hasattr(self, "rig"):
            return
        for partition in [*self.partitions.values(), *self.gone]:
            done = partition.read[: len(partition.read) - partition.in_hand]
            finished = self.rig.merge.finished(partition.reader)
            assert finished == (done[-1] if done else None)

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        with self.runner:  # ends with the example, also where that has failed
            self.read_the_rest()

    def read_the_rest(self) -> None:
        self.rig.merge.release([partition.reader for partition in self.partitions.values()])
        self.held.clear()
        while (message := self.ask(self.rig.next)) is not None:
            self.put_down()
            self.took([message])
        for partition in self.partitions.values():
            assert partition.read == list(range(partition.put_so_far))
            assert partition.buffer.held_bytes == 0


TestMerging = Merging.TestCase
TestMerging.settings = settings(max_examples=examples(30), stateful_step_count=20, deadline=None)


@pytest.mark.parametrize("hook", [False, True])
async def test_a_busy_partition_does_not_starve_the_others(hook: bool) -> None:
    rig = Rig(3, hook=hook)
    busy, *quiet = rig.partitions
    busy.put(1_000)
    for partition in quiet:
        partition.put(3)
    read = [(await rig.next()).partition for _ in range(500)]
    assert [read.count(partition.number) for partition in quiet] == [3, 3]


async def test_lists_take_turns_too() -> None:
    rig = Rig(3)
    for partition in rig.partitions:
        partition.put(100)
    lists = [await rig.merge.take(50, 0) for _ in range(6)]
    assert [{one.partition for one in messages} for messages in lists] == [{0}, {1}, {2}] * 2


async def test_a_list_waits_for_more_of_all_partitions_together() -> None:
    rig = Rig(3)
    taking = asyncio.create_task(rig.merge.take(5, 60))
    for partition, count in zip(rig.partitions, (1, 2, 1), strict=True):
        partition.put(count)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not taking.done()
    rig.partitions[0].put(1)
    async with asyncio.timeout(5):
        messages = await taking
    assert sorted((one.partition, one.offset) for one in messages) == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (2, 0),
    ]


@pytest.mark.parametrize("event", ["half full", "ended"])
async def test_a_list_does_not_wait_for_what_cannot_come(event: str) -> None:
    rig = Rig(1)
    small = Partition(7, capacity=100)
    rig.merge.add(small.reader)
    taking = asyncio.create_task(rig.merge.take(1000, 60))
    if event == "half full":
        small.put(1)
    else:
        rig.partitions[0].put(1)
        rig.partitions[0].buffer.end(EndReason.READONLY)
    async with asyncio.timeout(5):
        assert len(await taking) == 1


async def test_credit_of_what_was_read_comes_back_before_waiting() -> None:
    rig = Rig(2)
    rig.partitions[0].put(10)
    for _ in range(10):
        await rig.next()
    waiting = asyncio.create_task(rig.next())
    await until(lambda: rig.partitions[0].buffer.held_bytes == 0)
    assert rig.partitions[0].credit > 0
    waiting.cancel()


async def test_what_is_removed_during_its_turn_is_in_hand_no_longer_than_else() -> None:
    rig = Rig(2)
    for partition in rig.partitions:
        partition.put(100)
    for _ in range(3):
        first = rig.partitions[(await rig.next()).partition]
    rig.merge.remove(first.reader)
    assert rig.merge.finished(first.reader) == 1
    assert {(await rig.next()).partition for _ in range(100)} == {1 - first.number}
    assert rig.merge.finished(first.reader) == 2


async def test_finishing_ends_it_behind_what_is_there() -> None:
    rig = Rig(2)
    rig.partitions[1].put(2)
    rig.merge.finish()
    assert [(await rig.next()).offset for _ in range(2)] == [0, 1]
    with pytest.raises(StopAsyncIteration):
        await rig.next()


async def test_a_raw_list_takes_what_was_decoded_and_what_was_not() -> None:
    rig = Rig(1)
    rig.partitions[0].put(6)
    assert len(await rig.merge.take_as(4, 0, no_poison)) == 3  # the fourth is decoded and left
    assert [one.offset for one in await rig.merge.take_raw(2, 0)] == [3, 4]
    assert rig.merge.finished(rig.partitions[0].reader) == 2
    assert [one.offset for one in await rig.merge.take_raw(2, 0)] == [5]
