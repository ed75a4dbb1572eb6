"""Starlette applications on Liftbridge: the client's life, a health route, server-sent events.

    app = Starlette(lifespan=client_lifespan(), routes=[
        Route("/health", health("orders")),
        Route("/orders", publish, methods=["POST"]),
        Route("/orders", lambda request: EventStreamResponse(request, "orders")),
    ])

Handlers find the client by `get_client(request)`. It needs the extra `[starlette]`; any ASGI server
will do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
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
    text = f"Starlette is missing ({error}): pip install 'liftbridge-aio[starlette]'"
    raise ImportError(text) from error

from liftbridge_aio.client import Client
from liftbridge_aio.errors import UsageError
from liftbridge_aio.integrations.event_stream import EventStream, EventStreamOptions, Write
from liftbridge_aio.integrations.health import look_after
from liftbridge_aio.integrations.server_sent_events import HEADERS, Event, as_json, as_text
from liftbridge_aio.integrations.service import (
    Service,
    noticing_stop_signals,
    running_service,
)
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
    """Make the `lifespan=` of an application that needs a client and nothing else.

    Where there is more to start and to end, write a lifespan around `connected_client`, whose
    arguments these are.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[Mapping[str, Any]]:
        async with connected_client(app, *servers, options=options, timeout=timeout):
            yield {_KEY: getattr(app.state, _KEY)}  # which mounted applications see as well

    return lifespan


@asynccontextmanager
async def connected_client(
    app: Starlette,
    *servers: str,
    options: ClientOptions | None = None,
    timeout: Duration | None = None,
) -> AsyncIterator[Client]:
    """Connect a client for as long as an application runs; `get_client` finds it.

    On leaving, publishes that are on their way are waited for: close_timeout seconds for their
    acks. At SIGTERM and SIGINT responses of events end at once, because servers wait for them
    before they end anything else.

    Args:
        app: the application.
        servers: addresses; none: what LIFTBRIDGE_SERVERS names.
        options: how the client behaves; None: as the environment says, else the defaults.
        timeout: seconds to wait for servers that are starting; None is the client's call_timeout.

    Raises:
        LiftbridgeError: no server was ready in time, or the settings make no sense.
    """
    async with running_service(*servers, options=options, timeout=timeout) as service:
        with noticing_stop_signals(service.stopping.set):
            setattr(app.state, _KEY, service)
            try:
                yield service.client
            finally:
                delattr(app.state, _KEY)


def get_client(connection: HTTPConnection) -> Client:
    """Find the client of the application that serves a request or websocket.

    Raises:
        UsageError: the application's lifespan connects none, or was not run.
    """
    return _service(connection).client


def health(*streams: str, timeout: Duration = 2.0) -> Callable[[Request], Awaitable[JSONResponse]]:
    """Make the handler of a health route: 200 if the service is ready, else 503 and what is wrong.

    The answer names addresses and streams, so it is for operators rather than for the public.

    Args:
        streams: each must exist, and each of its partitions must have a leader.
        timeout: seconds after which it is unready.
    """

    async def health(request: Request) -> JSONResponse:
        found = await look_after(_service(request), streams, timeout)
        return JSONResponse(found.as_dict(), found.status, {"Cache-Control": "no-store"})

    return health


class EventStreamResponse(Response):
    """Sends the messages of a partition as server-sent events, for as long as the browser listens.

    The id of an event is the offset of its message; a browser that comes back goes on behind the
    last one that it got (`Last-Event-ID`). One that takes nothing more in stops the server, not
    this process's memory. One that leaves ends the subscription.

    Args:
        request: what is answered.
        stream: what is read.
        headers: of the response, beside those that events need.
        background: run after the last event, as with any response.
        options: what to read and how to send it, see `EventStreamOptions`.

    Raises:
        InvalidRequest: an option makes no sense.
        UsageError: there is no client, see `get_client`.
    """

    def __init__(
        self,
        request: Request,
        stream: str,
        *,
        headers: Mapping[str, str] | None = None,
        background: BackgroundTask | None = None,
        **options: Unpack[EventStreamOptions],
    ) -> None:
        self.status_code = HTTP_200_OK
        self.background = background
        self.init_headers({**HEADERS, **(headers or {})})
        last_event_id = request.headers.get("last-event-id")
        self._events = EventStream(_service(request), stream, last_event_id, **options)
        self._begun = False
        self._gone = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; see `EventStream.serve`."""
        with suppress(OSError):  # by which servers of ASGI 2.4 say that the browser is gone
            if scope["method"] == "HEAD":
                await self._begin(send, HTTP_200_OK)
            else:
                gone = partial(self._until_gone, receive)
                await self._events.serve(partial(self._begin, send), gone)
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


def _service(connection: HTTPConnection) -> Service:
    service = connection.scope.get("state", {}).get(_KEY)
    if service is None:
        service = getattr(connection.app.state, _KEY, None)
    if not isinstance(service, Service):
        text = "this application has no client: give it lifespan=client_lifespan(…), and run that"
        raise UsageError(text)
    return service
