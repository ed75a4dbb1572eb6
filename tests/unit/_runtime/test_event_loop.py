"""Tasks whose work begins after their creator has gone on, whatever the task factory."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from liftbridge_aio._runtime.event_loop import begun_later


def plain_tasks(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    return asyncio.Task(work, loop=loop, **options)


FACTORIES: list[Callable[..., Any] | None] = [None, plain_tasks]
if hasattr(asyncio, "eager_task_factory"):
    FACTORIES.append(asyncio.eager_task_factory)


@pytest.mark.parametrize("factory", FACTORIES)
async def test_work_begins_after_its_creator_goes_on(factory: Callable[..., Any] | None) -> None:
    asyncio.get_running_loop().set_task_factory(factory)
    begun = False

    async def work() -> str:
        nonlocal begun
        begun = True
        return "done"

    task = asyncio.create_task(begun_later(work()))
    assert not begun
    assert await task == "done"


@pytest.mark.parametrize("factory", FACTORIES)
async def test_work_cancelled_before_it_begins_never_begins(
    factory: Callable[..., Any] | None,
) -> None:
    asyncio.get_running_loop().set_task_factory(factory)

    async def work() -> None:
        raise AssertionError

    coroutine = work()
    task = asyncio.create_task(begun_later(coroutine))
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    del task
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED  # Python does not warn
