"""A FastAPI service: take orders, show them on a page as they come, count them in a queue.

Run it with `uvicorn orders_fastapi:app`, and open http://127.0.0.1:8000.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse

from liftbridge_aio import Client, StartAt
from liftbridge_aio.integrations.fastapi import (
    ConnectedClient,
    EventStreamResponse,
    connected_client,
    health,
)
from liftbridge_aio.queue import Delivery

PAGE = """<!doctype html>
<title>Orders</title>
<h1>Orders</h1>
<form><input name="item" value="bread"><button>Order</button></form>
<ul></ul>
<script>
  document.forms[0].onsubmit = (event) => {
    event.preventDefault();
    fetch("/orders/" + encodeURIComponent(event.target.item.value), {method: "POST"});
  };
  new EventSource("/orders").onmessage = (event) => {
    document.querySelector("ul").append(Object.assign(document.createElement("li"),
      {textContent: event.lastEventId.split("@")[0] + ": " + event.data}));
  };
</script>
"""

logging.basicConfig(level=logging.INFO)

sold: Counter[str] = Counter()


async def count(order: Delivery) -> None:
    """Handle one order; it is acked when this has returned."""
    sold[order.value.decode()] += 1


async def work(client: Client) -> None:
    """Handle orders from a queue, which goes on after a restart where it stopped."""
    async with client.queue("orders", group="counters") as queue:
        await queue.run(count, concurrency=8, stop_on_signals=False)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Connect, and work in the background for as long as the service runs."""
    async with connected_client(app) as client, asyncio.TaskGroup() as tasks:
        await client.create_stream("orders", exist_ok=True)
        working = tasks.create_task(work(client))
        yield
        working.cancel()


app = FastAPI(lifespan=lifespan)
app.add_route("/health", health("orders"))


@app.get("/", response_class=HTMLResponse)
async def page() -> str:
    """Return the page."""
    return PAGE


@app.post("/orders/{item}", status_code=201)
async def order(item: str, client: ConnectedClient) -> dict[str, int]:
    """Publish an order; it is stored when this is answered."""
    ack = await client.publish("orders", item.encode(), timeout=5)
    return {"offset": ack.offset}


@app.get("/orders", response_class=EventStreamResponse)
async def follow(request: Request) -> EventStreamResponse:
    """Send all orders and then the new ones, for as long as the browser listens."""
    return EventStreamResponse(request, "orders", start=StartAt.earliest())


@app.get("/sold")
async def show_sold() -> dict[str, int]:
    """Return how many of each were ordered."""
    return dict(sold)
