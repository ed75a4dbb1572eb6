"""Handlers of many partitions at once, against a plain model of who may be handled next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from liftbridge_aio import LiftbridgeError, Message, StartAt, StreamPartition
from liftbridge_aio._subscribe.core.plan import ConsumerIdentity, ReadingPlan
from liftbridge_aio._subscribe.core.position import Position
from liftbridge_aio._subscribe.decoder import Decoder
from liftbridge_aio._subscribe.partition_reader import PartitionReader
from liftbridge_aio._subscribe.receive_buffer import ReceiveBuffer
from liftbridge_aio.groups.group_readers import GroupReaders
from liftbridge_aio.groups.handler_runner import HandlerRunner
from liftbridge_aio.model import EndReason
from liftbridge_aio.wire import proto
from support.examples import examples

IDENTITY = ConsumerIdentity("g", "c", 1)
PLACES = [StreamPartition("s", number) for number in range(3)]


class Reader:
    """The part of a reader that groups use, fed by hand."""

    def __init__(self, plan: ReadingPlan, log: int) -> None:
        self.plan = plan
        self.buffer = ReceiveBuffer(lambda: 2**22)
        self.decoder = Decoder(self.buffer, self, lambda _: None)
        self.on_end: Callable[[LiftbridgeError | None], None] | None = None
        self.start_offset = plan.start.value
        self.decoder.position = Position(self.start_offset)
        self.put(range(self.start_offset, log))

    @property
    def position(self) -> Position:
        assert isinstance(self.decoder.position, Position)
        return self.decoder.position

    def put(self, offsets: range) -> None:
        if offsets:
            partition = self.plan.partition
            self.buffer.put(
                [
                    bytes(proto.Message(stream="s", partition=partition, offset=at, timestamp=at))
                    for at in offsets
                ]
            )

    def begin(self) -> None:
        pass

    def drop(self) -> None:
        self.buffer.end(EndReason.CLOSED)
        self.decoder.discard()

    def delivered(self) -> None:
        pass

    def stopped(self) -> None:
        raise AssertionError

    def failed(self, error: LiftbridgeError, after: int | None) -> None:
        raise AssertionError(error, after)


class Partition:
    """The model of a partition."""

    def __init__(self) -> None:
        self.log = 0
        self.held = False
        self.paused = False
        self.next = 0
        self.done: int | None = None
        self.replaced = False
        """Sought elsewhere, or given up, since the message that is being handled."""


class Handling(RuleBasedStateMachine):
    """Partitions that fill, pause, come, go and are sought while handlers end, fail or hang."""

    @initialize(concurrency=st.integers(1, 3), turn=st.sampled_from([0.0, 600.0]))
    def begin(self, concurrency: int, turn: float) -> None:
        HandlerRunner.TURN = turn
        self.runner = asyncio.Runner()
        self.concurrency = concurrency
        self.partitions = {place: Partition() for place in PLACES}
        self.open: dict[StreamPartition, Reader] = {}
        self.calls: dict[StreamPartition, tuple[int, asyncio.Future[None]]] = {}
        self.run: asyncio.Task[None] | None = None
        self.wrong: list[Message] = []
        """Handed to the handler when they must not be."""
        self.pump(self.make_readers)
        for place in PLACES:
            self.put(place, 3)
            self.take(place)
        self.start()

    def make_readers(self) -> None:
        def plan(place: StreamPartition, start: StartAt, _: ConsumerIdentity) -> ReadingPlan:
            return cast("ReadingPlan", _Plan(place.stream, place.partition, start))

        def make(plan: ReadingPlan) -> PartitionReader:
            place = StreamPartition(plan.stream, plan.partition)
            reader = self.open[place] = Reader(plan, self.partitions[place].log)
            return cast("PartitionReader", reader)

        self.readers = GroupReaders(make, plan, lambda *_: None, None)

    def pump(self, work: Callable[[], object] = lambda: None) -> None:
        async def pump() -> None:
            work()
            for _ in range(20):
                await asyncio.sleep(0)

        self.runner.run(pump())

    # The handler

    async def handle(self, message: Message) -> None:
        place = StreamPartition(message.stream, message.partition)
        partition = self.partitions[place]
        if (
            place in self.calls
            or len(self.calls) >= self.concurrency
            or not partition.held
            or partition.paused
            or message.offset != partition.next
        ):
            self.wrong.append(message)
        partition.replaced = False
        partition.next += 1
        ended = asyncio.get_running_loop().create_future()
        self.calls[place] = message.offset, ended
        try:
            await ended
        except BaseException:
            if not partition.replaced:
                partition.next = message.offset
            raise
        else:
            if partition.held and not self.forgotten(place):
                partition.done = max(partition.done or 0, message.offset)
        finally:
            del self.calls[place]

    def forgotten(self, place: StreamPartition) -> bool:
        """Say whether the partition was given up since its handler began."""
        return self.calls[place][0] < 0

    def put_back(self, reader: PartitionReader, message: Message) -> None:
        if self.readers.put_back(reader, message):
            self.readers.open(StreamPartition(message.stream, message.partition), IDENTITY)

    @rule()
    def start(self) -> None:
        if self.run is not None:
            return

        def start() -> None:
            handling = HandlerRunner(
                "g", self.readers, self.put_back, lambda _: None, self.handle, (),
                concurrency=self.concurrency, on_error="stop",
            )  # fmt: skip
            self.stop = handling.stop
            self.run = asyncio.ensure_future(handling.run())

        self.pump(start)

    @rule(data=st.data(), fails=st.sampled_from([False, False, False, True]))
    def end_a_call(self, data: st.DataObject, fails: bool) -> None:
        if not self.calls:
            return
        place = data.draw(st.sampled_from(sorted(self.calls)))
        ended = self.calls[place][1]
        if fails:
            self.pump(lambda: ended.set_exception(ZeroDivisionError()))
            self.finish_run(ZeroDivisionError)
        else:
            self.pump(lambda: ended.set_result(None))

    @rule(cancel=st.booleans())
    def end_the_run(self, cancel: bool) -> None:
        if self.run is None or self.run.done():
            return
        self.pump(self.run.cancel if cancel else self.stop)
        self.finish_run(asyncio.CancelledError if cancel else None)

    def finish_run(self, error: type[BaseException] | None) -> None:
        run = self.run
        assert run is not None
        for place, (_, ended) in list(self.calls.items()):
            if place in self.calls:
                self.pump(lambda ended=ended: ended.done() or ended.set_result(None))  # type: ignore[misc]
        self.pump()
        assert run.done()
        if error is None:
            assert run.result() is None
        else:
            with pytest.raises(error):
                run.result()
        self.run = None

    # What happens to partitions

    @rule(place=st.sampled_from(PLACES), count=st.integers(1, 5))
    def put(self, place: StreamPartition, count: int) -> None:
        partition = self.partitions[place]
        offsets = range(partition.log, partition.log + count)
        partition.log += count
        if partition.held:
            self.pump(lambda: self.open[place].put(offsets))

    @rule(place=st.sampled_from(PLACES))
    def take(self, place: StreamPartition) -> None:
        partition = self.partitions[place]
        if partition.held:
            return
        partition.held = True
        partition.next = 0 if partition.done is None else partition.done + 1
        partition.done = None

        def take() -> None:
            self.readers.adopt(place, StartAt.offset(partition.next))
            self.readers.open(place, IDENTITY)

        self.pump(take)

    @rule(place=st.sampled_from(PLACES))
    def give_up(self, place: StreamPartition) -> None:
        partition = self.partitions[place]
        if not partition.held:
            return
        partition.held = partition.paused = False
        partition.replaced = True
        if place in self.calls:
            self.calls[place] = -1, self.calls[place][1]
        self.pump(lambda: self.readers.give_up([place]))

    @rule(place=st.sampled_from(PLACES))
    def replace(self, place: StreamPartition) -> None:
        """As when another member took it for a moment."""
        if self.partitions[place].held:

            def replace() -> None:
                self.readers.stop([place])
                self.readers.open(place, IDENTITY)

            self.pump(replace)

    @rule(place=st.sampled_from(PLACES), data=st.data())
    def seek(self, place: StreamPartition, data: st.DataObject) -> None:
        partition = self.partitions[place]
        if not partition.held:
            return
        partition.next = data.draw(st.integers(0, partition.log))
        partition.replaced = True

        def seek() -> None:
            self.readers.seek(place, StartAt.offset(partition.next))
            self.readers.open(place, IDENTITY)

        self.pump(seek)

    @rule(place=st.sampled_from(PLACES))
    def pause(self, place: StreamPartition) -> None:
        if self.partitions[place].held:
            self.partitions[place].paused = True
            self.pump(lambda: self.readers.pause([place]))

    @rule(place=st.sampled_from(PLACES))
    def resume(self, place: StreamPartition) -> None:
        if self.partitions[place].held:
            self.partitions[place].paused = False
            self.pump(lambda: self.readers.resume([place]))

    @rule(data=st.data())
    def disturb_a_call(self, data: st.DataObject) -> None:
        """Several things in a row to a partition that is being handled."""
        if not self.calls:
            return
        place = data.draw(st.sampled_from(sorted(self.calls)))
        disturb = [
            self.replace,
            self.pause,
            lambda place: self.seek(place, data),
            lambda place: (self.give_up(place), self.take(place)),
        ]
        for action in data.draw(st.lists(st.sampled_from(disturb), min_size=1, max_size=3)):
            action(place)

    # What holds

    @invariant()
    def whoever_can_be_handled_is(self) -> None:
        if not hasattr(self, "runner") or self.run is None:
            return
        assert not self.wrong
        assert not self.run.done()
        waiting = [
            place
            for place, partition in self.partitions.items()
            if partition.held and not partition.paused and partition.next < partition.log
            and place not in self.calls
        ]  # fmt: skip
        assert not waiting or len(self.calls) == self.concurrency

    @invariant()
    def what_is_done_is_known_and_nothing_else(self) -> None:
        if not hasattr(self, "runner"):
            return
        for place, partition in self.partitions.items():
            if partition.held:
                assert self.readers.finished(place) == partition.done

    def teardown(self) -> None:
        if not hasattr(self, "runner"):
            return
        del HandlerRunner.TURN
        with self.runner:
            if self.run is not None:
                self.pump(self.stop)
                self.finish_run(None)


class _Plan:
    def __init__(self, stream: str, partition: int, start: StartAt) -> None:
        self.stream = stream
        self.partition = partition
        self.start = start


TestHandling = Handling.TestCase
TestHandling.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
