"""A service whose Liftbridge goes away while it ends: it ends in order, and says nothing twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp

from liftbridge_aio import Client
from liftbridge_aio.broker import EmbeddedBroker
from support.web.web_process import BOUND, ENDS_WITH, code_of, running

FRAMEWORK = "aiohttp"


async def test_acks_that_are_lost_while_a_service_ends_do_not_shout(tmp_path: Path) -> None:
    """A publish answered before its ack has a future that is never awaited."""
    async with EmbeddedBroker() as broker:
        async with Client(broker.address) as client:
            await client.create_stream("orders")
        async with (
            asyncio.timeout(BOUND),
            running(FRAMEWORK, broker.address, tmp_path, code_of(FRAMEWORK)) as service,
            aiohttp.ClientSession() as http,
        ):
            async with http.post(f"{service.url}/orders", data=b"bread") as answer:
                assert answer.status == 201
            stalled = broker.faults.stall("PublishAsync", at="request", times=None)
            for number in range(3):
                async with http.post(f"{service.url}/views/{number}") as answer:
                    assert answer.status == 202
            await stalled.wait(1)
            service.tell_to_end()
            while await is_served(http, service.url):
                pass
            await broker.stop()  # while the client closes
            assert await service.code() == ENDS_WITH[FRAMEWORK], service.log
        assert "never retrieved" not in service.log
        assert "Traceback" not in service.log


async def is_served(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(f"{url}/health"):
            return True
    except aiohttp.ClientConnectionError:
        return False
