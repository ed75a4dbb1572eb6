"""Messages turned into something else while they are read, whatever they come from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self, TypeVar

import pytest

from liftbridge_aio import LiftbridgeError, Message, UsageError
from liftbridge_aio._subscribe.decoder import Decoder
from liftbridge_aio._subscribe.receive_buffer import ReceiveBuffer
from liftbridge_aio._subscribe.subscription_base import Batches, MessageBatches
from liftbridge_aio._subscribe.typed_reader import TypedReader
from liftbridge_aio.wire import proto

T = TypeVar("T")

BOUND = 20.0


def message(number: int) -> Message:
    return Message("numbers", 0, number, b"", b"%d" % number, 0)


def odd_and_no_multiple_of_five(received: Message) -> int | None:
    """Even numbers are left out, multiples of five are poison."""
    if received.offset % 5 == 0:
        raise ValueError(received.offset)
    return received.offset if received.offset % 2 else None


async def numbers(count: int) -> AsyncIterator[Message]:
    for number in range(1, count + 1):
        yield message(number)


class Source:
    """Messages 1 to `count` as subscriptions hold them, and a note of what was done with it."""

    def __init__(self, count: int) -> None:
        buffer = ReceiveBuffer(lambda: 2**20)
        self.decoder = Decoder(buffer, self, lambda _: None)
        buffer.put(
            [
                bytes(proto.Message(stream="numbers", offset=number, timestamp=number))
                for number in range(1, count + 1)
            ]
        )
        self.done: list[Any] = []

    def delivered(self) -> None:
        pass

    def stopped(self) -> None:
        raise AssertionError

    def failed(self, error: LiftbridgeError, after: int | None) -> None:
        raise AssertionError(error, after)

    async def __aenter__(self) -> Self:
        self.done.append("entered")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.done.append(kind)

    async def aclose(self) -> None:
        self.done.append("closed")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        if not self.decoder.refill():
            raise StopAsyncIteration
        return self.decoder.ready.popleft()

    def batches(self, max: int, wait: float) -> Batches[Message]:  # noqa: A002
        return MessageBatches(self._take, self._take_as, max, wait)

    async def _take(self, most: int, wait: float) -> list[Message]:
        raise NotImplementedError

    async def _take_as(
        self, most: int, wait: float, convert: Callable[[Message], T | None]
    ) -> list[T]:
        assert wait == 0.25
        while self.decoder.buffered:
            items = self.decoder.take_as(most, convert)
            if items:
                return items
        raise StopAsyncIteration


async def all_steps(iterator: AsyncIterator[Any]) -> list[Any]:
    """Everything that comes, errors among it."""
    steps: list[Any] = []
    async with asyncio.timeout(BOUND):
        while True:
            try:
                steps.append(await anext(iterator))
            except ValueError as error:
                steps.append(("poison", error.args[0]))
            except StopAsyncIteration:
                return steps


@pytest.mark.parametrize("most", range(1, 14))
async def test_batches_hold_the_same_in_the_same_order(most: int) -> None:
    reading = TypedReader(Source(12), odd_and_no_multiple_of_five)
    steps = await all_steps(reading.batches(max_size=most, wait=0.25))
    lists = [step for step in steps if isinstance(step, list)]
    assert [item for items in lists for item in items] == [1, 3, 7, 9, 11]
    assert all(0 < len(items) <= most for items in lists)
    assert [step for step in steps if step not in lists] == [("poison", 5), ("poison", 10)]
    assert reading.left_out == 5


async def test_single_steps_and_batches_take_turns() -> None:
    source = Source(14)
    reading = TypedReader(source, odd_and_no_multiple_of_five)
    batches = reading.batches(max_size=12, wait=0.25)
    assert await anext(batches) == [1, 3]
    with pytest.raises(ValueError, match="5"):
        await anext(reading)
    assert await anext(reading) == 7
    assert await anext(reading.batches(max_size=2, wait=0.25)) == [9]
    # What one reading has not handed out is there for the next one.
    other = TypedReader(source, odd_and_no_multiple_of_five)
    with pytest.raises(ValueError, match="10"):
        await anext(other.batches(max_size=12, wait=0.25))
    assert await anext(batches) == [11]
    assert await anext(reading) == 13


async def test_a_plain_iterator_is_closed_at_the_end() -> None:
    source = numbers(9)
    async with TypedReader(source, odd_and_no_multiple_of_five) as reading:
        assert await anext(reading) == 1
    assert await all_steps(source) == []


async def test_what_cannot_be_read_in_lists_says_so() -> None:
    class InItsOwnWay(Source):
        def batches(self, *_: object) -> Any:
            return numbers(3)

    for source in (numbers(3), InItsOwnWay(3)):
        with pytest.raises(UsageError, match="cannot be read in lists"):
            TypedReader(source, odd_and_no_multiple_of_five).batches()


async def test_cancelling_a_step_loses_nothing() -> None:
    queue: asyncio.Queue[Message] = asyncio.Queue()

    class Waiting:
        def __aiter__(self) -> Self:
            return self

        async def __anext__(self) -> Message:
            return await queue.get()

    reading = TypedReader(Waiting(), odd_and_no_multiple_of_five)
    step = asyncio.create_task(anext(reading))
    await asyncio.sleep(0)
    queue.put_nowait(message(2))
    await asyncio.sleep(0)
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    queue.put_nowait(message(3))
    async with asyncio.timeout(BOUND):
        assert await anext(reading) == 3
