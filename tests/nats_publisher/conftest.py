"""A NATS server without Liftbridge, and what plays the part of a stream on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client as NatsClient

from support.nats_streams import Streams
from support.servers.build import nats_path
from support.servers.nats import NatsServer


@pytest.fixture(scope="session")
def nats_server(
    server_binary: Path,  # noqa: ARG001 - builds NATS too, or says why it cannot
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[NatsServer]:
    """A NATS server for the whole run."""
    yield from _run(NatsServer(nats_path(), tmp_path_factory.mktemp("nats")))


@pytest.fixture
def own_nats(
    server_binary: Path,  # noqa: ARG001 - same
    tmp_path: Path,
) -> Iterator[NatsServer]:
    """A NATS server that the test may kill, freeze and start again."""
    yield from _run(NatsServer(nats_path(), tmp_path))


def _run(server: NatsServer) -> Iterator[NatsServer]:
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def nats_url(nats_server: NatsServer) -> str:
    return f"nats://{nats_server.host}:{nats_server.port}"


@pytest.fixture
async def connection(nats_url: str) -> AsyncIterator[NatsClient]:
    """A connection of somebody else's."""
    client = await nats.connect(nats_url)
    yield client
    await client.close()


@pytest.fixture
def streams(connection: NatsClient) -> Streams:
    """Makes streams on the connection of somebody else."""
    return Streams(connection)
