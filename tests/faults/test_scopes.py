"""A lost link leaves no trace in the cancellation state of whoever was waiting on it."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

import anyio
import pytest

from liftbridge_aio import Client, LiftbridgeError, PublishOutcomeUnknown, StartAt
from liftbridge_aio.testing import FaultProxy
from support.faults import BOUND, Recorder, eventually, take


def cancelling() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


def has_dialled(proxy: FaultProxy, count: int) -> bool:
    return proxy.statistics().connections >= count


async def cut_after_each(proxy: FaultProxy, rounds: int) -> None:
    for _ in range(rounds):
        goal = proxy.statistics().connections + 1
        await proxy.cut()
        await eventually(partial(has_dialled, proxy, goal))


async def test_asyncio_timeout(proxy: FaultProxy, client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name)
    async with (
        asyncio.timeout(BOUND) as scope,
        client.subscribe(stream_name, start=StartAt.earliest()) as subscription,
    ):
        for number in range(10):
            await proxy.cut()
            while True:
                try:
                    await client.publish(stream_name, b"%d" % number)
                    break
                except PublishOutcomeUnknown:
                    assert cancelling() == 0
            assert cancelling() == 0
            await take(subscription, 1)
            await client.fetch_metadata()
            assert cancelling() == 0
    assert not scope.expired()


async def test_task_group(proxy: FaultProxy, client: Client, stream_name: str) -> None:
    """A group of tasks on broken links ends in order; none of them is cancelled by the breaks."""
    await client.create_stream(stream_name)

    async def publish() -> None:
        for _ in range(20):
            with contextlib.suppress(PublishOutcomeUnknown):
                await client.publish(stream_name, b"")
            assert cancelling() == 0

    async def fetch() -> None:
        for _ in range(20):
            await client.fetch_metadata()
            assert cancelling() == 0

    async def cut() -> None:
        for _ in range(10):
            await proxy.cut()
            await asyncio.sleep(0)

    async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
        tasks = [group.create_task(work()) for work in (publish, publish, fetch, fetch, cut)]
    assert not [task for task in tasks if task.cancelled()]
    assert cancelling() == 0


async def test_anyio_scopes(proxy: FaultProxy, client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name)
    with anyio.fail_after(BOUND) as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(cut_after_each, proxy, 5)
            for _ in range(30):
                await client.fetch_metadata()
                await client.fetch_partition_metadata(stream_name, 0)
                with anyio.move_on_after(BOUND) as inner:
                    await client.ping()
                assert not inner.cancelled_caught
            group.cancel_scope.cancel()
    assert not scope.cancelled_caught
    assert cancelling() == 0
    await client.ping()


async def test_a_timeout_that_strikes_while_links_break(
    proxy: FaultProxy, client: Client, stream_name: str, recorder: Recorder
) -> None:
    """The scope's own error comes out, never a bare CancelledError."""
    await client.create_stream(stream_name)
    await proxy.refuse()

    async def publish_on_a_breaking_link(limit: float) -> None:
        async with asyncio.timeout(limit):
            await proxy.cut()
            await client.publish(stream_name, b"", timeout=0.5)

    for number in range(30):
        with pytest.raises((TimeoutError, LiftbridgeError)):
            await publish_on_a_breaking_link(0.001 * number)
        assert cancelling() == 0
    assert recorder.tries
