"""aiohttp applications on Liftbridge: client lifecycle, health handler, server-sent events.

    app = web.Application()
    app.cleanup_ctx.append(client_context())
    app.router.add_get("/health", health("orders"))

Handlers find the client as `request.config_dict[CLIENT]`, also in nested applications. It needs the
extra `[aiohttp]`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, Unpack

try:
    from aiohttp import web
except ImportError as error:
    raise ImportError(
        f"aiohttp is missing ({error}): pip install 'liftbridge-aio[aiohttp]'"
    ) from error

from liftbridge_aio._client.client import Client
from liftbridge_aio.errors import UsageError
from liftbridge_aio.integrations.event_stream import EventStream, EventStreamOptions, Write
from liftbridge_aio.integrations.health import HEADERS as HEALTH_HEADERS
from liftbridge_aio.integrations.health import check_service
from liftbridge_aio.integrations.server_sent_events import HEADERS, Event, as_json, as_text
from liftbridge_aio.integrations.service import Service, running_service
from liftbridge_aio.options import ClientOptions, Duration

__all__ = [
    "CLIENT",
    "Event",
    "as_json",
    "as_text",
    "client_context",
    "health",
    "send_events",
]

CLIENT: Final = web.AppKey("liftbridge_aio._client.client", Client)
"""The key of an application's client."""
_SERVICE: Final = web.AppKey("liftbridge_aio.service", Service)
_POLL_INTERVAL: Final = 0.25
"""Seconds between checks that the browser is still connected."""


def client_context(
    *servers: str, options: ClientOptions | None = None, timeout: Duration | None = None
) -> Callable[[web.Application], AsyncIterator[None]]:
    """Return a cleanup context for `app.cleanup_ctx` of the main application.

    On exit the client waits up to `close_timeout` seconds for the acks of publishes in flight.
    Event streams end as soon as the application begins to shut down. Later contexts in the list may
    use the client when they start and end.

    Args:
        servers: addresses; none: what LIFTBRIDGE_SERVERS names.
        options: how the client behaves; None: as the environment says, else the defaults.
        timeout: seconds to wait for servers that are starting; None is the client's call_timeout.

    Raises:
        LiftbridgeError: on starting: no server was ready in time, or the settings are invalid.
    """

    async def context(app: web.Application) -> AsyncIterator[None]:
        async with running_service(*servers, options=options, timeout=timeout) as service:

            async def stop(_: web.Application) -> None:
                service.stopping.set()

            try:
                app.on_shutdown.append(stop)
            except RuntimeError as frozen:
                raise UsageError(
                    "the client belongs to the main application; nested ones find it there"
                ) from frozen
            app[_SERVICE], app[CLIENT] = service, service.client
            yield

    return context


def health(
    *streams: str, timeout: Duration = 2.0
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return a health handler: 200 if the service is ready, else 503 and the problems.

    The answer names addresses and streams, so it is for operators rather than for the public.

    Args:
        streams: each must exist, and each of its partitions must have a leader.
        timeout: seconds for the check; then the service counts as unready.
    """

    async def health(request: web.Request) -> web.Response:
        found = await check_service(_service(request), streams, timeout)
        return web.json_response(found.as_dict(), status=found.status, headers=HEALTH_HEADERS)

    return health


async def send_events(
    request: web.Request,
    stream: str,
    *,
    headers: Mapping[str, str] | None = None,
    **options: Unpack[EventStreamOptions],
) -> web.StreamResponse:
    """Send the messages of a partition as server-sent events, for as long as the browser listens.

    The id of an event is the position of the browser in the log; a browser that reconnects
    continues after the last one that it received (`Last-Event-ID`). If it stops reading, the
    subscription is paused by back-pressure. If it disconnects, the subscription ends: within a
    quarter of a second, or at once if the application is run with `handler_cancellation=True`.

    Args:
        request: the request to answer.
        stream: the stream to read.
        headers: additional headers of the response.
        options: what to read and how to send it, see `EventStreamOptions`.

    Returns:
        The response, for the handler to return; it has been sent.

    Raises:
        InvalidRequest: an option is invalid.
        UsageError: there is no client, see `client_context`.
    """
    service = _service(request)
    events = EventStream(stream, request.headers.get("Last-Event-ID"), **options)
    response = web.StreamResponse(headers={**HEADERS, **(headers or {})})
    if request.method == "HEAD":
        return response

    async def begin(status: int) -> Write:
        nonlocal response
        if status != web.HTTPOk.status_code:
            response = web.StreamResponse(status=status)
        await response.prepare(request)
        return response.write

    with suppress(ConnectionError):  # the browser is gone
        await events.serve(service, begin, partial(_until_gone, request))
    if service.stopping.is_set():
        _abort_if_stuck(request)
    return response


async def _until_gone(request: web.Request) -> None:
    # aiohttp does not report lost connections; a handler that does not read notices one only when
    # it writes, which may be much later.
    while (transport := request.transport) is not None and not transport.is_closing():  # noqa: ASYNC110
        await asyncio.sleep(_POLL_INTERVAL)


def _abort_if_stuck(request: web.Request) -> None:
    """Abort the connection if the browser has stopped reading: it would delay the shutdown."""
    transport = request.transport
    if transport is not None and transport.get_write_buffer_size():
        transport.abort()


def _service(request: web.Request) -> Service:
    service = request.config_dict.get(_SERVICE)
    client = request.config_dict.get(CLIENT)
    if client is None:
        raise UsageError(
            "this application has no client: put client_context(…) into its cleanup_ctx"
        )
    if service is None:  # a test has set a client of its own
        return Service(client)
    return service
