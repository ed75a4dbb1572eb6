from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import pytest

from liftbridge_aio._runtime.supervisor import Supervisor
from liftbridge_aio.errors import ClientClosed, ConnectionFailed
from support.waiting import until


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    """A running supervisor; entered and left in tasks of pytest's own choice."""
    before = asyncio.all_tasks()
    supervisor = Supervisor("test")
    await supervisor.start()
    yield supervisor
    assert await supervisor.stop(5)
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not {task for task in left if task.get_name().startswith("test")}


async def forever() -> None:
    await asyncio.Event().wait()


async def fail() -> None:
    raise LookupError("a bug in a child")


async def meet_a_cancelled_future() -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def be_cancelled_like_a_broken_call() -> None:
    """Cancel the current task, as grpclib does when a connection breaks."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await forever()


# Children


@pytest.mark.parametrize("work", [fail, meet_a_cancelled_future, be_cancelled_like_a_broken_call])
async def test_a_child_that_breaks_harms_no_other_and_is_logged(
    supervisor: Supervisor,
    work: Callable[[], Awaitable[None]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    neighbour = supervisor.spawn(forever, name="neighbour")
    child = supervisor.spawn(work, name="culprit")
    await child.wait()
    assert supervisor.running
    assert await supervisor.call(asyncio.sleep, 0, "still there", name="probe") == "still there"
    assert not neighbour.done
    (record,) = caplog.records
    assert record.name == "liftbridge_aio.tasks"
    assert "test:culprit" in record.getMessage()


async def test_a_child_can_be_cancelled_alone(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    child, neighbour = (supervisor.spawn(forever, name=name) for name in ("a", "b"))
    child.cancel()
    await child.wait()
    child.cancel()
    assert child.done
    assert not neighbour.done
    assert not caplog.records


async def test_cancelling_the_wait_for_a_child_leaves_it_alone(supervisor: Supervisor) -> None:
    child = supervisor.spawn(forever, name="child")
    with anyio.move_on_after(0):
        await child.wait()
    await asyncio.sleep(0)
    assert not child.done


# Calls


@pytest.mark.parametrize("work", [meet_a_cancelled_future, be_cancelled_like_a_broken_call])
async def test_a_cancellation_inside_a_call_is_an_error_outside(
    supervisor: Supervisor, work: Callable[[], Awaitable[None]]
) -> None:
    with pytest.raises(ConnectionFailed, match="cancelled from outside"):
        await supervisor.call(work, name="call")
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert supervisor.running


@pytest.mark.parametrize("moment", ["before it runs", "while it runs"])
async def test_cancelling_a_call_cancels_the_child(supervisor: Supervisor, moment: str) -> None:
    events: list[str] = []

    async def work() -> None:
        events.append("began")
        try:
            await forever()
        finally:
            events.append("ended")

    call = asyncio.create_task(supervisor.call(work, name="call"))
    await asyncio.sleep(0)
    if moment == "while it runs":
        await until(lambda: events == ["began"])
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: events == ["began", "ended"])
    assert supervisor.running


async def test_an_error_after_the_cancellation_of_a_call_is_of_no_interest(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    began = asyncio.Event()

    async def work() -> None:
        began.set()
        try:
            await forever()
        finally:
            raise LookupError("while closing")

    call = asyncio.create_task(supervisor.call(work, name="call"))
    await began.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await supervisor.stop(5)
    gc.collect()
    assert not caplog.records


# The end


async def test_stopping_ends_children_and_calls() -> None:
    supervisor = Supervisor("test")
    await supervisor.start()
    child = supervisor.spawn(forever, name="child")
    call = asyncio.create_task(supervisor.call(forever, name="call"))
    await asyncio.sleep(0)
    assert await supervisor.stop(5)
    assert child.done
    with pytest.raises(ClientClosed, match="closed during call"):
        await call


async def test_a_child_whose_wait_is_over_as_it_stops_goes_on_and_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    supervisor = Supervisor("test")
    await supervisor.start()
    loop = asyncio.get_running_loop()
    over, went_on = loop.create_future(), asyncio.Event()

    async def watch() -> None:
        await over
        went_on.set()
        await supervisor.call(forever, name="check")

    supervisor.spawn(watch, name="watch")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    stop = asyncio.create_task(supervisor.stop(5))
    loop.call_soon(over.set_result, None)
    assert await stop
    assert went_on.is_set()
    assert not caplog.records


async def test_stopping_is_bounded_even_if_a_child_will_not_end() -> None:
    supervisor = Supervisor("test")
    await supervisor.start()
    release = asyncio.Event()

    async def stubborn() -> None:
        with anyio.CancelScope(shield=True):
            await release.wait()

    supervisor.spawn(stubborn, name="stubborn")
    await asyncio.sleep(0)
    assert not await supervisor.stop(0.01)
    release.set()
    assert await supervisor.stop(5)
