"""What the tests of web services share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from integrations.web_apps import FRAMEWORKS, Serve
from liftbridge_aio import Client
from servers.node import Server


@pytest.fixture(params=FRAMEWORKS)
def serve(request: pytest.FixtureRequest) -> Serve:
    """Serves an application of each framework in turn."""
    return FRAMEWORKS[request.param]


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    """A client of the test's own, beside that of the service."""
    async with Client(server.address) as client:
        yield client
