"""The services of the guide do what it says, as processes of their own."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import aiohttp
import httpx2
import pytest

from liftbridge_aio import Client, StartAt, StopAt
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.integrations.event_stream import _STATUS, EventStreamOptions
from liftbridge_aio.integrations.server_sent_events import BINARY, END, FAILURE, MISSED
from support.faults import eventually
from support.markdown import blocks, names, table
from support.servers.node import Server
from support.web.event_source import Received, browse, log_of
from support.web.web_process import BOUND, COMMANDS, ENDS_WITH, GUIDE, code_of, running

PUBLISHERS: Final = 12
JSON: Final = {"Content-Type": "application/json"}


def order(item: str) -> bytes:
    return json.dumps({"item": item, "count": 1}, separators=(",", ":")).encode()


class Load:
    """Publishes to a service over many connections until that answers no more."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._numbers = itertools.count()
        self.sent: set[bytes] = set()
        self.acked: set[bytes] = set()
        self.taken: set[bytes] = set()
        """Answered before the ack."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(PUBLISHERS):
                tasks.create_task(self._publish())

    async def _publish(self) -> None:
        async with aiohttp.ClientSession() as http:
            try:
                while True:
                    await self.order(http, f"order {next(self._numbers)}")
                    await self.view(http, f"view-{next(self._numbers)}")
            except aiohttp.ClientConnectionError:
                return  # the service is gone: whether the last was stored is not known

    async def order(self, http: aiohttp.ClientSession, item: str) -> None:
        value = order(item)
        self.sent.add(value)
        async with http.post(f"{self._url}/orders", data=value, headers=JSON) as answer:
            if answer.status == 201:
                self.acked.add(value)

    async def view(self, http: aiohttp.ClientSession, item: str) -> None:
        self.sent.add(item.encode())
        async with http.post(f"{self._url}/views/{item}") as answer:
            if answer.status == 202:
                self.taken.add(item.encode())


async def stored(client: Client, stream: str) -> Counter[bytes]:
    async with client.subscribe(stream, start=StartAt.earliest(), stop=StopAt.latest()) as messages:
        return Counter([message.value async for message in messages])


@pytest.mark.parametrize("framework", COMMANDS)
async def test_a_service_publishes_follows_resumes_and_loses_nothing_at_its_end(
    framework: str, server: Server, client: Client, stream_name: str, tmp_path: Path
) -> None:
    await client.create_stream(stream_name)
    log = await log_of(client, stream_name)
    values = [order(f"bread {number}") for number in range(4)]
    async with (
        running(framework, server.address, tmp_path, code_of(framework, stream_name)) as service,
        aiohttp.ClientSession() as http,
    ):
        events = f"{service.url}/orders"
        for path, content in (("orders", "text/event-stream"), ("health", "application/json")):
            async with http.head(f"{service.url}/{path}") as answer:
                assert (answer.status, answer.content_type) == (200, content)
        for number, value in enumerate(values[:3]):
            async with http.post(events, data=value, headers=JSON) as answer:
                assert answer.status == 201
                assert await answer.json() == {"offset": number}
        async with browse(events) as page:
            seen = await page.take(2)
        async with http.post(events, data=values[3], headers=JSON) as answer:
            assert answer.status == 201
        async with browse(events, seen[-1].last_event_id) as page:
            seen += await page.take(2)
            assert seen == [
                Received("message", value.decode(), f"{number}{log}")
                for number, value in enumerate(values)
            ]

            load = Load(service.url)
            publishing = asyncio.create_task(load.run())
            await eventually(lambda: len(load.acked) > 50)
            service.tell_to_end()
            async with asyncio.timeout(BOUND):
                # The response is whole, else this raises.
                followed = [event.last_event_id async for event in page]
                assert await service.code() == ENDS_WITH[framework], service.log
                await publishing
    assert followed == [f"{offset}{log}" for offset in range(4, 4 + len(followed))]
    found = await stored(client, stream_name)
    assert len(load.sent) > len(load.acked) + len(load.taken)  # some were on their way
    assert set(found) <= load.sent | set(values)
    assert set(found) >= load.acked | load.taken | set(values)
    assert set(found.values()) == {1}
    assert "Traceback" not in service.log
    assert "Warning" not in service.log


@pytest.mark.parametrize("framework", ["fastapi", "aiohttp"])  # Starlette's life is FastAPI's
async def test_a_service_ends_after_the_acks_of_what_is_on_its_way(
    framework: str, tmp_path: Path
) -> None:
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        await client.create_stream("orders")
        async with (
            running(framework, broker.address, tmp_path, code_of(framework)) as service,
            aiohttp.ClientSession() as http,
            browse(f"{service.url}/orders") as page,
        ):
            await page.read()
            stalled = broker.faults.stall("PublishAsync", at="request")
            async with http.post(f"{service.url}/views/bread") as answer:
                assert answer.status == 202
            load = Load(service.url)
            ordering = asyncio.create_task(load.order(http, "milk"))
            await stalled.wait()
            service.tell_to_end()
            assert [event async for event in page] == []  # this ends at once
            assert service.running
            assert not await stored(client, "orders")
            stalled.release()
            await ordering
            assert load.acked == {order("milk")}
            assert await service.code() == ENDS_WITH[framework], service.log
        assert set(await stored(client, "orders")) == {b"bread", order("milk")}
        assert "Traceback" not in service.log


async def test_without_its_lifespan_the_service_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    service = ModuleType("service")
    monkeypatch.setitem(sys.modules, "service", service)
    exec(code_of("fastapi"), vars(service))  # noqa: S102
    transport = httpx2.ASGITransport(service.app)
    async with (
        EmbeddedBroker() as broker,
        httpx2.AsyncClient(transport=transport, base_url="http://service") as http,
    ):
        monkeypatch.setenv("LIFTBRIDGE_SERVERS", broker.address)
        answer = await http.post("/orders", json={"item": "bread"})
        assert (answer.status_code, answer.json()) == (503, {"error": "UsageError"})
        [said] = [one.getMessage() for one in caplog.records if one.name == "service"]
        assert said.startswith("POST /orders: this application has no client")
        async with service.app.router.lifespan_context(service.app):
            answer = await http.post("/orders", json={"item": "bread"})
            assert (answer.status_code, answer.json()) == (201, {"offset": 0})


@pytest.mark.parametrize("name", ["test_orders_are_stored", "test_orders_are_followed"])
def test_the_tests_of_the_guide_pass(
    name: str, liftbridge_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = ModuleType("service")
    monkeypatch.setitem(sys.modules, "service", service)
    exec(code_of("fastapi"), vars(service))  # noqa: S102
    tests: dict[str, Any] = {}
    exec(code_of("pytest"), tests)  # noqa: S102
    tests[name](liftbridge_broker, monkeypatch)


# Tables


def test_every_block_is_run_above() -> None:
    shown = {block.setup for block in blocks(GUIDE, "python")}
    assert shown == {*COMMANDS, "pytest"}


def test_the_table_of_events_names_all_types() -> None:
    shown = {name for row in table(GUIDE, "Event") for name in names(row[0])}
    assert shown == {"message", BINARY, END, FAILURE, MISSED}


def test_the_table_of_options_names_all() -> None:
    shown = {name for row in table(GUIDE, "Option") for name in names(row[0])}
    assert shown == {*EventStreamOptions.__annotations__, "headers"}


def test_the_table_of_errors_is_that_of_the_code() -> None:
    shown = {
        names(row[0])[0]: int(row[1]) for row in table(GUIDE, "Error") if row[0].startswith("`")
    }
    assert shown == {error.__name__: status for error, status in _STATUS.items()}
