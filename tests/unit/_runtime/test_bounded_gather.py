from __future__ import annotations

import asyncio

import pytest

from liftbridge_aio import LiftbridgeError
from liftbridge_aio._runtime.bounded_gather import bounded_gather
from support.waiting import until


async def test_results_come_in_the_order_of_what_they_are_for() -> None:
    async def late(number: int) -> int:
        for _ in range(100 - number):
            await asyncio.sleep(0)
        return -number

    assert await bounded_gather(range(100), late) == [-number for number in range(100)]
    assert await bounded_gather([], late) == []


async def test_only_so_many_are_under_way() -> None:
    running, most = 0, 0

    async def work(_: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    await bounded_gather(range(50), work)
    assert 1 < most <= 16


@pytest.mark.parametrize("count", [1, 40])
async def test_those_behind_one_that_fails_are_done_and_its_error_is_raised(count: int) -> None:
    done = []

    async def work(number: int) -> None:
        await asyncio.sleep(0)
        done.append(number)
        if number % 10 == 0:
            raise LiftbridgeError(f"at {number}")

    with pytest.raises(LiftbridgeError, match="at 0"):
        await bounded_gather(range(count), work)
    assert sorted(done) == list(range(count))


async def test_cancelling_cancels_all() -> None:
    ended = []

    async def work(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    task = asyncio.create_task(bounded_gather(range(5), work))
    await until(lambda: len(asyncio.all_tasks()) >= 7)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert sorted(ended) == list(range(5))


async def test_the_first_failure_cancels_the_rest_on_request() -> None:
    cancelled = []

    async def work(number: int) -> None:
        if number == 1:
            raise LiftbridgeError("at 1")
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(number)

    with pytest.raises(LiftbridgeError, match="at 1"):
        await bounded_gather(range(9), work, limit=3, finish_all=False)
    assert sorted(cancelled) == [0, 2]
