"""An aiohttp service: take orders, send them to browsers as they come, count them in a queue.

Run it with `python -m aiohttp.web -H 127.0.0.1 -P 8000 orders_aiohttp:make_app`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator

from aiohttp import web

from liftbridge_aio import StartAt
from liftbridge_aio.integrations.aiohttp import CLIENT, client_context, health, send_events
from liftbridge_aio.queue import Delivery

logging.basicConfig(level=logging.INFO)

sold: Counter[str] = Counter()


async def streams(app: web.Application) -> AsyncIterator[None]:
    """Create what the service needs when it starts."""
    await app[CLIENT].create_stream("orders", exist_ok=True)
    yield


async def count(order: Delivery) -> None:
    """Handle one order; it is acked when this has returned."""
    sold[order.value.decode()] += 1


async def worker(app: web.Application) -> AsyncIterator[None]:
    """Handle orders from a queue for as long as the service runs."""
    orders = app[CLIENT].queue("orders", group="counters")
    async with orders as queue, asyncio.TaskGroup() as tasks:
        working = tasks.create_task(queue.run(count, concurrency=8, stop_on_signals=False))
        yield
        working.cancel()


async def order(request: web.Request) -> web.Response:
    """Publish an order; it is stored when this is answered."""
    ack = await request.app[CLIENT].publish("orders", await request.read(), timeout=5)
    return web.json_response({"offset": ack.offset}, status=201)


async def follow(request: web.Request) -> web.StreamResponse:
    """Send all orders and then the new ones, for as long as the browser listens."""
    return await send_events(request, "orders", start=StartAt.earliest())


async def show_sold(_request: web.Request) -> web.Response:
    """Return how many of each were ordered."""
    return web.json_response(sold)


def make_app(_arguments: list[str] | None = None) -> web.Application:
    """Return the application."""
    app = web.Application()
    app.cleanup_ctx.extend([client_context(), streams, worker])
    app.add_routes(
        [
            web.get("/health", health("orders")),
            web.post("/orders", order),
            web.get("/orders", follow),
            web.get("/sold", show_sold),
        ]
    )
    return app
