"""Connections to the servers of the matrix."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from liftbridge_aio import Client, ClientClosed, ClientOptions, NotFound
from support.raw import Wire
from support.servers.node import LiftbridgeNode, Server


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that go through the client on the data lane and on the plain path, or as told."""
    told = any("data_path" in mark.args for mark in metafunc.definition.iter_markers("parametrize"))
    if "test_client_" in metafunc.module.__name__ and not told:
        metafunc.parametrize("data_path", ["lane", "plain"], indirect=True)


@pytest.fixture(autouse=True)
def _on_each_path(data_path: str) -> str:
    """Before any client is made."""
    return data_path


@pytest.fixture
async def client(server: Server, stream_name: str) -> AsyncIterator[Client]:
    """A client of each server in turn.

    The stream of the test is deleted in the end: every client that connects learns of all streams
    that there are.
    """
    async with Client(server.address) as client:
        yield client
        with suppress(NotFound, ClientClosed):
            await client.delete_stream(stream_name)


@pytest.fixture
async def impatient(server: Server) -> AsyncIterator[Client]:
    """A client that soon believes that there is no such stream."""
    async with Client(server.address, options=ClientOptions(not_found_timeout=0.2)) as client:
        yield client


@pytest.fixture
async def real_wire(real_server: LiftbridgeNode) -> AsyncIterator[Wire]:
    """A connection to the real server."""
    connection = Wire(real_server.host, real_server.port)
    yield connection
    connection.close()


@pytest.fixture
async def encrypted_wire(encrypted_server: LiftbridgeNode) -> AsyncIterator[Wire]:
    """A connection to the real server that has an encryption key."""
    connection = Wire(encrypted_server.host, encrypted_server.port)
    yield connection
    connection.close()


@pytest.fixture
async def server_client(server: Server) -> AsyncIterator[Client]:
    """Another client of the same server, to be closed or left alone."""
    async with Client(server.address) as client:
        yield client
