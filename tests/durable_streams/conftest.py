"""Servers of Durable Streams: the reference server, one for each worker, and gateways."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from liftbridge_aio.durable_streams import DurableStream
from support.servers.durable_streams import DurableStreamsServer
from support.servers.gateway import GatewayProcess

StartDurableStreams = Callable[[], DurableStreamsServer]
RunGateway = Callable[..., Awaitable[GatewayProcess]]
_streams = itertools.count(1)


async def items(stream: DurableStream) -> list[Any]:
    """Read what a stream holds."""
    return [item async for item, _ in stream.read()]


@pytest.fixture(scope="session")
def durable_streams(
    durable_streams_packages: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DurableStreamsServer]:
    """A server that no test breaks, with its streams in memory."""
    server = DurableStreamsServer(durable_streams_packages, tmp_path_factory.mktemp("durable"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def url(durable_streams: DurableStreamsServer) -> str:
    """The URL of a stream that no other test uses, and that does not exist yet."""
    return f"{durable_streams.url}/v1/stream/orders-{os.getpid()}-{next(_streams)}"


@pytest.fixture
def start_durable_streams(
    durable_streams_packages: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartDurableStreams]:
    """Starts servers of the test's own on disk, to be killed and started again on the same port."""
    started: list[DurableStreamsServer] = []

    def start() -> DurableStreamsServer:
        folder = tmp_path_factory.mktemp("own")
        server = DurableStreamsServer(durable_streams_packages, folder, on_disk=True)
        started.append(server)
        server.start()
        return server

    try:
        yield start
    finally:
        for server in started:
            server.stop()


@pytest.fixture
async def run_gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunGateway]:
    """Starts gateways of Liftbridge's at an address, each in a process of its own."""
    started: list[GatewayProcess] = []

    async def run(servers: str, *flags: str) -> GatewayProcess:
        gateway = GatewayProcess(servers, tmp_path_factory.mktemp("gateway"), flags=flags)
        started.append(gateway)
        await asyncio.to_thread(gateway.start)
        return gateway

    try:
        yield run
    finally:
        for gateway in started:
            await asyncio.to_thread(gateway.stop)
