"""Timeouts and cancellation around calls of the client: none leaks, none is swallowed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from liftbridge_aio import (
    Backoff,
    Client,
    ClientOptions,
    LiftbridgeError,
    PublishOutcomeUnknown,
    SubscriptionLost,
)
from liftbridge_aio.testing import FaultProxy
from support.clients import EARLIEST, read_out, rest, values
from support.raw import BOUND
from support.servers.node import Server

Call = Callable[[Client, str], Awaitable[object]]

CALLS: dict[str, Call] = {
    "publish": lambda client, name: client.publish(name, b""),
    "publish_many": lambda client, name: client.publish_many(name, [b""] * 3),
    "publish_to_subject": lambda client, name: client.publish_to_subject(name, b""),
    "enter": lambda client, name: client.subscribe(name, partition=0).__aenter__(),
    "anext": lambda client, name: anext(client.subscribe(name, partition=0)),
    "set_cursor": lambda client, name: client.set_cursor("id", name, 0, 1),
    "fetch_cursor": lambda client, name: client.fetch_cursor("id", name, 0),
    "create_stream": lambda client, name: client.create_stream(f"{name}-created"),
    "delete_stream": lambda client, name: client.delete_stream(name),
    "pause_stream": lambda client, name: client.pause_stream(name),
    "resume_stream": lambda client, name: client.resume_stream(name),
    "set_stream_readonly": lambda client, name: client.set_stream_readonly(name),
    "fetch_metadata": lambda client, _: client.fetch_metadata(),
    "fetch_partition_metadata": lambda client, name: client.fetch_partition_metadata(name, 0),
    "ping": lambda client, _: client.ping(),
    "wait_ready": lambda client, _: client.wait_ready(),
}


async def in_tasks(check: Callable[[Call], Awaitable[str]]) -> None:
    """Make every call, each in a task of its own, and show those that a check complains of."""

    async def verdict(name: str) -> str:
        try:
            complaint = await check(CALLS[name])
        except BaseException as error:  # noqa: BLE001 - any that comes through is a finding
            complaint = repr(error)
        return f"{name}: {complaint}" if complaint else ""

    async with asyncio.timeout(BOUND):
        tasks = [asyncio.create_task(verdict(name)) for name in CALLS]
        await asyncio.wait(tasks)
    assert [task.result() for task in tasks if task.result()] == []


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(server.address) as proxy:
        yield proxy


@pytest.fixture
async def hasty(proxy: FaultProxy, stream_name: str) -> AsyncIterator[Client]:
    """A client behind the proxy that gives up soon, all its links up, and a stream."""
    async with client_of(proxy, stream_name, 0.3) as client:
        yield client


@pytest.fixture
async def patient(proxy: FaultProxy, stream_name: str) -> AsyncIterator[Client]:
    """The same, but it does not give up soon."""
    async with client_of(proxy, stream_name, BOUND) as client:
        yield client


@asynccontextmanager
async def client_of(proxy: FaultProxy, stream_name: str, timeout: float) -> AsyncIterator[Client]:
    options = ClientOptions(
        connect_timeout=timeout,
        call_timeout=timeout,
        ack_timeout=timeout,
        publish_timeout=timeout,
        resubscribe_timeout=timeout,
        close_timeout=0.3,
        backoff=Backoff(initial=0.01, maximum=0.05),
        address_map=lambda _: proxy.address,
    )
    client = Client(proxy.address, options=options)
    await client.wait_ready(timeout=BOUND)
    await client.create_stream(stream_name, timeout=BOUND)
    await client.publish(stream_name, b"", ack_timeout=BOUND, timeout=BOUND)
    await client.fetch_cursor("id", stream_name, 0, timeout=BOUND)
    yield client
    await client.aclose()


def cancelling() -> int:
    """Return the number of pending cancellation requests of the current task."""
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


@pytest.mark.parametrize("ends", ["time is up", "the link breaks"])
async def test_calls_that_fail_leave_their_tasks_in_peace(
    hasty: Client, proxy: FaultProxy, stream_name: str, ends: str
) -> None:
    proxy.freeze()

    async def check(call: Call) -> str:
        async with asyncio.timeout(BOUND / 2) as bound:
            with pytest.raises(LiftbridgeError):
                await call(hasty, stream_name)
            await asyncio.sleep(0)
        return f"{cancelling()=} {bound.expired()=}" * (cancelling() > 0 or bound.expired())

    checking = asyncio.create_task(in_tasks(check))
    if ends == "the link breaks":
        await asyncio.sleep(0.02)  # the calls are on their way
        await proxy.refuse()
        await proxy.cut()
    await checking


async def test_an_outer_timeout_is_a_timeout_of_the_outer_one(
    patient: Client, proxy: FaultProxy, stream_name: str
) -> None:
    proxy.freeze()

    async def check(call: Call) -> str:
        with pytest.raises(TimeoutError) as failed:
            async with asyncio.timeout(0.05):
                await call(patient, stream_name)
        if isinstance(failed.value, LiftbridgeError) or cancelling():
            return f"asyncio.timeout: {failed.value!r} {cancelling()=}"
        with anyio.move_on_after(0.05) as scope:
            await call(patient, stream_name)
        if not scope.cancelled_caught or cancelling():
            return f"move_on_after: {scope.cancelled_caught=} {cancelling()=}"
        with pytest.raises(TimeoutError) as failed, anyio.fail_after(0.05):
            await call(patient, stream_name)
        return f"fail_after: {failed.value!r} {cancelling()=}" * (
            isinstance(failed.value, LiftbridgeError) or cancelling() > 0
        )

    await in_tasks(check)
    proxy.thaw()
    assert await patient.ping(timeout=BOUND) > 0


async def test_a_reading_that_cannot_be_resumed_leaves_its_task_in_peace(
    hasty: Client, proxy: FaultProxy, stream_name: str
) -> None:
    async with asyncio.timeout(5):
        subscription = hasty.subscribe(stream_name, partition=0, start=EARLIEST, timeout=BOUND)
        assert (await anext(subscription)).offset == 0
        await proxy.refuse()
        await proxy.cut()
        with pytest.raises(SubscriptionLost) as lost:
            await anext(subscription)
        assert cancelling() == 0
        await asyncio.sleep(0)
    assert lost.value.last_offset == 0
    assert (lost.value.stream, lost.value.partition) == (stream_name, 0)


async def test_in_an_anyio_group_an_error_of_the_client_is_the_one_that_shows(
    hasty: Client, proxy: FaultProxy, stream_name: str
) -> None:
    proxy.freeze()

    async def publish() -> None:
        await hasty.publish(stream_name, b"")

    with pytest.raises(ExceptionGroup) as failed:  # noqa: PT012 - a group has children
        async with anyio.create_task_group() as group:
            group.start_soon(publish)
            group.start_soon(anyio.sleep, BOUND)
    [error] = failed.value.exceptions
    assert isinstance(error, PublishOutcomeUnknown)
    assert cancelling() == 0


async def test_a_failing_group_ends_the_readings_in_it(client: Client, stream_name: str) -> None:
    await client.create_stream(stream_name)
    entered = asyncio.Event()

    async def read() -> None:
        async with client.subscribe(stream_name, partition=0) as subscription:
            entered.set()
            await rest(subscription)

    async def fail() -> None:
        await entered.wait()
        raise ValueError

    with pytest.raises(ExceptionGroup) as failed:  # noqa: PT012 - a group has children
        async with asyncio.TaskGroup() as group:
            group.create_task(read())
            group.create_task(fail())
    assert [type(error) for error in failed.value.exceptions] == [ValueError]
    assert len(client.statistics().subscriptions) == 0
    assert await client.publish(stream_name, b"") is not None


async def test_a_cancelled_publish_is_taken_back_or_stored_once(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name)
    kept = []
    for n in range(60):
        publishing = asyncio.create_task(client.publish(stream_name, b"%d" % n))
        for _ in range(n % 12):
            await asyncio.sleep(0)
        if not publishing.cancel():
            kept.append(b"%d" % n)
        await asyncio.gather(publishing, return_exceptions=True)
    await client.publish(stream_name, b"last")

    found = values(await read_out(client, stream_name))
    assert len(set(found)) == len(found)
    assert found == [*sorted(found[:-1], key=int), b"last"]
    assert set(kept) <= set(found)
    assert b"0" not in found  # cancelled before it had begun
    figures = client.statistics().publisher
    assert figures is not None
    assert (figures.in_flight, figures.in_flight_bytes) == (0, 0)


async def test_cancelling_one_of_those_who_share_a_question_leaves_the_others(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name, partitions=3)
    tasks = [
        asyncio.create_task(client.publish(stream_name, b"", key=b"%d" % n)) for n in range(20)
    ]
    await asyncio.sleep(0)
    tasks[0].cancel()
    async with asyncio.timeout(BOUND):
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert not any(isinstance(outcome, BaseException) for outcome in outcomes[1:])


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop does not run there")
async def test_all_of_it_works_on_uvloop(server: Server, stream_name: str) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def scenario() -> list[bytes]:
        async with asyncio.timeout(BOUND), Client(server.address) as client:
            await client.create_stream(stream_name)
            async with client.subscribe(stream_name, partition=0) as subscription:
                await client.publish_many(stream_name, [b"0", b"1"])
                return [(await anext(subscription)).value for _ in range(2)]

    def run() -> list[bytes]:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(scenario())

    assert await asyncio.to_thread(run) == [b"0", b"1"]


@pytest.mark.parametrize("sizes", [[300_000], [100] * 4000], ids=["one large", "many small"])
async def test_messages_that_were_taken_back_hold_up_no_others(
    client: Client, stream_name: str, sizes: list[int]
) -> None:
    await client.create_stream(stream_name)
    await client.publish(stream_name, b"first")
    taken_back = [await client.publish_async(stream_name, bytes(size)) for size in sizes]
    # Nothing has let the writer go on meanwhile, so some of them are not written.
    for future in taken_back:
        future.cancel()
    async with asyncio.timeout(BOUND):
        for number in range(3):
            await client.publish(stream_name, b"%d" % number)
