"""The same small service as a Starlette and as an aiohttp application, served in this process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Unpack

import uvicorn
from aiohttp import web
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount, Route

from liftbridge_aio import Client, ClientOptions
from liftbridge_aio.integrations import aiohttp as for_aiohttp
from liftbridge_aio.integrations import starlette as for_starlette
from liftbridge_aio.integrations.event_stream import EventStreamOptions

KERNEL_BYTES: Final = 2**15
"""The kernel's send buffer for a browser that does not read; the kernel doubles it."""


@dataclass(frozen=True, slots=True)
class Served:
    """A running application: `/events` are those of a stream, `/health` is its health."""

    url: str
    client: Client
    begin_to_stop: Callable[[], object]
    """Does what a signal to the server does, and does not wait for the end."""
    transports: Callable[[], list[asyncio.Transport]]
    """Of the connections to browsers."""

    @property
    def unsent_bytes(self) -> int:
        """Return the number of bytes in this process that browsers have not read."""
        return sum(transport.get_write_buffer_size() for transport in self.transports())

    @property
    def events(self) -> str:
        return f"{self.url}/events"

    @property
    def health(self) -> str:
        return f"{self.url}/health"


Serve = Callable[..., AbstractAsyncContextManager[Served]]


@asynccontextmanager
async def serve_starlette(
    servers: str,
    stream: str,
    options: ClientOptions | None = None,
    needed: tuple[str, ...] = (),
    **events: Unpack[EventStreamOptions],
) -> AsyncIterator[Served]:
    def respond(request: Request) -> for_starlette.EventStreamResponse:
        return for_starlette.EventStreamResponse(request, stream, **events)

    nested = Starlette(routes=[Route("/events", respond)])
    app = Starlette(
        lifespan=for_starlette.client_lifespan(servers, options=options, timeout=5),
        routes=[
            Route("/events", respond),
            Route("/health", for_starlette.health(*needed, timeout=0.5)),
            Mount("/nested", nested),
        ],
    )
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host="127.0.0.1",
            port=0,
            lifespan="on",
            log_level="critical",
            timeout_graceful_shutdown=1,
        )
    )
    task = asyncio.create_task(server.serve())
    try:
        while not server.started:
            assert not task.done(), "uvicorn did not start"
            await asyncio.sleep(0.005)
        [listener] = server.servers[0].sockets
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
        port = listener.getsockname()[1]
        service = app.state.liftbridge_aio

        def begin_to_stop() -> None:
            service.stopping.set()  # a signal would reach the test run too
            server.should_exit = True

        def transports() -> list[asyncio.Transport]:
            return [one.transport for one in server.server_state.connections]

        yield Served(f"http://127.0.0.1:{port}", service.client, begin_to_stop, transports)
    finally:
        server.should_exit = True
        async with asyncio.timeout(20):
            await task


@asynccontextmanager
async def serve_aiohttp(
    servers: str,
    stream: str,
    options: ClientOptions | None = None,
    needed: tuple[str, ...] = (),
    **events: Unpack[EventStreamOptions],
) -> AsyncIterator[Served]:
    async def respond(request: web.Request) -> web.StreamResponse:
        return await for_aiohttp.send_events(request, stream, **events)

    nested = web.Application()
    nested.router.add_get("/events", respond)
    app = web.Application()
    app.cleanup_ctx.append(for_aiohttp.client_context(servers, options=options, timeout=5))
    app.router.add_get("/events", respond)
    app.router.add_get("/health", for_aiohttp.health(*needed, timeout=0.5))
    app.add_subapp("/nested", nested)
    runner = web.AppRunner(app)
    await runner.setup()
    ending: list[asyncio.Task[None]] = []
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
            await web.SockSite(runner, listener.dup()).start()
            port = listener.getsockname()[1]

        def begin_to_stop() -> None:
            ending.append(asyncio.create_task(runner.cleanup()))

        def transports() -> list[asyncio.Transport]:
            assert runner.server is not None
            return [one.transport for one in runner.server.connections if one.transport]

        client = app[for_aiohttp.CLIENT]
        yield Served(f"http://127.0.0.1:{port}", client, begin_to_stop, transports)
    finally:
        async with asyncio.timeout(20):
            await (ending[0] if ending else runner.cleanup())


FRAMEWORKS: Final[dict[str, Serve]] = {"starlette": serve_starlette, "aiohttp": serve_aiohttp}
