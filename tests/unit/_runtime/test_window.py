from __future__ import annotations

import asyncio

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from liftbridge_aio._runtime.window import Window
from support.examples import examples
from support.waiting import until

sizes = st.integers(1, 12)


class Windows(RuleBasedStateMachine):
    """Publishes that enter, leave and are cancelled in any order, and in the same moment."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.max_messages = self.max_bytes = 0
        self.window = Window(1, 1)
        self.inside: list[int] = []
        self.queue: list[tuple[int, asyncio.Task[None]]] = []

    @initialize(max_messages=st.integers(1, 4), max_bytes=st.integers(1, 20))
    def start(self, max_messages: int, max_bytes: int) -> None:
        self.max_messages, self.max_bytes = max_messages, max_bytes
        self.window = Window(max_messages, max_bytes)

    @rule(size=sizes)
    def try_enter(self, size: int) -> None:
        fits = not self.queue and self.fits(size)
        assert self.window.try_enter(size) is fits
        if fits:
            self.inside.append(size)

    @rule(size=sizes)
    def enter(self, size: int) -> None:
        self.queue.append((size, self.loop.create_task(self.window.enter(size))))
        self.settle()

    @precondition(lambda self: self.inside)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.leave_one(data)
        self.settle()

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.cancel_one(data)
        self.settle()

    @precondition(lambda self: self.queue and self.inside)
    @rule(data=st.data(), cancel_first=st.booleans())
    def leave_and_cancel_at_once(self, data: st.DataObject, cancel_first: bool) -> None:
        """The one who is cancelled may be the one who is admitted."""
        if cancel_first:
            self.cancel_one(data)
            self.leave_one(data)
        else:
            self.leave_one(data)
            self.cancel_one(data)
        self.settle()

    def leave_one(self, data: st.DataObject) -> None:
        size = self.inside.pop(data.draw(st.integers(0, len(self.inside) - 1)))
        self.window.leave(size)

    def cancel_one(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from([task for _, task in self.queue])).cancel()

    def settle(self) -> None:
        """Let tasks run until nothing moves, and take notice of who was admitted."""
        self.loop.run_until_complete(self.turns(4 + 2 * len(self.queue)))
        while self.queue and self.queue[0][1].done():
            size, task = self.queue.pop(0)
            if not task.cancelled():
                self.inside.append(size)
        self.queue = [(size, task) for size, task in self.queue if not task.cancelled()]
        assert not any(task.done() for _, task in self.queue), "somebody jumped the queue"

    @staticmethod
    async def turns(count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    def fits(self, size: int) -> bool:
        if not self.inside:
            return True
        room = self.max_bytes - sum(self.inside)
        return len(self.inside) < self.max_messages and size <= room

    @invariant()
    def what_is_inside_is_counted(self) -> None:
        assert self.window.messages == len(self.inside)
        assert self.window.bytes == sum(self.inside)
        assert self.window.waiting == len(self.queue) == len(self.window.queue())

    @invariant()
    def limits_hold_but_for_one_message_alone(self) -> None:
        if len(self.inside) > 1:
            assert self.window.messages <= self.max_messages
            assert self.window.bytes <= self.max_bytes

    @invariant()
    def nobody_waits_for_room_that_is_there(self) -> None:
        if self.queue:
            assert not self.fits(self.queue[0][0])

    def teardown(self) -> None:
        try:
            for _, task in self.queue:
                task.cancel()
            self.settle()
            for size in self.inside:
                self.window.leave(size)
            assert (self.window.messages, self.window.bytes, self.window.waiting) == (0, 0, 0)
        finally:
            self.loop.close()


TestWindows = Windows.TestCase
TestWindows.settings = settings(max_examples=examples(50), stateful_step_count=20, deadline=None)


async def test_cancelling_the_first_in_the_queue_admits_a_smaller_one_behind_it() -> None:
    window = Window(10, 100)
    assert window.try_enter(60)
    large = asyncio.create_task(window.enter(50))
    small = asyncio.create_task(window.enter(30))
    await until(lambda: window.waiting == 2)
    large.cancel()
    await small
    assert (window.messages, window.bytes) == (2, 90)


async def test_those_who_wait_can_be_waited_for() -> None:
    window = Window(1, 100)
    assert window.try_enter(1)
    entering = asyncio.create_task(window.enter(1))
    await until(lambda: window.waiting == 1)
    (admitted,) = window.queue()
    assert not admitted.done()
    window.leave(1)
    await admitted
    await entering
    assert window.queue() == ()
