"""NATS Streaming servers with either store, and clients of them."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from liftbridge_aio import stan
from support.peers.scripted_stan import ScriptedStan, scripted_stan
from support.servers.streaming import StreamingServer
from support.streaming_clients import MakeClient, StartServer, client_of

Script = Callable[..., AbstractAsyncContextManager[tuple[ScriptedStan, stan.Client]]]
STORES: Final = ["MEMORY", "FILE"]

_numbers = itertools.count(1)


class Servers(dict[str, StreamingServer]):
    """A server for each store, started when it is first asked for."""

    def __init__(self, binary: Path, make_folder: Callable[[str], Path]) -> None:
        super().__init__()
        self._binary = binary
        self._make_folder = make_folder

    def __missing__(self, store: str) -> StreamingServer:
        folder = self._make_folder(store.lower())
        server = self[store] = StreamingServer(self._binary, folder, store, ("-mc", "0"))
        server.start()
        return server


@pytest.fixture(scope="session")
def servers(streaming_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Servers that no test breaks."""
    running = Servers(streaming_binary, tmp_path_factory.mktemp)
    try:
        yield running
    finally:
        for server in running.values():
            server.stop()


@pytest.fixture(params=STORES)
def server(request: pytest.FixtureRequest, servers: Servers) -> StreamingServer:
    """A server that no test breaks, with each store in turn."""
    return servers[request.param]


@pytest.fixture
def memory_server(servers: Servers) -> StreamingServer:
    """The server with a store in memory, where the store makes no difference."""
    return servers["MEMORY"]


@pytest.fixture
def nats_url(memory_server: StreamingServer) -> str:
    """The address of a NATS server; on it a streaming server that no test breaks."""
    return memory_server.url


@pytest.fixture
def start_server(
    streaming_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartServer]:
    """Starts servers of the test's own, to be killed and started again on the same port."""
    started: list[StreamingServer] = []

    def start(store: str = "MEMORY", *arguments: str, **fields: Any) -> StreamingServer:
        folder = tmp_path_factory.mktemp("own")
        server = StreamingServer(streaming_binary, folder, store, arguments, **fields)
        started.append(server)
        server.start()
        return server

    try:
        yield start
    finally:
        for server in reversed(started):
            server.stop()


@pytest.fixture(params=STORES)
def own_server(request: pytest.FixtureRequest, start_server: StartServer) -> StreamingServer:
    """A server that the test may break, with each store in turn."""
    return start_server(request.param)


@pytest.fixture
def channel() -> str:
    """A channel that no other test uses."""
    return f"orders.{os.getpid()}.{next(_numbers)}"


@pytest.fixture
def new_id() -> Callable[[], str]:
    """Returns client ids that no other test uses."""
    return lambda: f"client-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def client_id(new_id: Callable[[], str]) -> str:
    """A client id that no other test uses."""
    return new_id()


@pytest.fixture
def script(nats_url: str, client_id: str) -> Script:
    """Connects a client, with these options, to a scripted server, with these settings."""

    @asynccontextmanager
    async def connected(**options: Any) -> AsyncIterator[tuple[ScriptedStan, stan.Client]]:
        told = {
            name: options.pop(name) for name in ("silent", "errors", "without") & options.keys()
        }
        async with (
            scripted_stan(nats_url, client_id, **told) as scripted,
            client_of(nats_url, client_id, cluster=client_id, **options) as client,
        ):
            yield scripted, client

    return connected


@pytest.fixture
def make(server: StreamingServer, new_id: Callable[[], str]) -> MakeClient:
    """Makes clients of the server, each with an id of its own unless one is given."""

    def make_client(client_id: str | None = None, **options: Any) -> stan.Client:
        return client_of(server.url, client_id or new_id(), **options)

    return make_client
