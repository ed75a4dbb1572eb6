"""Subscriptions with a cursor: what cannot be stored, and other ends."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator
from typing import Any

import pytest

from liftbridge_aio import (
    Client,
    ClientClosed,
    ClientOptions,
    CursorsUnavailable,
    InvalidRequest,
    RequestTimeout,
    UsageError,
)
from liftbridge_aio._admin.cursors import Cursors
from liftbridge_aio._subscribe.cursor_committer import CursorCommitter
from liftbridge_aio._subscribe.durable_reader import DurableReader
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.telemetry import CommitFailed
from support.clients import EARLIEST, Watcher, take
from support.durable_numbers import CURSOR, SELDOM, Failure, create_numbers, stored
from support.marks import ON_EMBEDDED, ON_ONE_PATH
from support.raw import BOUND, eventually
from support.servers.node import Server

pytestmark = ON_ONE_PATH


@pytest.fixture
async def numbers(client: Client, stream_name: str) -> str:
    return await create_numbers(client, stream_name)


@pytest.fixture
async def no_cursors() -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker(cursors_partitions=0) as broker:
        yield broker


async def test_a_cursor_that_cannot_be_stored_is_told_and_tried_again(stream_name: str) -> None:
    failures: list[CommitFailed] = []

    class Failures(Watcher):
        def commit_failed(self, event: CommitFailed) -> None:
            failures.append(event)

    options = ClientOptions(hook=Failures())
    async with (
        EmbeddedBroker(cursors_partitions=1) as broker,
        Client(broker.address, options=options) as client,
    ):
        await client.create_stream(stream_name)
        await client.publish_many(stream_name, [b"0", b"1", b"2"])
        async with client.subscribe(
            stream_name, partition=0, start=EARLIEST, cursor=CURSOR, cursor_interval=0.01
        ) as subscription:
            await take(subscription, 2)
            await client.set_stream_readonly("__cursors")
            await take(subscription, 1)
            await eventually(lambda: len(failures) > 1)
            with pytest.raises(CursorsUnavailable):
                await subscription.commit()
            await client.set_stream_readonly("__cursors", readonly=False)

            async def is_stored() -> bool:
                return await stored(client, stream_name) == 1

            await eventually(is_stored)
        assert await stored(client, stream_name) == 2
    event = failures[0]
    assert (event.cursor_id, event.stream, event.partition) == (CURSOR, stream_name, 0)
    assert isinstance(event.error, CursorsUnavailable)


@pytest.mark.parametrize("by", ["leaving", "aclose"])
async def test_an_error_of_the_last_storing_is_raised(stream_name: str, by: str) -> None:
    async with (
        EmbeddedBroker(cursors_partitions=1) as broker,
        Client(broker.address) as client,
    ):
        await client.create_stream(stream_name)
        await client.publish_many(stream_name, [b"0", b"1", b"2"])
        subscription = client.subscribe(stream_name, partition=0, start=EARLIEST, cursor=CURSOR)
        await subscription.__aenter__()
        await take(subscription, 2)
        await client.set_stream_readonly("__cursors")
        with pytest.raises(CursorsUnavailable):
            async with asyncio.timeout(BOUND):
                await (
                    subscription.__aexit__(None, None, None)
                    if by == "leaving"
                    else subscription.aclose()
                )
        assert len(client.statistics().subscriptions) == 0


@ON_EMBEDDED
async def test_the_last_storing_is_bounded_in_time(client: Client, numbers: str) -> None:
    class Stuck:
        async def set(self, *_: object) -> None:
            await asyncio.Event().wait()

        async def fetch(self, *_: object) -> int | None:
            return None

    failed: list[CommitFailed] = []
    committer = CursorCommitter(CURSOR, Stuck(), timeout=SELDOM, failed=failed.append)
    committer.keep(numbers, 0, lambda: 5, None)
    durable = DurableReader(
        committer, client._living.cursors, client._living.network, SELDOM, set()
    )
    async with asyncio.timeout(BOUND):
        assert isinstance(await durable.close(0.01), RequestTimeout)


async def test_the_users_error_comes_before_that_of_storing(stream_name: str) -> None:
    async with (
        EmbeddedBroker(cursors_partitions=1) as broker,
        Client(broker.address) as client,
    ):
        await client.create_stream(stream_name)
        await client.publish_many(stream_name, [b"0", b"1", b"2"])

        async def fail() -> None:
            async with client.subscribe(
                stream_name, partition=0, start=EARLIEST, cursor=CURSOR
            ) as subscription:
                await take(subscription, 2)
                await client.set_stream_readonly("__cursors")
                raise Failure

        with pytest.raises(Failure) as caught:
            await fail()
        assert caught.value.__context__ is None


async def test_a_server_without_cursors_is_told_on_entering(
    no_cursors: EmbeddedBroker, stream_name: str
) -> None:
    options = ClientOptions(not_found_timeout=0.1)
    async with Client(no_cursors.address, options=options) as client:
        await client.create_stream(stream_name, partitions=2)
        for partition in (0, [0, 1]):
            with pytest.raises(CursorsUnavailable):
                async with client.subscribe(
                    stream_name, partition=partition, start=EARLIEST, cursor=CURSOR
                ):
                    pass
        assert len(client.statistics().subscriptions) == 0


@ON_EMBEDDED
@pytest.mark.parametrize("partition", [0, [0, 1]])
async def test_without_entering_there_is_no_cursor(
    client: Client, numbers: str, partition: int | list[int]
) -> None:
    subscription = client.subscribe(numbers, partition=partition, start=EARLIEST, cursor=CURSOR)
    with pytest.raises(UsageError, match="async with"):
        await anext(subscription)
    with pytest.raises(UsageError, match="cursor="):
        await client.subscribe(numbers, partition=partition).commit()


NONSENSE: list[dict[str, Any]] = [
    {"cursor": ""},
    {"cursor": 5},
    {"cursor_interval": 0},
    {"cursor_interval": -1},
    {"reverse": True},
]


@ON_EMBEDDED
async def test_a_cursor_that_makes_no_sense_is_refused(client: Client) -> None:
    for arguments in NONSENSE:
        with pytest.raises(InvalidRequest):
            client.subscribe("stream", **({"cursor": CURSOR} | arguments))


@ON_EMBEDDED
async def test_one_that_is_dropped_stores_no_more(client: Client, numbers: str) -> None:
    subscription = client.subscribe(
        numbers, partition=0, start=EARLIEST, cursor=CURSOR, cursor_interval=0.01
    )
    await subscription.__aenter__()
    await take(subscription, 5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del subscription
        gc.collect()
    assert [one.category for one in caught] == [ResourceWarning]

    async def nothing_is_left() -> bool:
        names = {task.get_name() for task in asyncio.all_tasks()}
        return len(client.statistics().subscriptions) == 0 and not any(
            "cursor:" in n for n in names
        )

    await eventually(nothing_is_left)


@ON_EMBEDDED
async def test_a_client_that_is_closed_first_leaves_nothing_behind(
    server: Server, numbers: str
) -> None:
    other = Client(server.address)
    await other.connect()
    subscription = other.subscribe(numbers, partition=0, start=EARLIEST, cursor=CURSOR)
    await subscription.__aenter__()
    await take(subscription, 5)
    await other.aclose()
    with pytest.raises(ClientClosed):  # the message in hand is finished now, and cannot be stored
        await subscription.__aexit__(None, None, None)
    assert not any("cursor:" in task.get_name() for task in asyncio.all_tasks())


@ON_EMBEDDED
async def test_closing_the_client_waits_for_no_cursor_for_long(
    server: Server, numbers: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def stuck(*_: object) -> None:
        await asyncio.Event().wait()

    other = Client(server.address, options=ClientOptions(close_timeout=0.1))
    await other.connect()
    subscription = other.subscribe(numbers, partition=0, start=EARLIEST, cursor=CURSOR)
    await subscription.__aenter__()
    await take(subscription, 5)
    monkeypatch.setattr(Cursors, "set", stuck)
    async with asyncio.timeout(BOUND):
        await other.aclose()
    with pytest.raises(RequestTimeout):
        await subscription.aclose()
    assert f"the cursor {CURSOR!r} was not stored within 1 s" in caplog.text


@ON_EMBEDDED
async def test_cancelling_while_it_closes_stores_all_the_same(client: Client, numbers: str) -> None:
    async def read() -> None:
        async with client.subscribe(
            numbers, partition=0, start=EARLIEST, cursor=CURSOR, cursor_interval=SELDOM
        ) as subscription:
            await take(subscription, 5)
            leaving.set()

    leaving = asyncio.Event()
    reading = asyncio.create_task(read())
    await leaving.wait()
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading], timeout=BOUND)
    assert await stored(client, numbers) == 4
