"""NATS Streaming servers with either store, and clients of them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from support.servers.streaming import StreamingServer

STORES: Final = ["MEMORY", "FILE"]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def servers(
    streaming_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, StreamingServer]]:
    """A server for each store, started when it is first asked for."""
    running: dict[str, StreamingServer] = {}

    class Servers(dict[str, StreamingServer]):
        def __missing__(self, store: str) -> StreamingServer:
            folder = tmp_path_factory.mktemp(store.lower())
            server = self[store] = StreamingServer(streaming_binary, folder, store)
            server.start()
            return server

    running = Servers()
    try:
        yield running
    finally:
        for server in running.values():
            server.stop()


@pytest.fixture(params=STORES)
def server(request: pytest.FixtureRequest, servers: dict[str, StreamingServer]) -> StreamingServer:
    """A server that no test breaks, with each store in turn."""
    return servers[request.param]


@pytest.fixture
def channel() -> str:
    """A channel that no other test uses."""
    return f"orders.{os.getpid()}.{next(_numbers)}"


@pytest.fixture
def client_id() -> str:
    """A client id that no other test uses."""
    return f"client-{os.getpid()}-{next(_numbers)}"
