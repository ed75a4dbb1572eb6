"""The reference server that the client is tested with, as the tests start and kill it."""

from __future__ import annotations

import aiohttp

from durable_streams.conftest import StartDurableStreams


async def test_what_is_on_disk_outlives_a_crash(start_durable_streams: StartDurableStreams) -> None:
    server = start_durable_streams()
    url = f"{server.url}/orders"
    async with aiohttp.ClientSession() as http:
        async with http.put(url, data=b"one", headers={"Content-Type": "text/plain"}) as created:
            assert created.status == 201
        server.kill()
        server.start()
        async with http.get(url) as found:
            assert await found.read() == b"one"
