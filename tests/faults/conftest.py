"""Clients that reach their server through a proxy, and servers that may be killed."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from liftbridge_aio import Client, ClientOptions
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.testing import FaultProxy
from support.faults import (
    QUICK,
    Options,
    Recorder,
)
from support.lone_servers import EMBEDDED, FLAWS, LoneBroker, LoneNode, LoneServer
from support.servers.build import pinned_version
from support.servers.node import LiftbridgeNode, Server


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests on both data paths, or on those that they or their module's DATA_PATHS name."""
    told = any("data_path" in mark.args for mark in metafunc.definition.iter_markers("parametrize"))
    if not told:
        paths = getattr(metafunc.module, "DATA_PATHS", ["lane", "plain"])
        metafunc.parametrize("data_path", paths, indirect=True)


@pytest.fixture(autouse=True)
def _on_each_path(data_path: str) -> str:
    """Before any client is made."""
    return data_path


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[FaultProxy]:
    """A proxy in front of each server of the matrix."""
    async with FaultProxy(server.address) as proxy:
        yield proxy


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def options_through(proxy: FaultProxy, recorder: Recorder, **changes: Any) -> ClientOptions:
    """Options that lead every link through the proxy."""
    values = {
        "address_map": lambda _: proxy.address,
        "hook": recorder,
        "backoff": QUICK,
        **changes,
    }
    return ClientOptions(**values)


@pytest.fixture
def options(proxy: FaultProxy, recorder: Recorder) -> Options:
    """Makes options for clients behind the proxy."""
    return lambda **changes: options_through(proxy, recorder, **changes)


@pytest.fixture
async def client(proxy: FaultProxy, options: Options) -> AsyncIterator[Client]:
    """A client whose every link goes through the proxy."""
    async with Client(proxy.address, options=options()) as client:
        yield client


@pytest.fixture
async def direct(server: Server) -> AsyncIterator[Client]:
    """A client beside the proxy, to see what the server has."""
    async with Client(server.address, options=ClientOptions(backoff=QUICK)) as client:
        yield client


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    """An embedded broker of the test's own."""
    async with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def crashable_node(
    server_binary: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiftbridgeNode]:
    """One real server for the crashes of a whole file."""
    node = LiftbridgeNode(server_binary, tmp_path_factory.mktemp("crashable"), "crashable")
    try:
        yield node
    finally:
        node.stop()


@pytest.fixture(params=[EMBEDDED, pinned_version()])
async def crashable(request: pytest.FixtureRequest) -> AsyncIterator[LoneServer]:
    """A running server that the test may kill; both kinds in turn, or those that the test names."""
    server: LoneServer
    if request.param in FLAWS:
        server = LoneBroker(request.param)
    else:
        server = LoneNode(request.getfixturevalue("crashable_node"), pinned_version())
    await server.start()
    try:
        yield server
    finally:
        if isinstance(server, LoneBroker):
            with contextlib.suppress(RuntimeError):
                await server.crash()
