"""A broker and a connection to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from liftbridge_aio.broker import EmbeddedBroker
from support.raw import Wire


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    """A running broker."""
    async with EmbeddedBroker() as running:
        yield running


@pytest.fixture
async def wire(broker: EmbeddedBroker) -> AsyncIterator[Wire]:
    """A connection to the broker."""
    connection = Wire(broker.host, broker.port)
    yield connection
    connection.close()
