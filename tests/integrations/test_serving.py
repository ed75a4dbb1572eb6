"""Services under load and in trouble: slow browsers, silence, lost servers, the end."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web
from starlette.applications import Starlette

from liftbridge_aio import Client, ClientOptions, ConnectTimeout, Message, Retry, StartAt
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.integrations import aiohttp as for_aiohttp
from liftbridge_aio.integrations import starlette as for_starlette
from liftbridge_aio.integrations.starlette import Event
from support.faults import eventually, nothing_left_behind
from support.marks import ON_ONE_FRAMEWORK
from support.servers.ports import free_ports
from support.web.event_source import EventStreamParser, Received, browse
from support.web.web_apps import FRAMEWORKS, Serve

EARLIEST = StartAt.earliest()
SMALL = ClientOptions(max_buffered_bytes=2**20)


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
async def client(broker: EmbeddedBroker) -> AsyncIterator[Client]:
    async with Client(broker.address) as client:
        await client.create_stream("orders")
        yield client


async def asked(url: str) -> tuple[int, dict[str, Any]]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, json.loads(await response.read())


# Browsers


@asynccontextmanager
async def slow_browser(
    url: str, version: str = "1.0"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A browser that reads only when it is told to, with little room of its own."""
    parts = urlsplit(url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**14)
    connection.setblocking(False)  # noqa: FBT003 - the name of the socket module
    await asyncio.get_running_loop().sock_connect(connection, (parts.hostname, parts.port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=2**14)
    try:
        writer.write(f"GET {parts.path} HTTP/{version}\r\nHost: service\r\n\r\n".encode())
        yield reader, writer
    finally:
        writer.close()


async def test_a_browser_that_does_not_read_stops_the_server_and_loses_nothing(
    broker: EmbeddedBroker, client: Client, serve: Serve
) -> None:
    made = ahead = 0

    def counted(message: Message) -> Event:
        nonlocal made
        made += 1
        return Event(message.value.decode())

    total, line = 300, "x" * 2**13
    await client.publish_many("orders", [f"{number} {line}".encode() for number in range(total)])
    settings: dict[str, Any] = {"start": EARLIEST, "to_event": counted, "options": SMALL}
    async with (
        serve(broker.address, "orders", **settings) as service,
        slow_browser(service.events) as (reader, _),
    ):
        _, _, body = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n\r\n")
        parser = EventStreamParser()
        events = parser.feed(body)
        while len(events) < total:
            events += parser.feed(await reader.read(2**16))
            ahead = max(ahead, made - len(events))
        assert ahead < total / 2
        assert [int(event.data.split()[0]) for event in events] == list(range(total))


@ON_ONE_FRAMEWORK
async def test_silence_is_filled_with_comments(
    broker: EmbeddedBroker, client: Client, serve: Serve
) -> None:
    async with (
        serve(broker.address, "orders", heartbeat=0.02) as service,
        browse(service.events) as page,
    ):
        while len(page.parser.comments) < 3:
            assert await page.read()
        await client.publish("orders", b"bread")
        assert (await anext(page)).data == "bread"


@ON_ONE_FRAMEWORK
async def test_after_a_lost_subscription_the_browser_comes_back(
    broker: EmbeddedBroker, client: Client, serve: Serve
) -> None:
    await client.publish("orders", b"bread")
    settings: dict[str, Any] = {"start": EARLIEST, "resubscribe_timeout": 0.2, "timeout": 2}
    async with serve(broker.address, "orders", **settings) as service:
        async with browse(service.events) as page:
            assert (await anext(page)).data == "bread"
            await broker.stop()
            [lost] = [event async for event in page]
            assert lost.type == "failure"
            assert json.loads(lost.data)["error"] == "SubscriptionLost"
        async with browse(service.events) as page:
            # Not a status: at that a browser would not come back.
            assert page.status == 200
            [failed] = [event async for event in page]
            assert failed.type == "failure"
            assert page.parser.reconnection_time == 2000
        await broker.start()
        await client.publish("orders", b"milk", retry=Retry())
        assert await first_message(service.events, lost.last_event_id) == "milk"


async def first_message(url: str, last_event_id: str) -> str:
    """Come back as often as it takes, as a browser does."""
    while True:
        async with browse(url, last_event_id) as page:
            async for event in page:
                if event.type == "message":
                    return event.data


# Health


@pytest.mark.usefixtures("client")
async def test_a_service_is_ready(broker: EmbeddedBroker, serve: Serve) -> None:
    async with serve(broker.address, "orders", needed=("orders",)) as service:
        status, told = await asked(service.health)
        assert status == 200
        assert told["status"] == "ready"
        assert told["problems"] == []
        assert 0 < told["seconds"] < 5


@ON_ONE_FRAMEWORK
async def test_a_service_without_a_stream_that_it_needs_is_unready(
    broker: EmbeddedBroker, client: Client, serve: Serve
) -> None:
    async with serve(broker.address, "orders", needed=("orders", "bills")) as service:
        status, told = await asked(service.health)
        assert status == 503
        assert told["status"] == "unready"
        assert told["problems"] == ["stream 'bills' does not exist"]
        await client.create_stream("bills")
        assert (await asked(service.health))[0] == 200


@pytest.mark.usefixtures("client")
async def test_a_health_check_without_an_answering_server_is_answered_in_time(
    broker: EmbeddedBroker, serve: Serve
) -> None:
    loop = asyncio.get_running_loop()
    async with serve(broker.address, "orders", needed=("orders",)) as service:
        broker.freeze()
        began = loop.time()
        status, told = await asked(service.health)
        assert status == 503
        assert len(told["problems"]) == 1
        assert 0.3 < loop.time() - began < 8
        broker.thaw()
        async with asyncio.timeout(10):
            while (await asked(service.health))[0] != 200:
                pass
        await broker.stop()
        status, told = await asked(service.health)
        assert status == 503
        assert broker.address in told["problems"][0]
        assert told["seconds"] is None


# The end


@pytest.mark.usefixtures("client")
async def test_a_service_that_ends_ends_its_responses_in_order(
    broker: EmbeddedBroker, serve: Serve
) -> None:
    async with (
        serve(broker.address, "orders") as service,
        browse(service.events) as page,
        asyncio.timeout(5),
    ):
        await page.read()
        service.begin_to_stop()
        assert [event async for event in page] == []  # the response is whole: else this raises


@pytest.mark.usefixtures("client")
async def test_a_browser_that_comes_when_the_service_ends_is_told_to_come_back(
    broker: EmbeddedBroker, serve: Serve
) -> None:
    stalled = broker.faults.stall("Subscribe", at="handshake", times=None)
    async with serve(broker.address, "orders") as service:
        coming = asyncio.create_task(first_events(service.events))
        await stalled.wait(1)
        service.begin_to_stop()
        assert await coming == (200, 2000, [])


async def first_events(url: str) -> tuple[int, int | None, list[Received]]:
    async with browse(url) as page, asyncio.timeout(5):
        events = [event async for event in page]
        return page.status, page.parser.reconnection_time, events


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_service_ends_although_a_browser_takes_nothing_in(
    broker: EmbeddedBroker, client: Client, serve: Serve, version: str
) -> None:
    await client.publish_many("orders", [b"x" * 2**16] * 20)
    async with (
        serve(broker.address, "orders", start=EARLIEST, options=SMALL) as service,
        slow_browser(service.events, version) as (reader, _),
    ):
        await eventually(lambda: service.unsent_bytes > 2**18)
        service.begin_to_stop()
        async with asyncio.timeout(5):
            await eventually(lambda: "closed" in repr(service.client))
            if (
                serve is FRAMEWORKS["aiohttp"]
            ):  # has let go of the connection, which uvicorn has not
                assert len(await reader.read()) < 2**18


@ON_ONE_FRAMEWORK
async def test_a_reading_whose_client_is_closed_is_no_end(
    broker: EmbeddedBroker, client: Client, serve: Serve
) -> None:
    await client.publish("orders", b"bread")
    async with (
        serve(broker.address, "orders", start=EARLIEST) as service,
        browse(service.events) as page,
    ):
        assert (await anext(page)).data == "bread"
        await service.client.aclose()
        assert [event async for event in page] == []  # it comes back


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_a_service_that_finds_no_server_does_not_start(framework: str) -> None:
    [port] = free_ports(1)
    address = f"127.0.0.1:{port}"
    async with nothing_left_behind():
        if framework == "starlette":
            app = Starlette(lifespan=for_starlette.client_lifespan(address, timeout=0.2))
            with pytest.raises(ConnectTimeout, match=address):
                await app.router.lifespan_context(app).__aenter__()
        else:
            site = web.Application()
            site.cleanup_ctx.append(for_aiohttp.client_context(address, timeout=0.2))
            with pytest.raises(ConnectTimeout, match=address):
                await web.AppRunner(site).setup()
