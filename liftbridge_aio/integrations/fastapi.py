"""FastAPI applications on Liftbridge: those of Starlette, and a dependency for the client.

    app = FastAPI(lifespan=client_lifespan())
    app.add_route("/health", health("orders"))

    @app.post("/orders")
    async def order(client: ConnectedClient, …): …

It needs the extra `[fastapi]`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, TypeAlias

try:
    from fastapi import Depends
    from fastapi.requests import HTTPConnection, Request
    from fastapi.responses import Response
    from fastapi.routing import APIRoute
    from starlette.types import Receive, Scope, Send
except ImportError as error:
    raise ImportError(
        f"FastAPI is missing ({error}): pip install 'liftbridge-aio[fastapi]'"
    ) from error

from liftbridge_aio._client.client import Client
from liftbridge_aio.errors import UsageError
from liftbridge_aio.integrations import starlette
from liftbridge_aio.integrations.service import Service
from liftbridge_aio.integrations.starlette import (
    Event,
    as_json,
    as_text,
    client_lifespan,
    connected_client,
)
from liftbridge_aio.options import Duration

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
    """Return the client of the application that handles a request or websocket: a dependency.

    Raises:
        ClientClosed: the lifespan has failed, which closed the client.
        UsageError: the application's lifespan connects no client, or was not run.
    """
    return starlette.get_client(connection)


ConnectedClient: TypeAlias = Annotated[Client, Depends(get_client)]
"""The type of a parameter that receives the client, in handlers and dependencies."""


def health(*streams: str, timeout: Duration = 2.0) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler of a health route: 200 if the service is ready, else 503 and the problems.

    The answer names addresses and streams, so it is for operators rather than for the public. A
    client from `app.dependency_overrides[get_client]` is the one that is checked.

    Args:
        streams: each must exist, and each of its partitions must have a leader.
        timeout: seconds for the check; then the service counts as unready.
    """
    plain = starlette.health(*streams, timeout=timeout)

    async def health(request: Request) -> Response:
        if not _is_replaced(request):
            return await plain(request)

        async def answer(client: Client) -> Response:
            return await starlette.health_of(_service(request, client), streams, timeout)

        return _WithReplacedClient(answer)

    return health


class EventStreamResponse(starlette.EventStreamResponse):
    """Sends the messages of a partition as server-sent events, for as long as the browser listens.

    As in `liftbridge_aio.integrations.starlette`, but a client from
    `app.dependency_overrides[get_client]` takes precedence. As the `response_class` of a route it
    makes OpenAPI describe an event stream instead of JSON.
    """

    def _find_service(self, request: Request) -> None:
        if not _is_replaced(request):  # else the client is looked up when the response is sent
            super()._find_service(request)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; see `EventStream.serve`."""
        if scope["method"] == "HEAD" or not _is_replaced(HTTPConnection(scope)):
            await super().__call__(scope, receive, send)
            return

        async def answer(client: Client) -> Response:
            # While the dependency is alive: older versions of FastAPI close it before they send.
            self._service = _service(HTTPConnection(scope), client)
            await super(EventStreamResponse, self).__call__(scope, receive, send)
            return _Sent()

        await _WithReplacedClient(answer)(scope, receive, send)


class _WithReplacedClient(Response):
    """Sends the response of `answer`, called with the client that FastAPI injects."""

    def __init__(self, answer: Callable[[Client], Awaitable[Response]]) -> None:
        super().__init__()
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def endpoint(client: ConnectedClient) -> Any:
            return await self._answer(client)

        route = APIRoute("/", endpoint, dependency_overrides_provider=scope["app"])
        await route.app(dict(scope), receive, send)  # FastAPI stores data of the route in it


class _Sent(Response):
    """A response that has already been sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Do nothing: the response has been sent."""


def _is_replaced(connection: HTTPConnection) -> bool:
    overrides: Mapping[Any, Any] = getattr(connection.app, "dependency_overrides", {})
    return get_client in overrides


def _service(connection: HTTPConnection, client: Client) -> Service:
    """Return the application's service, if it has one, with another client."""
    try:
        return Service(client, starlette.service_of(connection).stopping)
    except UsageError:
        return Service(client)
