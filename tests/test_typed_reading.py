"""Messages turned into something else while they are read, whatever they come from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

import pytest

from liftbridge_aio import Message, UsageError
from liftbridge_aio.batches import Batches
from liftbridge_aio.typed_reading import TypedReading

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
    """Messages 1 to `count`, and a note of what was done with it."""

    def __init__(self, count: int) -> None:
        self.left = [message(number) for number in range(1, count + 1)]
        self.done: list[Any] = []

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
        if not self.left:
            raise StopAsyncIteration
        return self.left.pop(0)

    def batches(self, max: int, wait: float) -> Batches[Message]:  # noqa: A002
        async def take(most: int, wait: float) -> list[Message]:
            assert wait == 0.25
            if not self.left:
                raise StopAsyncIteration
            taken, self.left = self.left[:most], self.left[most:]
            return taken

        return Batches(take, max, wait)


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


async def test_it_goes_on_after_each_message_that_raises() -> None:
    reading = TypedReading(numbers(12), odd_and_no_multiple_of_five)
    assert await all_steps(reading) == [1, 3, ("poison", 5), 7, 9, ("poison", 10), 11]
    assert reading.left_out == 5


async def test_batches_raise_before_the_list_that_a_message_would_have_been_in() -> None:
    reading = TypedReading(Source(12), odd_and_no_multiple_of_five)
    steps = await all_steps(reading.batches(max=100, wait=0.25))
    assert steps == [("poison", 5), ("poison", 10), [1, 3, 7, 9, 11]]
    assert reading.left_out == 5


@pytest.mark.parametrize("most", range(1, 14))
async def test_batches_hold_the_same_in_the_same_order(most: int) -> None:
    reading = TypedReading(Source(12), odd_and_no_multiple_of_five)
    steps = await all_steps(reading.batches(max=most, wait=0.25))
    lists = [step for step in steps if isinstance(step, list)]
    assert [item for items in lists for item in items] == [1, 3, 7, 9, 11]
    assert all(0 < len(items) <= most for items in lists)
    assert [step for step in steps if step not in lists] == [("poison", 5), ("poison", 10)]
    assert reading.left_out == 5


async def test_single_steps_and_batches_take_turns() -> None:
    reading = TypedReading(Source(14), odd_and_no_multiple_of_five)
    batches = reading.batches(max=12, wait=0.25)
    with pytest.raises(ValueError, match="5"):
        await anext(batches)
    with pytest.raises(ValueError, match="10"):
        await anext(reading)
    assert await anext(reading) == 1
    assert await anext(reading.batches(max=2, wait=0.25)) == [3, 7]
    assert await anext(batches) == [9, 11]
    assert await anext(reading) == 13


async def test_entering_and_leaving_enters_and_leaves_the_source() -> None:
    source = Source(3)
    async with TypedReading(source, odd_and_no_multiple_of_five) as reading:
        assert source.done == ["entered"]
        assert reading.source is source
    assert source.done == ["entered", None]


async def test_the_source_learns_that_it_is_left_by_an_error() -> None:
    source = Source(9)

    async def read_all() -> None:
        async with TypedReading(source, odd_and_no_multiple_of_five) as reading:
            async for _ in reading:
                pass

    with pytest.raises(ValueError, match="5"):
        await read_all()
    assert source.done == ["entered", ValueError]


async def test_a_source_is_not_left_as_finished_while_something_of_a_list_is_left() -> None:
    source = Source(12)
    async with TypedReading(source, odd_and_no_multiple_of_five) as reading:
        with pytest.raises(ValueError, match="5"):
            await anext(reading.batches(wait=0.25))
    assert source.done == ["entered", "closed"]
    assert await all_steps(reading) == []


async def test_closing_closes_the_source_and_drops_what_was_taken() -> None:
    source = Source(12)
    reading = TypedReading(source, odd_and_no_multiple_of_five)
    with pytest.raises(ValueError, match="5"):
        await anext(reading.batches(wait=0.25))
    await reading.aclose()
    assert source.done == ["closed"]
    assert await all_steps(reading) == []


async def test_a_plain_iterator_is_closed_at_the_end() -> None:
    source = numbers(9)
    async with TypedReading(source, odd_and_no_multiple_of_five) as reading:
        assert await anext(reading) == 1
    assert await all_steps(source) == []


async def test_what_cannot_be_read_in_lists_says_so() -> None:
    with pytest.raises(UsageError, match="cannot be read in lists"):
        TypedReading(numbers(3), odd_and_no_multiple_of_five).batches()


async def test_cancelling_a_step_loses_nothing() -> None:
    queue: asyncio.Queue[Message] = asyncio.Queue()

    class Waiting:
        def __aiter__(self) -> Self:
            return self

        async def __anext__(self) -> Message:
            return await queue.get()

    reading = TypedReading(Waiting(), odd_and_no_multiple_of_five)
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
