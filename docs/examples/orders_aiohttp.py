"""An aiohttp service: take orders, and send them to browsers as they come.

Run it with `python -m aiohttp.web -H 127.0.0.1 -P 8000 orders_aiohttp:make_app`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiohttp import web

from liftbridge_aio import ALL_PARTITIONS, StartAt
from liftbridge_aio.integrations.aiohttp import CLIENT, client_context, health, send_events


async def streams(app: web.Application) -> AsyncIterator[None]:
    """Create what the service needs when it starts."""
    await app[CLIENT].create_stream("orders", exist_ok=True)
    yield


async def order(request: web.Request) -> web.Response:
    """Publish an order; it is stored when this is answered."""
    ack = await request.app[CLIENT].publish("orders", await request.read())
    return web.json_response({"offset": ack.offset}, status=201)


async def follow(request: web.Request) -> web.StreamResponse:
    """Send all orders and then the new ones, for as long as the browser listens."""
    return await send_events(request, "orders", partition=ALL_PARTITIONS, start=StartAt.earliest())


def make_app(_arguments: list[str] | None = None) -> web.Application:
    """Return the application."""
    app = web.Application()
    app.cleanup_ctx.extend([client_context(), streams])
    app.add_routes(
        [
            web.get("/health", health("orders")),
            web.post("/orders", order),
            web.get("/orders", follow),
        ]
    )
    return app
