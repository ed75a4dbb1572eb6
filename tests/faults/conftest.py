"""Clients that reach their server through a proxy, and servers that may be killed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest

from liftbridge_aio import Client, ClientOptions
from liftbridge_aio.broker import EmbeddedBroker, Flaws
from liftbridge_aio.testing import FaultProxy
from support.faults import (
    EMBEDDED,
    FORGETFUL,
    HIDING,
    QUICK,
    Crashable,
    Options,
    Recorder,
    eventually,
)
from support.servers.build import pinned_version
from support.servers.node import LiftbridgeNode, Server
from support.servers.ports import free_ports
from support.servers.stored_log import gives_offsets_anew


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


BROKERS: Final = {
    EMBEDDED: Flaws(),
    HIDING: Flaws(hides_committed=True),
    FORGETFUL: Flaws(forgets_streams=True),
}


class CrashableBroker:
    """The embedded broker, without flaws or with one."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._broker = EmbeddedBroker(port=free_ports(1)[0], flaws=BROKERS[kind])

    @property
    def address(self) -> str:
        return self._broker.address

    async def crash(self) -> None:
        await self._broker.stop()

    async def start(self) -> None:
        await self._broker.start()
        await self._known()

    async def open(self) -> None:
        if self.kind != FORGETFUL:
            self._broker.faults.forget_streams()
        await self._broker.start()

    async def ready(self) -> None:
        self._broker.faults.remember_streams()
        await self._known()

    async def _known(self) -> None:
        await eventually(lambda: self._broker.statistics().streams)  # it has one of its own

    def gives_offsets_anew(self, stream: str) -> bool:
        del stream
        return False


class CrashableNode:
    """A real server; it is killed as by a power cut."""

    kind = pinned_version()

    def __init__(self, node: LiftbridgeNode) -> None:
        self._node = node

    @property
    def address(self) -> str:
        return self._node.address

    async def crash(self) -> None:
        await asyncio.to_thread(self._node.kill)

    async def start(self) -> None:
        await asyncio.to_thread(self._node.start)

    async def open(self) -> None:
        await asyncio.to_thread(self._node.launch)
        await asyncio.to_thread(self._node.wait_open)

    async def ready(self) -> None:
        await asyncio.to_thread(self._node.wait_ready)

    def gives_offsets_anew(self, stream: str) -> bool:
        return gives_offsets_anew(self._node.folder / "data" / "streams" / stream / "0")


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
async def crashable(request: pytest.FixtureRequest) -> AsyncIterator[Crashable]:
    """A running server that the test may kill; both kinds in turn, or those that the test names."""
    server: Crashable
    if request.param in BROKERS:
        server = CrashableBroker(request.param)
    else:
        server = CrashableNode(request.getfixturevalue("crashable_node"))
    await server.start()
    try:
        yield server
    finally:
        if isinstance(server, CrashableBroker):
            with contextlib.suppress(RuntimeError):
                await server.crash()
