"""The server goes away and comes back, or not, or with other streams than before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sized
from functools import partial

import pytest

from faults.support import BOUND, QUICK, Crashable, Recorder, eventually, take
from liftbridge_aio import (
    Client,
    ClientOptions,
    ConnectionFailed,
    Message,
    PublishNotSent,
    PublishOutcomeUnknown,
    PublishTimeout,
    StartAt,
    StreamDeleted,
    StreamReset,
    SubscriptionLost,
)
from liftbridge_aio.testing import FaultProxy


@pytest.fixture
def stream_options(recorder: Recorder) -> ClientOptions:
    # A real server that has just started loses what comes before its partitions are ready.
    return ClientOptions(backoff=QUICK, hook=recorder, ack_timeout=1.0)


def exceeds(collection: Sized, count: int) -> bool:
    return len(collection) > count


async def test_reading_and_publishing_go_on_after_a_restart(
    crashable: Crashable, stream_options: ClientOptions, stream_name: str
) -> None:
    """Nothing that was acked is lost, nothing is repeated, and the order stands."""
    async with Client(crashable.address, options=stream_options) as client:
        await client.create_stream(stream_name)
        acked: dict[int, bytes] = {}
        read: list[Message] = []
        stop = asyncio.Event()

        async def publish() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                value = b"%d" % number
                try:
                    ack = await client.publish(stream_name, value)
                except PublishOutcomeUnknown:
                    continue
                assert ack is not None
                acked[ack.offset] = value

        async def tail() -> None:
            async for message in client.subscribe(stream_name, start=StartAt.earliest()):
                read.append(message)
                if message.value == b"the end":
                    return

        tailing = asyncio.create_task(tail())
        publishing = asyncio.create_task(publish())
        for _ in range(2):
            await eventually(partial(exceeds, acked, len(acked) + 50))
            await crashable.crash()
            await crashable.start()
        await eventually(partial(exceeds, acked, len(acked) + 50))
        stop.set()
        async with asyncio.timeout(BOUND):
            await publishing
            await client.publish(stream_name, b"the end")
            await tailing
        assert [message.offset for message in read] == list(range(len(read)))
        assert {offset: read[offset].value for offset in acked} == acked
        numbers = [int(message.value) for message in read[:-1]]
        assert numbers == sorted(set(numbers))


async def test_cursors_and_calls_after_a_restart(
    crashable: Crashable, stream_options: ClientOptions, stream_name: str
) -> None:
    """The links are made again without anybody's doing."""
    async with Client(crashable.address, options=stream_options) as client:
        await client.create_stream(stream_name)
        await client.set_cursor("reader", stream_name, 0, 7)
        await crashable.crash()
        await crashable.start()
        async with asyncio.timeout(BOUND):
            await client.ping()
            assert stream_name in (await client.fetch_metadata()).streams
            await client.set_cursor("reader", stream_name, 0, 8)
            assert await client.fetch_cursor("reader", stream_name, 0) == 8


@pytest.fixture
async def tailing(proxy: FaultProxy, recorder: Recorder) -> AsyncIterator[Client]:
    options = ClientOptions(
        backoff=QUICK,
        hook=recorder,
        address_map=lambda _: proxy.address,
        not_found_timeout=0.5,
        resubscribe_timeout=20.0,
    )
    async with Client(proxy.address, options=options) as client:
        yield client


async def down(proxy: FaultProxy, recorder: Recorder) -> None:
    """Break the link for long enough that a resumption has failed."""
    await proxy.refuse()
    await proxy.cut()
    await eventually(lambda: len(recorder.tries) >= 3)


async def test_a_stream_created_anew_while_the_link_was_down(
    proxy: FaultProxy, tailing: Client, recorder: Recorder, direct: Client, stream_name: str
) -> None:
    await direct.create_stream(stream_name)
    for value in (b"a", b"b"):
        await direct.publish(stream_name, value)
    async with tailing.subscribe(stream_name, start=StartAt.earliest()) as subscription:
        await take(subscription, 2)
        await down(proxy, recorder)
        await direct.delete_stream(stream_name)
        await direct.create_stream(stream_name)
        for value in (b"x", b"y", b"z"):
            await direct.publish(stream_name, value)
        await proxy.accept()
        with pytest.raises(StreamReset) as caught:
            await take(subscription, 1)
        assert caught.value.stream == stream_name
        assert caught.value.offset == 2


async def test_a_stream_created_anew_while_the_reader_is_connected(
    tailing: Client, direct: Client, stream_name: str
) -> None:
    """The server says that it was deleted; that another one of its name exists changes nothing."""
    await direct.create_stream(stream_name)
    await direct.publish(stream_name, b"a")
    async with tailing.subscribe(stream_name, start=StartAt.earliest()) as subscription:
        await take(subscription, 1)
        await direct.delete_stream(stream_name)
        await direct.create_stream(stream_name)
        await direct.publish(stream_name, b"x")
        with pytest.raises((StreamReset, StreamDeleted)):
            await take(subscription, 1)


async def test_a_stream_deleted_while_the_link_was_down(
    proxy: FaultProxy, tailing: Client, recorder: Recorder, direct: Client, stream_name: str
) -> None:
    await direct.create_stream(stream_name)
    await direct.publish(stream_name, b"a")
    async with tailing.subscribe(stream_name, start=StartAt.earliest()) as subscription:
        await take(subscription, 1)
        await down(proxy, recorder)
        await direct.delete_stream(stream_name)
        await proxy.accept()
        with pytest.raises(StreamDeleted) as caught:
            await take(subscription, 1, bound=5.0)
        assert caught.value.stream == stream_name


async def test_a_server_that_stays_away(
    crashable: Crashable, recorder: Recorder, stream_name: str
) -> None:
    """Each kind of call ends in its own error, within its own time."""
    options = ClientOptions(
        backoff=QUICK,
        hook=recorder,
        resubscribe_timeout=1.0,
        publish_timeout=1.0,
        ack_timeout=1.0,
        call_timeout=1.0,
    )
    async with Client(crashable.address, options=options) as client:
        await client.create_stream(stream_name)
        async with client.subscribe(stream_name) as subscription:
            await client.publish(stream_name, b"last")
            await take(subscription, 1)
            await crashable.crash()
            await eventually(lambda: "publish" in {event.purpose for event in recorder.down})

            async def reading() -> None:
                with pytest.raises(SubscriptionLost) as caught:
                    await anext(subscription)
                assert caught.value.last_offset == 0
                assert caught.value.stream == stream_name
                with pytest.raises(StopAsyncIteration):
                    await anext(subscription)

            async def publishing() -> None:
                with pytest.raises(PublishTimeout) as caught:
                    await client.publish(stream_name, b"never")
                assert isinstance(caught.value, PublishNotSent)

            async def calling() -> None:
                with pytest.raises(ConnectionFailed):
                    await client.fetch_metadata()

            async def subscribing() -> None:
                with pytest.raises((ConnectionFailed, TimeoutError)):
                    await client.subscribe(stream_name).__aenter__()

            async with asyncio.timeout(1.0 + 1.0 + 1.0), asyncio.TaskGroup() as group:
                for work in (reading, publishing, calling, subscribing):
                    group.create_task(work())


async def test_none_tries_for_ever(
    proxy: FaultProxy, recorder: Recorder, tailing: Client, direct: Client, stream_name: str
) -> None:
    """Without a bound the reading goes on whenever the server comes back."""
    await direct.create_stream(stream_name)
    async with tailing.subscribe(stream_name, resubscribe_timeout=None) as subscription:
        await down(proxy, recorder)
        await eventually(lambda: len(recorder.tries) >= 10)
        await direct.publish(stream_name, b"meanwhile")
        await proxy.accept()
        assert (await take(subscription, 1))[0].value == b"meanwhile"
