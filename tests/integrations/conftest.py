"""Fixtures for the tests of web services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest

from liftbridge_aio import Client
from support.servers.node import Server
from support.web.web_apps import FRAMEWORKS, Serve

EMBEDDED: Final = "embedded"
ENOUGH: Final = ("starlette", "fastapi")
"""The frameworks tested on real servers: in this process, and in a separate process."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out one framework on real servers, for time: no code is of a framework and a server."""
    left_out = [item for item in items if _is_twice_on_a_real_server(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _is_twice_on_a_real_server(item: pytest.Item) -> bool:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    served, process = parameters.get("serve", ENOUGH[0]), parameters.get("framework", ENOUGH[1])
    return parameters.get("server", EMBEDDED) != EMBEDDED and (served, process) != ENOUGH


@pytest.fixture(params=FRAMEWORKS)
def serve(request: pytest.FixtureRequest) -> Serve:
    """Serves an application of each framework in turn."""
    return FRAMEWORKS[request.param]


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    """A client of the test's own, beside that of the service."""
    async with Client(server.address) as client:
        yield client
