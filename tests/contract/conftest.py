"""Connections to the servers of the matrix."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from contract.raw import Wire
from liftbridge_aio import Client
from servers.node import LiftbridgeNode, Server


@pytest.fixture
async def wire(server: Server) -> AsyncIterator[Wire]:
    """A connection to each server in turn."""
    connection = Wire(server.host, server.port)
    yield connection
    connection.close()


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    """A client of each server in turn."""
    async with Client(server.address) as client:
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
