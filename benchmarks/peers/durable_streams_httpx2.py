"""Bare httpx2: `python -m benchmarks.peers.durable_streams_httpx2 consume|publish …`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import httpx2

from benchmarks.peers.bare_http import main
from benchmarks.peers.durable_streams_items import JSON

_HEADERS: Final = {"Content-Type": JSON}


class Httpx2:
    """Requests by httpx2."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def create(self, url: str) -> None:
        """Send a PUT for a stream of JSON."""
        (await self._client.put(url, headers=_HEADERS)).raise_for_status()

    async def append(self, url: str, body: bytes) -> None:
        """Send a POST of JSON."""
        (await self._client.post(url, content=body, headers=_HEADERS)).raise_for_status()

    async def read(self, url: str) -> tuple[bytes, Mapping[str, str]]:
        """Send a GET; the body and the headers."""
        response = (await self._client.get(url)).raise_for_status()
        return response.content, response.headers


@asynccontextmanager
async def opened() -> AsyncIterator[Httpx2]:
    """Open a client."""
    async with httpx2.AsyncClient() as client:
        yield Httpx2(client)


if __name__ == "__main__":
    main("httpx2", opened)
