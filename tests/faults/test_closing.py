"""Closing: from anywhere, twice, in the middle of anything, and with a dead server, in time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

import liftbridge_aio
from faults.support import (
    BOUND,
    Options,
    eventually,
    in_flight,
    nothing_left_behind,
    outcomes_of,
    read_all,
    within,
)
from liftbridge_aio import (
    AckPolicy,
    Client,
    ClientClosed,
    EndReason,
    Message,
    PublishNotSent,
    PublishOutcomeUnknown,
    StartAt,
)
from liftbridge_aio.testing import FaultProxy
from servers.node import Server


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
            await client.publish(stream_name, b"quiet %d" % number, ack_policy=AckPolicy.NONE)
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
        reading = client.subscribe(stream_name, start=StartAt.earliest())
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
        assert asyncio.get_running_loop().time() - began < 0.5 + 1.0
        outcomes = await outcomes_of(futures, 0.1)
        assert outcomes.unknown
        assert {type(error) for error in outcomes.unknown.values()} == {PublishOutcomeUnknown}
        assert {type(error) for error in outcomes.refused.values()} == {PublishNotSent}
        assert in_flight(client) == 0
        await within(1.0, reader)
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
        await eventually(lambda: not client.statistics().links)
        futures = [await client.publish_async(stream_name, b"") for _ in range(100)]
        began = asyncio.get_running_loop().time()
        await client.aclose()
        assert asyncio.get_running_loop().time() - began < 0.3 + 1.0
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
        assert asyncio.get_running_loop().time() - began < 0.3 + 1.0
        done, hanging = await asyncio.wait(publishing, timeout=1.0)
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
    await eventually(lambda: client.statistics().subscriptions == 3)
    await client.aclose()
    done, hanging = await asyncio.wait(readers, timeout=1.0)
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
    await eventually(lambda: client.statistics().subscriptions == 0)


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=Path(liftbridge_aio.__file__).parent.parent,
    )


IMPORT_EVERYTHING = """
import importlib, pkgutil
import liftbridge_aio
for module in pkgutil.walk_packages(liftbridge_aio.__path__, "liftbridge_aio."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""

A_LIFE_WITH_FAULTS = """
import asyncio, gc, logging
from liftbridge_aio import Client, ClientOptions, PublishOutcomeUnknown, StartAt
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.testing import FaultProxy

async def main():
    asyncio.get_running_loop().slow_callback_duration = 60.0  # how fast it is here is no matter
    logging.getLogger("liftbridge_aio").setLevel(logging.ERROR)
    async with EmbeddedBroker() as broker, FaultProxy(broker.address) as proxy:
        options = ClientOptions(address_map=lambda _: proxy.address, close_timeout=0.5)
        async with Client(proxy.address, options=options) as client:
            await client.create_stream("s", partitions=2)
            async with client.subscribe("s", start=StartAt.earliest()) as subscription:
                futures = [await client.publish_async("s", b"%d" % n) for n in range(500)]
                await anext(subscription)
                await proxy.cut()
                await asyncio.gather(*futures, return_exceptions=True)
                while True:
                    try:
                        await client.publish("s", b"last")
                        break
                    except PublishOutcomeUnknown:
                        pass
                async for message in subscription:
                    if message.value == b"last":
                        break
            async for message in client.subscribe("s", start=StartAt.earliest()):
                break
            await client.set_cursor("c", "s", 1, 5)
            await proxy.cut()
            assert await client.fetch_cursor("c", "s", 1) == 5
            await broker.restart()
            await client.publish("s", b"after")
            async with client.subscribe("s", start=StartAt.latest()) as subscription:
                assert (await anext(subscription)).value == b"after"
            proxy.freeze()
            future = await client.publish_async("s", b"never", partition=1)
        assert future.exception()
        gc.collect()

asyncio.run(main())
"""


@pytest.mark.parametrize("code", [IMPORT_EVERYTHING, A_LIFE_WITH_FAULTS], ids=["imports", "life"])
def test_quiet_in_development_mode(code: str) -> None:
    """No warning, no unclosed socket, no exception that nobody retrieved."""
    done = run_python(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


async def test_a_future_that_is_kept_does_not_keep_the_client(
    server: Server, stream_name: str
) -> None:
    async with Client(server.address) as client:
        await client.create_stream(stream_name)
        future = await client.publish_async(stream_name, b"1")
        await future
        assert client._parts is not None
        (session,) = map(weakref.ref, client._parts.publisher._lanes.sessions)
    del client
    gc.collect()
    assert future.done()
    assert session() is None
