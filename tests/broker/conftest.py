"""A broker and a connection to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from contract.raw import Wire
from liftbridge_aio.broker import EmbeddedBroker


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
