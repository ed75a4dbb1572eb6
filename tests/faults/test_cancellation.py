"""Operations are cancelled, or their client is closed, in the midst: nothing is left or lost.

`tests/cancellation` cancels every coroutine wherever it waits. Here turns of a real event loop are
counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import pytest

from liftbridge_aio import (
    Client,
    ClientClosed,
    Message,
    PublishManyFailed,
    PublishNotSent,
    PublishOutcomeUnknown,
    Retry,
    StartAt,
    StopAt,
)
from liftbridge_aio.testing import FaultProxy
from support.faults import (
    BOUND,
    Options,
    cancelled_after,
    eventually,
    in_flight,
    nothing_left_behind,
    read_all,
    steps,
    take,
    within,
)
from support.servers.node import Server

pytestmark = pytest.mark.real_time

ROUNDS: Final = [*range(20), 22, 25, 30, 35, 40, 50, 60, 80, 120, 200]
"""After how many rounds of the event loop an operation is cancelled."""

Operation = Callable[[Client, str], Coroutine[Any, Any, Any]]


async def enter_and_leave(client: Client, stream: str) -> None:
    async with client.subscribe(stream):
        pass


async def read_to_the_end(client: Client, stream: str) -> None:
    async for _ in client.subscribe(stream, start=StartAt.earliest(), stop=StopAt.latest()):
        pass


async def publish_and_flush(client: Client, stream: str) -> None:
    for _ in range(10):
        await client.publish_async(stream, b"flushed")
    await client.flush()


OPERATIONS: Final[dict[str, Operation]] = {
    "ping": lambda client, _: client.ping(),
    "wait_ready": lambda client, _: client.wait_ready(),
    "fetch_metadata": lambda client, _: client.fetch_metadata(),
    "fetch_partition_metadata": lambda client, stream: client.fetch_partition_metadata(stream, 0),
    "create_stream": lambda client, stream: client.create_stream(stream + ".new", exist_ok=True),
    "resume_stream": lambda client, stream: client.resume_stream(stream),
    "set_stream_readonly": lambda client, stream: client.set_stream_readonly(
        stream, readonly=False
    ),
    "set_cursor": lambda client, stream: client.set_cursor("reader", stream, 0, 1),
    "fetch_cursor": lambda client, stream: client.fetch_cursor("reader", stream, 0),
    "publish": lambda client, stream: client.publish(stream, b"one"),
    "publish with retries": lambda client, stream: client.publish(stream, b"", retry=Retry()),
    "publish by key": lambda client, stream: client.publish(stream, b"", key=b"key"),
    "publish_many": lambda client, stream: client.publish_many(stream, [b"many"] * 20),
    "publish_to_subject": lambda client, stream: client.publish_to_subject(stream, b""),
    "flush": publish_and_flush,
    "subscribe": enter_and_leave,
    "read": read_to_the_end,
}


@pytest.mark.parametrize("name", OPERATIONS)
async def test_closing_in_the_middle_of_a_call(
    server: Server, direct: Client, stream_name: str, name: str
) -> None:
    """Whoever waits is told, by an error of the tree, and nothing stays behind."""
    operation = OPERATIONS[name]
    told = (ClientClosed, PublishOutcomeUnknown, PublishNotSent, PublishManyFailed)
    await direct.create_stream(stream_name)
    for count in ROUNDS[:27:3]:
        async with nothing_left_behind():
            client = Client(server.address)
            await client.connect()
            task = asyncio.create_task(operation(client, stream_name), name="the call")
            await steps(count)
            await within(BOUND, client.aclose())
            done, _ = await asyncio.wait([task], timeout=BOUND)
            assert done, f"hangs when closed after {count} rounds"
            assert not task.cancelled()
            error = task.exception()
            assert error is None or isinstance(error, told), repr(error)


@pytest.mark.parametrize("fault", ["frozen", "refused"])
async def test_connect_to_nobody(proxy: FaultProxy, options: Options, fault: str) -> None:
    if fault == "frozen":
        proxy.freeze()
    else:
        await proxy.refuse()
    for count in ROUNDS[1:]:
        client = Client(proxy.address, options=options())
        await cancelled_after(count, client.connect())
        assert "closed" in repr(client)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("liftbridge")]


async def test_waiting_for_a_message_loses_none(
    direct: Client, client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    read: list[Message] = []
    async with client.subscribe(stream_name) as subscription:

        async def read_on() -> None:
            while True:
                read.append(await anext(subscription))

        for number, count in enumerate(ROUNDS):
            publishing = asyncio.create_task(direct.publish(stream_name, b"%d" % number))
            await cancelled_after(count, read_on())
            await within(BOUND, publishing)
        read += await take(subscription, len(ROUNDS) - len(read))
    assert [message.offset for message in read] == list(range(len(ROUNDS)))


async def test_before_the_write_a_publish_is_taken_back(
    proxy: FaultProxy, client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"first")
    await proxy.refuse()
    await proxy.cut()
    await eventually(lambda: not client.statistics().connections)
    for count in range(2, 30):
        assert await cancelled_after(count, client.publish(stream_name, b"taken back"))
    future = await client.publish_async(stream_name, b"taken back too")
    assert future.cancel()
    await eventually(lambda: in_flight(client) == 0)
    await proxy.accept()
    await within(BOUND, client.publish(stream_name, b"second"))
    assert [each.value for each in await read_all(client, stream_name)] == [b"first", b"second"]


async def test_after_the_write_only_the_wait_is_abandoned(
    proxy: FaultProxy, client: Client, stream_name: str
) -> None:
    """The message is stored, and what waits for it is counted until it is answered."""
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"first")
    proxy.freeze()
    publishing = asyncio.create_task(client.publish(stream_name, b"written"))
    await eventually(lambda: in_flight(client) == 1)
    await eventually(lambda: written(client) == 1)
    publishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await publishing
    proxy.thaw()
    await within(BOUND, client.flush())
    await eventually(lambda: in_flight(client) == 0)
    assert [each.value for each in await read_all(client, stream_name)] == [b"first", b"written"]


def written(client: Client) -> int:
    """Messages that were written and are not answered."""
    assert client._parts is not None
    dispatcher = client._parts.publisher._dispatcher
    return sum(session.in_flight for session in dispatcher.sessions)


async def test_flushing_counts_a_message_whose_publisher_has_gone(
    proxy: FaultProxy, client: Client, stream_name: str
) -> None:
    """A flush that returned before its ack would promise what is not yet so."""
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"first")
    proxy.freeze()
    future = await client.publish_async(stream_name, b"written")
    await eventually(lambda: written(client) == 1)
    future.cancel()
    flushing = asyncio.create_task(client.flush())
    await steps(50)
    assert not flushing.done()
    proxy.thaw()
    await within(BOUND, flushing)
    assert in_flight(client) == 0


async def test_waiting_for_room(proxy: FaultProxy, options: Options, stream_name: str) -> None:
    """The room of the cancelled ones goes to those behind them, and comes back in the end."""
    async with Client(proxy.address, options=options(max_in_flight=1)) as client:
        await client.create_stream(stream_name)
        await client.publish(stream_name, b"0")
        for count in range(12):
            proxy.freeze()
            first = await client.publish_async(stream_name, b"first")
            waiting = [
                asyncio.create_task(client.publish_async(stream_name, b"%d" % number))
                for number in range(3)
            ]
            await eventually(lambda: in_flight(client) == 4)
            proxy.thaw()
            await steps(count)
            waiting[1].cancel()
            async with asyncio.timeout(BOUND):
                await first
                await (await waiting[0])
                await (await waiting[2])
                await asyncio.wait(waiting)
            await eventually(lambda: in_flight(client) == 0)
            await client.publish(stream_name, b"works")


async def test_entering_a_subscription_on_a_frozen_link(
    proxy: FaultProxy, options: Options, stream_name: str
) -> None:
    async with nothing_left_behind():
        async with Client(proxy.address, options=options()) as client:
            await client.create_stream(stream_name)
            proxy.freeze()
            for count in ROUNDS[:20]:
                assert await cancelled_after(count, client.subscribe(stream_name).__aenter__())
            await eventually(lambda: len(client.statistics().subscriptions) == 0)
            proxy.thaw()
            async with client.subscribe(stream_name) as subscription:
                await client.publish(stream_name, b"works")
                assert (await take(subscription, 1))[0].value == b"works"
        await proxy.cut()


async def test_a_timeout_around_a_call_is_the_users_own(
    proxy: FaultProxy, client: Client, stream_name: str
) -> None:
    """asyncio.timeout turns the cancellation into TimeoutError; the client adds nothing to it."""
    await client.create_stream(stream_name)
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: client.publish(stream_name, b""),
        client.fetch_metadata,
        lambda: client.fetch_cursor("reader", stream_name, 0),
        lambda: client.subscribe(stream_name).__aenter__(),
        lambda: anext(client.subscribe(stream_name)),
    ]
    proxy.freeze()
    task = asyncio.current_task()
    assert task is not None
    for call in calls:
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.05):
                await call()
        assert type(caught.value) is TimeoutError
        assert task.cancelling() == 0
    proxy.thaw()
