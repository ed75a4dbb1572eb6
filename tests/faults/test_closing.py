"""Closing: from anywhere, twice, in the middle of anything, and with a dead server, in time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator

import anyio
import pytest

from liftbridge_aio import (
    Client,
    ClientClosed,
    EndReason,
    Message,
    PublishNotSent,
    PublishOutcomeUnknown,
    StartAt,
)
from liftbridge_aio.testing import FaultProxy
from support.faults import (
    BOUND,
    Options,
    eventually,
    in_flight,
    nothing_left_behind,
    outcomes_of,
    read_all,
    within,
)
from support.servers.node import Server


@pytest.fixture
async def opened_in_another_task(server: Server) -> AsyncIterator[Client]:
    """Entered in one task and closed in another, as some frameworks do with their hooks."""
    stack = contextlib.AsyncExitStack()
    client = await asyncio.create_task(stack.enter_async_context(Client(server.address)))
    yield client
    await asyncio.create_task(stack.aclose())
    assert "closed" in repr(client)


async def test_in_the_teardown_of_a_fixture(
    opened_in_another_task: Client, stream_name: str
) -> None:
    client = opened_in_another_task
    await client.create_stream(stream_name)
    await client.subscribe(stream_name).__aexit__(None, None, None)
    ack = await client.publish(stream_name, b"value")
    assert ack is not None
    assert ack.offset == 0


async def test_twice_at_the_same_time_from_other_tasks(server: Server, stream_name: str) -> None:
    async with nothing_left_behind():
        client = Client(server.address)
        await client.connect()
        await client.create_stream(stream_name)
        futures = [await client.publish_async(stream_name, b"%d" % n) for n in range(500)]
        async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(client.aclose())
        assert len((await outcomes_of(futures, 0.1)).acked) == 500
        await client.aclose()
        with pytest.raises(ClientClosed):
            await client.publish(stream_name, b"late")
        with pytest.raises(ClientClosed):
            client.subscribe(stream_name)


async def test_inside_scopes_of_anyio(server: Server, stream_name: str) -> None:
    async with nothing_left_behind():
        client = Client(server.address)
        with anyio.fail_after(BOUND):
            await client.connect()
            await client.create_stream(stream_name)
            async with anyio.create_task_group() as group:
                group.start_soon(client.publish, stream_name, b"value")
                await client.publish(stream_name, b"value")
        with anyio.CancelScope() as scope:
            async with client:
                scope.cancel()
                await client.ping()
        assert scope.cancelled_caught
        assert "closed" in repr(client)


async def test_acks_are_waited_for(server: Server, direct: Client, stream_name: str) -> None:
    await direct.create_stream(stream_name)
    async with Client(server.address) as client:
        futures = [await client.publish_async(stream_name, b"%d" % n) for n in range(1000)]
        for number in range(10):
            await client.publish_unacked(stream_name, b"quiet %d" % number)
    assert len((await outcomes_of(futures, 0.1)).acked) == 1000
    await direct.publish(stream_name, b"last")
    assert len(await read_all(direct, stream_name)) == 1011


async def test_with_a_frozen_server(proxy: FaultProxy, options: Options, stream_name: str) -> None:
    """Written ones may be stored, the others are not: each says so, and closing raises nothing."""
    async with nothing_left_behind():
        client = Client(proxy.address, options=options(close_timeout=0.5))
        await client.connect()
        await client.create_stream(stream_name)
        await client.publish(stream_name, b"first")
        reading = client.subscribe(stream_name, partition=0, start=StartAt.earliest())
        read: list[Message] = []

        async def read_on() -> None:
            async for message in reading:
                read.append(message)  # noqa: PERF401 - seen by the test meanwhile

        reader = asyncio.create_task(read_on())
        await eventually(lambda: read)
        proxy.freeze()
        value = bytes(100_000)  # more than buffers and windows take
        futures = [await client.publish_async(stream_name, value) for _ in range(300)]
        began = asyncio.get_running_loop().time()
        await client.aclose()
        assert asyncio.get_running_loop().time() - began < 0.5 + 5.0
        outcomes = await outcomes_of(futures, 0.1)
        assert outcomes.unknown
        assert {type(error) for error in outcomes.unknown.values()} == {PublishOutcomeUnknown}
        assert {type(error) for error in outcomes.refused.values()} == {PublishNotSent}
        assert in_flight(client) == 0
        await within(BOUND, reader)
        assert reading.end_reason is EndReason.CLOSED
        await proxy.cut()


async def test_with_a_server_that_is_gone(
    proxy: FaultProxy, options: Options, stream_name: str
) -> None:
    async with nothing_left_behind():
        client = Client(proxy.address, options=options(close_timeout=0.3))
        await client.connect()
        await client.create_stream(stream_name)
        await client.publish(stream_name, b"first")
        await proxy.refuse()
        await proxy.cut()
        await eventually(lambda: not client.statistics().connections)
        futures = [await client.publish_async(stream_name, b"") for _ in range(100)]
        began = asyncio.get_running_loop().time()
        await client.aclose()
        assert asyncio.get_running_loop().time() - began < 0.3 + 5.0
        outcomes = await outcomes_of(futures, 0.1)
        assert {type(error) for error in outcomes.refused.values()} == {PublishNotSent}
        assert outcomes.count == len(outcomes.refused) == 100


async def test_publishers_that_wait_for_room_are_told(
    proxy: FaultProxy, options: Options, stream_name: str
) -> None:
    async with nothing_left_behind():
        client = Client(proxy.address, options=options(close_timeout=0.3, max_in_flight=2))
        await client.connect()
        await client.create_stream(stream_name)
        await client.publish(stream_name, b"first")
        proxy.freeze()
        publishing = [asyncio.create_task(client.publish(stream_name, b"")) for _ in range(10)]
        await eventually(lambda: in_flight(client) == 10)
        began = asyncio.get_running_loop().time()
        await client.aclose()
        assert asyncio.get_running_loop().time() - began < 0.3 + 5.0
        done, hanging = await asyncio.wait(publishing, timeout=BOUND)
        assert not hanging
        for task in done:
            told = (ClientClosed, PublishNotSent, PublishOutcomeUnknown)
            assert isinstance(task.exception(), told)
        await proxy.cut()


async def test_readers_that_wait_end_in_order(server: Server, stream_name: str) -> None:
    client = Client(server.address)
    await client.connect()
    await client.create_stream(stream_name)
    subscriptions = [client.subscribe(stream_name) for _ in range(3)]
    readers = [asyncio.create_task(anext(each)) for each in subscriptions]
    await eventually(lambda: len(client.statistics().subscriptions) == 3)
    await client.aclose()
    done, hanging = await asyncio.wait(readers, timeout=BOUND)
    assert not hanging
    assert {type(task.exception()) for task in done} <= {StopAsyncIteration, ClientClosed}


async def test_a_dropped_iterator_resets_its_stream(
    server: Server, client: Client, stream_name: str
) -> None:
    """After `break` nothing is read any more, though nobody called aclose."""
    del server
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"value")
    async for _ in client.subscribe(stream_name, start=StartAt.earliest()):
        break
    gc.collect()
    await eventually(lambda: len(client.statistics().subscriptions) == 0)


async def test_a_future_that_is_kept_does_not_keep_the_client(
    server: Server, stream_name: str
) -> None:
    async with Client(server.address) as client:
        await client.create_stream(stream_name)
        future = await client.publish_async(stream_name, b"1")
        await future
        assert client._parts is not None
        (session,) = map(weakref.ref, client._parts.publisher._dispatcher.sessions)
    del client
    gc.collect()
    assert future.done()
    assert session() is None
