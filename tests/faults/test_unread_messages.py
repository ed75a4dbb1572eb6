"""Unread messages in the client under faults: none is lost or delivered twice."""

from __future__ import annotations

import asyncio
import gc

import pytest

from liftbridge_aio import (
    Client,
    ClientOptions,
    EndReason,
    MalformedData,
    StartAt,
    StopAt,
    StreamReset,
    SubscriptionError,
)
from liftbridge_aio._subscribe import decoder
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.testing import FaultProxy
from liftbridge_aio.wire.codec import decode_message
from support.faults import (
    BOUND,
    Options,
    Recorder,
    eventually,
    nothing_left_behind,
    steps,
    take,
    within,
)

pytestmark = pytest.mark.real_time

KIB, MIB = 2**10, 2**20
COUNT = 400


def tasks(kind: str = "") -> list[str]:
    """The tasks of clients, or those of a kind."""
    names = [task.get_name() for task in asyncio.all_tasks()]
    return [name for name in names if name.startswith(f"liftbridge_aio:{kind}")]


def tasks_of_subscriptions() -> list[str]:
    return tasks("subscription:")


async def test_a_break_with_unread_messages_loses_and_repeats_none(
    proxy: FaultProxy, client: Client, direct: Client, recorder: Recorder, stream_name: str
) -> None:
    await direct.create_stream(stream_name)
    await direct.publish_many(stream_name, [b"%d" % n for n in range(COUNT)])
    async with client.subscribe(stream_name, start=StartAt.earliest()) as subscription:
        read: list[bytes] = []
        for number in range(5):
            await eventually(
                lambda: subscription.statistics().buffered == COUNT + number - len(read)  # noqa: B023
            )
            # Some are decoded ahead, the others lie as they came.
            read += [message.value for message in await take(subscription, 1 + 35 * number)]
            await proxy.cut()
            await eventually(lambda: len(recorder.resumed) == number + 1)  # noqa: B023
            assert recorder.resumed[-1].next_offset == COUNT + number
            await direct.publish(stream_name, b"%d" % (COUNT + number))
        read += [message.value for message in await take(subscription, COUNT + 5 - len(read))]
        assert read == [b"%d" % n for n in range(COUNT + 5)]
        assert subscription.statistics().dropped == 0


async def test_a_stop_among_unread_messages_ends_the_reading_there(
    proxy: FaultProxy, client: Client, direct: Client, stream_name: str
) -> None:
    """Also if the call breaks first, and what waits is looked at only then."""
    await direct.create_stream(stream_name)
    await direct.publish_many(stream_name, [b"%d" % n for n in range(COUNT)])
    subscription = client.subscribe(
        stream_name, partition=0, start=StartAt.earliest(), stop=StopAt.offset(COUNT)
    )
    async with subscription:
        await eventually(lambda: subscription.statistics().buffered == COUNT)
        await proxy.cut()
        await eventually(lambda: subscription.statistics().resubscriptions == 1)
        await direct.publish_many(stream_name, [b"%d" % (COUNT + n) for n in range(9)])
        async with asyncio.timeout(BOUND):
            read = [message.value async for message in subscription]
        assert read == [b"%d" % n for n in range(COUNT + 1)]
    assert subscription.end_reason is EndReason.STOP_REACHED


async def test_what_was_unread_is_read_before_a_reset_is_told(
    proxy: FaultProxy, client: Client, direct: Client, stream_name: str
) -> None:
    await direct.create_stream(stream_name)
    await direct.publish_many(stream_name, [b"old"] * COUNT)
    async with client.subscribe(stream_name, start=StartAt.earliest()) as subscription:
        await eventually(lambda: subscription.statistics().buffered == COUNT)
        await proxy.refuse()
        await proxy.cut()
        await direct.delete_stream(stream_name)
        await direct.create_stream(stream_name)
        await direct.publish_many(stream_name, [b"new"] * 2 * COUNT)
        await proxy.accept()
        assert {message.value for message in await take(subscription, COUNT)} == {b"old"}
        with pytest.raises(StreamReset):
            await take(subscription, 1)


@pytest.mark.parametrize("stop", [None, StopAt.latest()], ids=["open", "ended"])
async def test_dropped_iterators_take_no_room_from_others(
    proxy: FaultProxy, options: Options, direct: Client, stream_name: str, stop: StopAt | None
) -> None:
    """The client discards the unread messages of a dropped iterator, even without aclose."""
    await direct.create_stream(stream_name)
    await direct.publish_many(stream_name, [bytes(KIB)] * 200)
    async with Client(proxy.address, options=options(max_buffered_bytes=MIB)) as client:

        async def begin_to_read() -> None:
            dropped = client.subscribe(
                stream_name, partition=0, start=StartAt.earliest(), stop=stop
            )
            await take(dropped, 1)
            await eventually(lambda: dropped.statistics().buffered == 199)
            await eventually(lambda: stop is None or dropped.end_reason)

        for _ in range(8):
            await begin_to_read()
            gc.collect()
            await eventually(lambda: len(client.statistics().subscriptions) == 0)
        async with client.subscribe(stream_name, start=StartAt.earliest()) as unread:
            await eventually(lambda: unread.statistics().buffered == 200)


async def test_a_quiet_subscription_has_no_task(
    data_path: str, client: Client, direct: Client, stream_name: str
) -> None:
    await direct.create_stream(stream_name)
    async with client.subscribe(stream_name) as first:
        await eventually(lambda: not tasks_of_subscriptions())
        before = len(tasks())
        others = [client.subscribe(stream_name) for _ in range(10)]
        for other in others:
            await other.__aenter__()
        await eventually(lambda: not tasks_of_subscriptions())
        # The plain path reads each call in a task; the lane has the one callback of the connection.
        more = 10 if data_path == "plain" else 0
        await eventually(lambda: len(tasks()) == before + more)
        await direct.publish(stream_name, b"heard")
        for each in (first, *others):
            assert (await take(each, 1))[0].value == b"heard"
        assert not tasks_of_subscriptions()
        for other in others:
            await other.aclose()


async def test_credit_goes_back_only_as_messages_are_read(
    proxy: FaultProxy, options: Options, direct: Client, stream_name: str
) -> None:
    size, count = 4 * KIB, 1_000
    await direct.create_stream(stream_name)
    await direct.publish_many(stream_name, [bytes(size)] * count)
    async with (
        Client(proxy.address, options=options(max_buffered_bytes=MIB)) as client,
        client.subscribe(stream_name, start=StartAt.earliest()) as subscription,
    ):
        came = 0

        async def settled() -> None:
            """Wait until the server has been stopped."""
            nonlocal came
            while came != (came := proxy.statistics().bytes_to_clients):  # noqa: ASYNC110 - has no event
                await asyncio.sleep(0.05)

        await settled()
        for read in range(100, count, 100):
            assert subscription.statistics().buffered_bytes <= MIB
            await take(subscription, 100)
            await settled()
            # What may lie unread, the batch that is being read, and what goes with it.
            assert came <= read * (size + 200) + MIB * 5 // 4
        await take(subscription, 100)


@pytest.mark.parametrize("raw", [False, True])
async def test_lists_after_single_messages_find_room_though_a_message_fills_it(
    proxy: FaultProxy, options: Options, direct: Client, stream_name: str, *, raw: bool
) -> None:
    await direct.create_stream(stream_name)
    await direct.publish_many(stream_name, [bytes(600 * KIB)] * 6)
    async with (
        Client(proxy.address, options=options(max_buffered_bytes=MIB)) as client,
        client.subscribe(stream_name, start=StartAt.earliest()) as subscription,
    ):
        offsets: list[int] = []
        while len(offsets) < 6:
            offsets += [message.offset for message in await take(subscription, 1)]
            batch = await within(BOUND, anext(subscription.batches(1, raw=raw)))
            offsets += [message.offset for message in batch]
        assert offsets == list(range(6))


@pytest.mark.parametrize("reading", ["next", "batches"])
async def test_cancelling_a_step_while_it_resubscribes_loses_nothing(
    proxy: FaultProxy, options: Options, direct: Client, stream_name: str, reading: str
) -> None:
    await direct.create_stream(stream_name)
    await direct.publish(stream_name, b"so that its session stands")
    received: list[int] = []
    async with nothing_left_behind():
        async with (
            Client(proxy.address, options=options()) as client,
            client.subscribe(stream_name) as subscription,
        ):

            async def step() -> None:
                if reading == "next":
                    received.append((await anext(subscription)).offset)
                else:
                    batch = await anext(subscription.batches(3, 0.001))
                    received.extend(message.offset for message in batch)

            rounds = range(0, 60, 3)
            for number in rounds:
                await proxy.cut()
                task = asyncio.create_task(step())
                await direct.publish(stream_name, b"%d" % number)
                await steps(number)
                task.cancel()
                await asyncio.wait([task], timeout=BOUND)
                assert task.cancelled() or task.exception() is None
            async with asyncio.timeout(BOUND):
                while len(received) < len(rounds):
                    await step()
        await proxy.cut()
    assert received == list(range(1, len(rounds) + 1))


@pytest.mark.parametrize("rounds", range(0, 40, 4))
async def test_closing_while_it_resubscribes_leaves_nothing_behind(
    proxy: FaultProxy, options: Options, direct: Client, stream_name: str, rounds: int
) -> None:
    await direct.create_stream(stream_name)
    async with nothing_left_behind():
        async with Client(proxy.address, options=options()) as client:
            subscription = client.subscribe(stream_name)
            await subscription.__aenter__()
            await proxy.cut()
            await steps(rounds)
            await within(BOUND, subscription.aclose())
            assert len(client.statistics().subscriptions) == 0
            assert not tasks_of_subscriptions()
        await proxy.cut()


async def test_closing_the_client_ends_a_quiet_subscription(
    options: Options, proxy: FaultProxy, stream_name: str
) -> None:
    async with nothing_left_behind():
        client = Client(proxy.address, options=options())
        await client.connect()
        await client.create_stream(stream_name)
        subscription = client.subscribe(stream_name, partition=0)
        await subscription.__aenter__()
        reading = asyncio.create_task(anext(subscription))
        await steps(3)
        await client.aclose()
        with pytest.raises(StopAsyncIteration):
            await within(BOUND, reading)
        assert subscription.end_reason is EndReason.CLOSED
        await subscription.aclose()
        await proxy.cut()


async def test_a_fault_of_the_client_where_messages_come_reaches_the_reader(
    data_path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        await client.create_stream("s")
        async with client.subscribe("s", partition=0) as subscription:

            def fail(messages: list[bytes]) -> None:
                raise LookupError(len(messages))

            monkeypatch.setattr(subscription._reader.buffer, "put", fail)
            await client.publish("s", b"value")
            with pytest.raises(SubscriptionError, match="LookupError") as broken:
                await take(subscription, 1)
            assert (broken.value.stream, broken.value.partition) == ("s", 0)
        assert len(client.statistics().subscriptions) == 0
        assert "LookupError" in caplog.text
        async with client.subscribe("s", start=StartAt.earliest()) as another:
            assert (await take(another, 1))[0].value == b"value", data_path


async def test_a_message_that_cannot_be_read_is_told_behind_those_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def choosy(data: bytes) -> object:
        if b"broken" in data:
            raise MalformedData("cannot be read")
        return decode_message(data)

    def choosy_about_many(datas: list[bytes]) -> list[object]:
        return [choosy(data) for data in datas]

    async with EmbeddedBroker() as broker, Client(broker.address, options=OPTIONS) as client:
        await client.create_stream("s")
        await client.publish_many("s", [b"a", b"b", b"broken", b"c"])
        monkeypatch.setattr(decoder, "decode_message", choosy)
        monkeypatch.setattr(decoder, "decode_messages", choosy_about_many)
        subscription = client.subscribe("s", start=StartAt.earliest())
        async with subscription:
            await eventually(lambda: subscription.statistics().buffered == 4)
            assert [message.value for message in await take(subscription, 2)] == [b"a", b"b"]
            with pytest.raises(MalformedData) as broken:
                await take(subscription, 1)
            error = broken.value
            assert (error.stream, error.partition, error.offset) == ("s", 0, 1)
            with pytest.raises(StopAsyncIteration):
                await take(subscription, 1)
        assert len(client.statistics().subscriptions) == 0


OPTIONS = ClientOptions(resubscribe_timeout=5.0)
