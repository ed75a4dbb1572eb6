"""FastAPI applications on Liftbridge: as `liftbridge_aio.integrations.starlette`, and a dependency.

    app = FastAPI(lifespan=client_lifespan())
    app.add_route("/health", health("orders"))

    @app.post("/orders")
    async def order(client: ConnectedClient, …): …

It needs the extra `[fastapi]`.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

try:
    from fastapi import Depends
    from fastapi.requests import HTTPConnection
except ImportError as error:
    text = f"FastAPI is missing ({error}): pip install 'liftbridge-aio[fastapi]'"
    raise ImportError(text) from error

from liftbridge_aio.client import Client
from liftbridge_aio.integrations.starlette import (
    Event,
    EventStreamResponse,
    as_json,
    as_text,
    client_lifespan,
    connected_client,
    health,
)
from liftbridge_aio.integrations.starlette import get_client as client_of

__all__ = [
    "ConnectedClient",
    "Event",
    "EventStreamResponse",
    "as_json",
    "as_text",
    "client_lifespan",
    "connected_client",
    "get_client",
    "health",
]


async def get_client(connection: HTTPConnection) -> Client:
    """Find the client of the application that serves a request or websocket: a dependency.

    Raises:
        UsageError: the application's lifespan connects none, or was not run.
    """
    return client_of(connection)


ConnectedClient: TypeAlias = Annotated[Client, Depends(get_client)]
"""The type of a parameter that is to be the application's client, in handlers and dependencies."""
