"""Read, process, write, with the program cut off at each of its messages and steps.

However it ends, the next one of its name goes on, and committed readings show the result of each
message once. The program is the real one, on the embedded broker; a crash takes away its network at
a message that the broker has read, or has stored and not acked, so that nothing of it comes later.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Final

import pytest

from liftbridge_aio import (
    ALL_PARTITIONS,
    Client,
    ClientOptions,
    IncorrectOffset,
    Isolation,
    LiftbridgeError,
    Retry,
    StopAt,
)
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.broker.faults.fault import Fault
from liftbridge_aio.broker.faults.fault_plan import MessagePlace
from liftbridge_aio.interceptors import AckFuture, Interceptor
from liftbridge_aio.model import ACK_HEADER, OutgoingMessage
from liftbridge_aio.testing import FaultProxy
from liftbridge_aio.transactions import CheckpointStream, ProducerFenced, claimed_log
from support.clients import EARLIEST, rest
from support.faults import BOUND, QUICK, steps

pytestmark = pytest.mark.parametrize("data_path", ["lane"], indirect=True)

COMMITTED: Final = Isolation.READ_COMMITTED
ORDERS: Final = "orders"
COUNT: Final = 6
SIZE: Final = 3
"""Messages of a transaction of the orders; batches end in the middle of it."""
STORE: Final = CheckpointStream("store")
SOON: Final = Retry(attempts=3, backoff=QUICK)


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker() as running:
        yield running


@pytest.fixture
async def observer(broker: EmbeddedBroker) -> AsyncIterator[Client]:
    """A client that nothing happens to; the orders are there."""
    async with Client(broker.address, options=ClientOptions(backoff=QUICK)) as client:
        await client.create_stream(ORDERS, partitions=2)
        producer = client.producer()
        for begin in range(0, COUNT, SIZE):
            async with producer.transaction() as transaction:
                for number in range(begin, begin + SIZE):
                    await transaction.publish(ORDERS, b"%d" % number, partition=begin // SIZE % 2)
        yield client


async def work(client: Client, out: str) -> None:
    """Copy all orders, two at a time."""
    async with (
        client.producer(out, store=STORE, retry=SOON) as producer,
        client.subscribe(
            *(ORDERS, ALL_PARTITIONS, EARLIEST, StopAt.latest()),
            positions=producer,
            isolation=COMMITTED,
        ) as orders,
    ):
        async for batch in orders.batches(max=2):
            async with producer.transaction(orders) as transaction:
                for order in batch:
                    await transaction.publish(out, order.value, partition=order.partition)


@asynccontextmanager
async def process(
    broker: EmbeddedBroker, *interceptors: Interceptor
) -> AsyncIterator[tuple[Client, FaultProxy]]:
    """A client of its own, and the network that it has."""
    async with FaultProxy(broker.address) as proxy:
        options = ClientOptions(
            backoff=QUICK,
            address_map=lambda _: proxy.address,
            close_timeout=0.05,
            ack_timeout=5,
            interceptors=interceptors,
        )
        client = Client(proxy.address, options=options)
        await client.connect()
        try:
            yield client, proxy
        finally:
            await client.aclose()


async def take_away(proxy: FaultProxy) -> None:
    await proxy.refuse()
    await proxy.reset()


async def shown(client: Client, stream: str) -> list[bytes]:
    reading = client.read(stream, partition=ALL_PARTITIONS, isolation=COMMITTED)
    return [message.value async for message in reading]


async def check(client: Client, out: str) -> None:
    """What is shown is each order once, and in order."""
    found = await rest(client.read(out, partition=ALL_PARTITIONS, isolation=COMMITTED))
    for partition in (0, 1):
        values = [message.value for message in found if message.partition == partition]
        expected = range(partition * SIZE, (partition + 1) * SIZE)
        assert values == [b"%d" % number for number in expected], f"{out} {partition}"


async def finish(client: Client, out: str) -> None:
    """Let the next program come, which goes on, and see what there is before and after it."""
    repeated = {value for value, n in Counter(await shown(client, out)).items() if n > 1}
    assert not repeated, out
    async with asyncio.timeout(BOUND):
        await work(client, out)
    await check(client, out)


async def ended_or_applied(task: asyncio.Task[None], fault: Fault) -> bool:
    """Wait for either; return True if the fault was applied."""
    waiting = asyncio.create_task(fault.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    return bool(fault.applied)


@pytest.mark.parametrize("at", ["request", "reply"])
async def test_a_crash_at_each_message(
    broker: EmbeddedBroker, observer: Client, at: MessagePlace
) -> None:
    for number in itertools.count():
        out = f"{at}-{number}"
        await observer.create_stream(out, partitions=2)
        async with process(broker) as (client, proxy):
            stall = broker.faults.stall("PublishAsync", at=at, skip=number)
            task = asyncio.create_task(work(client, out))
            applied = await ended_or_applied(task, stall)
            if applied:
                await take_away(proxy)
                task.cancel()
            with suppress(asyncio.CancelledError, LiftbridgeError):
                await task
            stall.release()
            stall.cancel()
        await finish(observer, out)
        if not applied:
            break
    assert number > 2 * COUNT


@pytest.mark.parametrize("at", ["request", "reply"])
async def test_a_crash_of_its_successor_too(
    broker: EmbeddedBroker, observer: Client, at: MessagePlace
) -> None:
    """The second one crashes within its first messages, which finish what the first one left."""
    for number, later in itertools.product(range(6, 18, 4), (1, 4)):
        out = f"{at}-{number}-{later}"
        await observer.create_stream(out, partitions=2)
        for skip in (number, later):
            async with process(broker) as (client, proxy):
                stall = broker.faults.stall("PublishAsync", at=at, skip=skip)
                task = asyncio.create_task(work(client, out))
                if await ended_or_applied(task, stall):
                    await take_away(proxy)
                    task.cancel()
                with suppress(asyncio.CancelledError, LiftbridgeError):
                    await task
                stall.release()
                stall.cancel()
        await finish(observer, out)


async def test_a_crash_at_any_step(broker: EmbeddedBroker, observer: Client) -> None:
    """Between two rounds of the event loop, which are more than the program awaits."""
    stride = 37
    for count in itertools.count(0, stride):
        out = f"step-{count}"
        await observer.create_stream(out, partitions=2)
        async with process(broker) as (client, proxy):
            task = asyncio.create_task(work(client, out))
            await steps(count)
            done = task.done()
            await take_away(proxy)
            task.cancel()
            with suppress(asyncio.CancelledError, LiftbridgeError):
                await task
        await finish(observer, out)
        if done:
            break
    assert count > 5 * stride


@pytest.mark.parametrize(("at", "first"), [("request", 0), ("reply", 1)])
async def test_a_zombie_that_goes_on(
    broker: EmbeddedBroker, observer: Client, at: MessagePlace, first: int
) -> None:
    """It hangs, another one does its work, and it goes on as if nothing had happened."""
    fenced = 0
    for number in itertools.count(first, 2):
        out = f"zombie-{at}-{number}"
        await observer.create_stream(out, partitions=2)
        async with process(broker) as (client, _):
            stall = broker.faults.stall("PublishAsync", at=at, skip=number)
            task = asyncio.create_task(work(client, out))
            applied = await ended_or_applied(task, stall)
            if applied:
                await finish(observer, out)
            stall.release()
            stall.cancel()
            async with asyncio.timeout(BOUND):
                try:
                    await task
                except ProducerFenced:
                    fenced += 1
            await check(observer, out)
        if not applied:
            break
    assert fenced > COUNT // 2


class WithoutFence(Interceptor):
    """Appends to the store although somebody else has, once `is_out` is set."""

    def __init__(self) -> None:
        self.is_out = False

    async def publish(
        self, message: OutgoingMessage, send: Callable[[OutgoingMessage], Awaitable[AckFuture]]
    ) -> AckFuture:
        future, expected = await send(message), message.expected_offset
        if expected is None:
            return future
        await asyncio.wait([future])
        if not self.is_out or not isinstance(future.exception(), IncorrectOffset):
            return future
        message.expected_offset = None
        ack = await (await send(message))
        assert ack is not None
        told: AckFuture = asyncio.get_running_loop().create_future()
        told.set_result(replace(ack, offset=expected))
        return told


async def test_a_zombie_without_the_fence_repeats(
    broker: EmbeddedBroker, observer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs before its first transaction is in the store, where nobody can roll it back."""
    monkeypatch.setattr(claimed_log, "_FRESH", math.inf)  # it does not look at its log either
    out, fence = "unfenced", WithoutFence()
    await observer.create_stream(out, partitions=2)
    async with process(broker, fence) as (client, _):
        stall = broker.faults.stall("PublishAsync", at="request", skip=2)  # behind its claim
        task = asyncio.create_task(work(client, out))
        assert await ended_or_applied(task, stall)
        await finish(observer, out)
        fence.is_out = True
        stall.release()
        async with asyncio.timeout(BOUND):
            await task
    assert sorted(await shown(observer, out)) == sorted(2 * [b"%d" % n for n in range(COUNT)])


async def test_what_was_left_open_is_rolled_back(broker: EmbeddedBroker, observer: Client) -> None:
    """In every partition that the program has published to, the first time too."""
    out = "open"
    await observer.create_stream(out, partitions=2)
    async with process(broker) as (client, proxy):
        producer = client.producer(out, store=STORE)
        await producer.__aenter__()
        transaction = producer.transaction()
        for partition in (0, 1):
            await transaction.publish(out, b"in vain", partition=partition)
        await transaction.flush()
        await take_away(proxy)
    async with observer.producer(out, store=STORE):
        found = await rest(observer.read(out, partition=ALL_PARTITIONS))
        acks = [each for each in found if ACK_HEADER in each.transaction_headers]
        assert sorted(each.partition for each in acks) == [0, 1]
    assert await shown(observer, out) == []
