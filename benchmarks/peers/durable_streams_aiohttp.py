"""Bare aiohttp: `python -m benchmarks.peers.durable_streams_aiohttp consume|publish …`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import aiohttp

from benchmarks.peers.bare_http import main
from benchmarks.peers.durable_streams_items import JSON

_HEADERS: Final = {"Content-Type": JSON}


class Aiohttp:
    """Requests by aiohttp."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def create(self, url: str) -> None:
        """Send a PUT for a stream of JSON."""
        async with self._session.put(url, headers=_HEADERS):
            pass

    async def append(self, url: str, body: bytes) -> None:
        """Send a POST of JSON."""
        async with self._session.post(url, data=body, headers=_HEADERS) as response:
            await response.read()

    async def read(self, url: str) -> tuple[bytes, Mapping[str, str]]:
        """Send a GET; the body and the headers."""
        async with self._session.get(url) as response:
            return await response.read(), response.headers


@asynccontextmanager
async def opened() -> AsyncIterator[Aiohttp]:
    """Open a session, in which any status but a success raises."""
    async with aiohttp.ClientSession(raise_for_status=True) as session:
        yield Aiohttp(session)


if __name__ == "__main__":
    main("aiohttp", opened)
