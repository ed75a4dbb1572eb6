"""Starlette applications on Liftbridge: client lifecycle, health route, server-sent events.

    app = Starlette(lifespan=client_lifespan(), routes=[
        Route("/health", health("orders")),
        Route("/orders", publish, methods=["POST"]),
        Route("/orders", lambda request: EventStreamResponse(request, "orders")),
    ])

Handlers find the client by `get_client(request)`. It needs the extra `[starlette]`; any ASGI server
will do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, Unpack

try:
    from starlette.applications import Starlette
    from starlette.background import BackgroundTask
    from starlette.requests import HTTPConnection, Request
    from starlette.responses import JSONResponse, Response
    from starlette.status import HTTP_200_OK
    from starlette.types import Receive, Scope, Send
except ImportError as error:
    raise ImportError(
        f"Starlette is missing ({error}): pip install 'liftbridge-aio[starlette]'"
    ) from error

from liftbridge_aio._client.client import Client
from liftbridge_aio._runtime.stop_signal import on_stop_signals
from liftbridge_aio.errors import ClientClosed, UsageError
from liftbridge_aio.integrations.event_stream import EventStream, EventStreamOptions, Write
from liftbridge_aio.integrations.health import HEADERS as HEALTH_HEADERS
from liftbridge_aio.integrations.health import check_service
from liftbridge_aio.integrations.server_sent_events import HEADERS, Event, as_json, as_text
from liftbridge_aio.integrations.service import Service, running_service
from liftbridge_aio.options import ClientOptions, Duration

__all__ = [
    "Event",
    "EventStreamResponse",
    "as_json",
    "as_text",
    "client_lifespan",
    "connected_client",
    "get_client",
    "health",
]

_KEY: Final = "liftbridge_aio"


def client_lifespan(
    *servers: str, options: ClientOptions | None = None, timeout: Duration | None = None
) -> Callable[[Starlette], AbstractAsyncContextManager[Mapping[str, Any]]]:
    """Return the `lifespan=` of an application that needs a client and nothing else.

    If the application starts and ends other things too, write a lifespan around
    `connected_client`, which has the same arguments.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[Mapping[str, Any]]:
        async with connected_client(app, *servers, options=options, timeout=timeout):
            yield {_KEY: getattr(app.state, _KEY)}  # visible in mounted applications, too

    return lifespan


@asynccontextmanager
async def connected_client(
    app: Starlette,
    *servers: str,
    options: ClientOptions | None = None,
    timeout: Duration | None = None,
) -> AsyncIterator[Client]:
    """Connect a client for as long as an application runs; `get_client` finds it.

    On exit the client waits up to `close_timeout` seconds for the acks of publishes in flight. At
    SIGTERM and SIGINT event streams end at once, because servers wait for all responses before
    they shut down.

    Args:
        app: the application.
        servers: addresses; none: what LIFTBRIDGE_SERVERS names.
        options: how the client behaves; None: as the environment says, else the defaults.
        timeout: seconds to wait for servers that are starting; None is the client's call_timeout.

    Raises:
        LiftbridgeError: no server was ready in time, or the settings are invalid.
    """
    async with running_service(*servers, options=options, timeout=timeout) as service:
        with on_stop_signals(service.stopping.set):
            setattr(app.state, _KEY, service)
            try:
                yield service.client
            except BaseException as error:
                service.fail(error)  # requests still come, and find the failed service
                raise
            delattr(app.state, _KEY)


def get_client(connection: HTTPConnection) -> Client:
    """Return the client of the application that handles a request or websocket.

    Raises:
        ClientClosed: the lifespan has failed, which closed the client.
        UsageError: the application's lifespan connects no client, or was not run.
    """
    service = service_of(connection)
    if service.failure is not None:
        error = ClientClosed(f"the client is closed, as the lifespan failed: {service.failure}")
        error.hint = "restart the application"
        raise error
    return service.client


def health(*streams: str, timeout: Duration = 2.0) -> Callable[[Request], Awaitable[JSONResponse]]:
    """Return the handler of a health route: 200 if the service is ready, else 503 and the problems.

    The answer names addresses and streams, so it is for operators rather than for the public.

    Args:
        streams: each must exist, and each of its partitions must have a leader.
        timeout: seconds for the check; then the service counts as unready.
    """

    async def health(request: Request) -> JSONResponse:
        return await health_of(service_of(request), streams, timeout)

    return health


async def health_of(service: Service, streams: Sequence[str], timeout: Duration) -> JSONResponse:
    """Run the health check of a service and return the response."""
    found = await check_service(service, streams, timeout)
    return JSONResponse(found.as_dict(), found.status, HEALTH_HEADERS)


class EventStreamResponse(Response):
    """Sends the messages of a partition as server-sent events, for as long as the browser listens.

    The id of an event is the position of the browser in the log; a browser that reconnects
    continues after the last one that it received (`Last-Event-ID`). If it stops reading, the
    subscription is paused by back-pressure. If it disconnects, the subscription ends.

    Args:
        request: the request to answer.
        stream: the stream to read.
        status_code: the status of the response.
        headers: additional headers of the response.
        background: run after the last event, as with any response.
        options: what to read and how to send it, see `EventStreamOptions`.

    Raises:
        InvalidRequest: an option is invalid.
        UsageError: there is no client, see `get_client`.
    """

    media_type = HEADERS["Content-Type"]

    def __init__(
        self,
        request: Request,
        stream: str,
        *,
        status_code: int = HTTP_200_OK,  # whose default FastAPI reads for OpenAPI
        headers: Mapping[str, str] | None = None,
        background: BackgroundTask | None = None,
        **options: Unpack[EventStreamOptions],
    ) -> None:
        self.status_code = status_code
        self.background = background
        self.init_headers({**HEADERS, **(headers or {})})
        last_event_id = request.headers.get("last-event-id")
        self._events = EventStream(stream, last_event_id, **options)
        self._service: Service
        self._find_service(request)
        self._begun = False
        self._gone = False

    def _find_service(self, request: Request) -> None:
        self._service = service_of(request)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; see `EventStream.serve`."""
        with suppress(OSError):  # raised by servers of ASGI 2.4 when the browser has disconnected
            if scope["method"] == "HEAD":
                await self._begin(send, HTTP_200_OK)
            else:
                gone = partial(self._until_gone, receive)
                await self._events.serve(self._service, partial(self._begin, send), gone)
            if not self._begun:  # the browser is gone; BaseHTTPMiddleware needs a response
                await self._begin(send, HTTP_200_OK)
            if self._begun and not self._gone:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        if self.background is not None:
            await self.background()

    async def _begin(self, send: Send, status: int) -> Write:
        self.status_code = status
        headers = self.raw_headers if status == HTTP_200_OK else []
        await send({"type": "http.response.start", "status": status, "headers": headers})
        self._begun = True

        async def write(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        return write

    async def _until_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone = True


def service_of(connection: HTTPConnection) -> Service:
    """Return the service of the application that handles a request or websocket.

    Raises:
        UsageError: the application's lifespan connects no client, or was not run.
    """
    service = connection.scope.get("state", {}).get(_KEY)
    if service is None:
        service = getattr(connection.app.state, _KEY, None)
    if not isinstance(service, Service):
        raise UsageError(
            "this application has no client: give it lifespan=client_lifespan(…), and run that"
        )
    return service
