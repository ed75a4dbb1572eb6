"""A broker for hostile clients, and an honest client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from liftbridge_aio.broker import EmbeddedBroker
from support.raw import Wire


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker() as running:
        yield running


@pytest.fixture
async def wire(broker: EmbeddedBroker) -> AsyncIterator[Wire]:
    """An honest client; there is a stream "s"."""
    connection = Wire(broker.host, broker.port)
    await connection.create("s")
    yield connection
    connection.close()
