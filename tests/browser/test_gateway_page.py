"""The page of the gateway in a real browser: it lists streams, tails one, and goes to an offset."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

import aiohttp
import pytest
from yarl import URL

from durable_streams.conftest import RunGateway, run_gateway
from liftbridge_aio import Client
from support.servers.gateway import GatewayProcess
from support.servers.node import EmbeddedServer
from support.web.chromium import NoChromium, Tab, open_tab

PICTURES: Final = os.environ.get("GATEWAY_PICTURES")
"""A folder for pictures of the page."""
TEXTS: Final = "[...document.querySelectorAll('#messages li .what')].map(each => each.textContent)"

ODD: Final = "100%41 notes?#"
"""The name of a stream, decoded."""

__all__ = ["run_gateway"]


@pytest.fixture
async def gateway(run_gateway: RunGateway, embedded_server: EmbeddedServer) -> GatewayProcess:
    """A gateway whose Liftbridge has a stream of two partitions with messages, and one of JSON."""
    gateway = await run_gateway(embedded_server.address)
    async with Client(embedded_server.address) as client:
        await client.create_stream("payments", partitions=2)
        for n in range(30):
            headers = {"trace": b"4bf92f", "attempt": b"%d" % (n % 3 + 1)}
            value = b'{"amount": %d, "currency": "EUR"}' % (n * 7 + 5)
            await client.publish("payments", value, b"till-%d" % (n % 4), headers, partition=0)
    async with aiohttp.ClientSession(gateway.url) as http:
        async with http.put("/v1/stream/orders", json=[{"n": 1}, {"n": 2}]) as created:
            assert created.status == 201
        text = {"Content-Type": "text/plain"}
        odd = URL(f"{gateway.url}/v1/stream/{quote(ODD)}", encoded=True)
        async with http.put(odd, data="<b>bold</b>", headers=text) as created:
            assert created.status == 201
    return gateway


@pytest.fixture
async def tab(gateway: GatewayProcess, tmp_path: Path) -> AsyncIterator[Tab]:
    """The page, listing its streams; in the end its scripts have raised nothing."""
    try:
        async with open_tab(gateway.url, tmp_path / "profile") as tab:
            await tab.resize(1200, 760)
            await tab.until("document.querySelectorAll('nav a').length === 4")
            yield tab
            await tab.value("1")
            assert tab.errors == []
    except NoChromium as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


async def choose(tab: Tab, name: str) -> None:
    """Choose a stream by its name."""
    links = "[...document.querySelectorAll('nav a')]"
    await tab.value(f"{links}.find(each => each.textContent === '{name}').click()")


async def test_a_stream_is_tailed_with_keys_and_headers(
    tab: Tab, embedded_server: EmbeddedServer
) -> None:
    await choose(tab, "payments / 0")
    await tab.until("document.querySelectorAll('#messages li').length === 30")
    async with Client(embedded_server.address) as client:
        await client.publish("payments", b"live", b"till-9", {"trace": b"new"}, partition=0)
    await tab.until("document.querySelectorAll('#messages li').length === 31")
    last = (await tab.value(TEXTS))[-1]
    assert last.startswith("till-9 live")
    assert last.endswith("trace=new")
    assert await tab.value("document.querySelector('#state').textContent") == "live"
    if PICTURES:
        await picture(tab)


async def picture(tab: Tab) -> None:
    """Take pictures of the page, as wide as a desktop and as a phone, light and dark."""
    for name, width, height, dark in (
        ("light", 1200, 760, False),
        ("dark", 1200, 760, True),
        ("phone", 390, 780, False),
        ("phone-dark", 390, 780, True),
    ):
        await tab.resize(width, height, dark=dark)
        await asyncio.sleep(0.2)
        await tab.picture(Path(PICTURES or "", f"gateway-{name}.png"))


async def test_a_stream_of_json_is_tailed_and_continued_at_an_offset(
    tab: Tab, gateway: GatewayProcess
) -> None:
    await choose(tab, "orders")
    await tab.until("document.querySelectorAll('#messages li').length === 2")
    async with aiohttp.ClientSession(gateway.url) as http:
        async with http.post("/v1/stream/orders", json={"n": 3}) as appended:
            offset = appended.headers["Stream-Next-Offset"]
        await tab.until("document.querySelectorAll('#messages li').length === 3")
        assert await tab.value(TEXTS) == ['{"n":1}', '{"n":2}', '{"n":3}']
        await tab.value(f"document.querySelector('#offset').value = '{offset}'")
        await tab.value("document.querySelector('#go button').click()")
        await tab.until("!document.querySelectorAll('#messages li').length")
        await tab.until("document.querySelector('#state').textContent === 'live'")
        async with http.post("/v1/stream/orders", json={"n": 4}):
            await tab.until("document.querySelectorAll('#messages li').length === 1")
        assert await tab.value(TEXTS) == ['{"n":4}']
        async with http.post("/v1/stream/orders", headers={"Stream-Closed": "true"}):
            await tab.until("document.querySelector('#state').textContent === 'closed'")


async def test_text_is_shown_as_text_whatever_the_name(tab: Tab) -> None:
    await choose(tab, ODD)
    await tab.until("document.querySelectorAll('#messages li').length === 1")
    assert await tab.value(TEXTS) == ["<b>bold</b>"]
    assert await tab.value("document.querySelectorAll('#messages b').length") == 0


async def test_the_keyboard_suffices(tab: Tab) -> None:
    await tab.press("/")
    assert await tab.value("document.activeElement.id") == "filter"
    for key in "pay":
        await tab.press(key)
    await tab.until("document.querySelectorAll('nav a').length === 2")
    await tab.press("ArrowDown")
    assert await tab.value("document.activeElement.textContent") == "payments / 0"
    await tab.value("document.activeElement.click()")  # as Enter does on a link
    await tab.until("document.querySelectorAll('#messages li').length === 30")
    await tab.press("p")
    assert (
        await tab.value("document.querySelector('#pause').getAttribute('aria-pressed')") == "true"
    )
    await tab.press("g")
    assert await tab.value("document.activeElement.id") == "offset"


async def test_committed_messages_only_are_shown_if_asked_for(
    tab: Tab, embedded_server: EmbeddedServer
) -> None:
    async with Client(embedded_server.address) as client:
        producer = client.producer()
        with suppress(LookupError):
            async with producer.transaction() as transaction:
                await transaction.publish("payments", b"rolled back", partition=1)
                await transaction.flush()
                raise LookupError
        async with producer.transaction() as transaction:
            await transaction.publish("payments", b"kept", partition=1)
    shown = "[...document.querySelectorAll('#messages li')].map(each => each.textContent).join()"
    await choose(tab, "orders")
    await tab.press("c")
    assert await tab.value(
        "document.querySelector('#committed').matches(':disabled:not(:checked)')"
    )
    await choose(tab, "payments / 1")
    await tab.until(f"{shown}.includes('rolled back') && {shown}.includes('kept')")
    await tab.press("c")
    await tab.until(f"!{shown}.includes('rolled back') && {shown}.includes('kept')")
    assert await tab.value("document.querySelector('#committed').checked")
    async with Client(embedded_server.address) as client:
        await client.publish("payments", b"live", partition=1)
    await tab.until(f"{shown}.includes('live')")
    assert "rolled back" not in await tab.value(shown)
    await tab.value("document.querySelector('#committed').focus()")
    await tab.press(" ")
    await tab.until(f"{shown}.includes('rolled back') && {shown}.includes('live')")


async def test_a_phone_is_wide_enough(tab: Tab) -> None:
    await tab.resize(390, 780)
    await choose(tab, "payments / 0")
    await tab.until("document.querySelectorAll('#messages li').length === 30")
    wide = "document.documentElement.scrollWidth <= innerWidth"
    assert await tab.value(wide)
    assert await tab.value("document.querySelector('#messages').clientHeight > 200")


async def test_it_goes_on_when_the_gateway_was_away(tab: Tab, gateway: GatewayProcess) -> None:
    await choose(tab, "orders")
    await tab.until("document.querySelectorAll('#messages li').length === 2")
    await asyncio.to_thread(gateway.kill)
    await tab.until("document.querySelector('#state').textContent === 'disconnected'")
    await asyncio.to_thread(gateway.start)
    async with aiohttp.ClientSession(gateway.url) as http:
        async with http.post("/v1/stream/orders", json={"n": 3}):
            pass
        await tab.until("document.querySelectorAll('#messages li').length === 3")
    assert await tab.value(TEXTS) == ['{"n":1}', '{"n":2}', '{"n":3}']
    tab.errors.clear()  # the browser logs the requests that failed
