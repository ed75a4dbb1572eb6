"""A FastAPI service that takes orders, served in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx2
import uvicorn
from fastapi import FastAPI

from liftbridge_aio import ClientOptions
from liftbridge_aio.integrations.fastapi import connected_client
from liftbridge_aio.transactions import Producer
from scenario.orders import ORDERS, PARTITIONS, order
from support.servers.ports import free_ports

PATIENT = ClientOptions(publish_timeout=60.0, ack_timeout=60.0, resubscribe_timeout=None)
"""Options of a client that lives through the restart of a server."""

_REQUEST_TIMEOUT = 150.0


async def publish_orders(producer: Producer, numbers: list[int], count: int) -> None:
    """Publish orders once, however often they have to be sent."""
    acks = [
        await producer.publish_async(ORDERS, order(number, count), partition=number % PARTITIONS)
        for number in numbers
    ]
    await asyncio.gather(*acks)


def service(addresses: tuple[str, ...], count: int) -> FastAPI:
    """Make a service that publishes the orders that are posted to it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with (
            connected_client(app, *addresses, options=PATIENT) as client,
            client.producer() as producer,
        ):
            app.state.producer = producer
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders", status_code=201)
    async def take(numbers: list[int]) -> int:
        await publish_orders(app.state.producer, numbers, count)
        return len(numbers)

    return app


@asynccontextmanager
async def served(
    addresses: tuple[str, ...], count: int
) -> AsyncIterator[Callable[[list[int]], Awaitable[None]]]:
    """Serve within the context; gives a function that posts orders."""
    [port] = free_ports(1)
    config = uvicorn.Config(
        service(addresses, count), host="127.0.0.1", port=port, log_level="warning"
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        assert not serving.done()
        await asyncio.sleep(0.05)
    url = f"http://127.0.0.1:{port}"
    async with httpx2.AsyncClient(base_url=url, timeout=_REQUEST_TIMEOUT) as http:

        async def post(numbers: list[int]) -> None:
            answer = await http.post("/orders", json=numbers)
            answer.raise_for_status()

        try:
            yield post
        finally:
            server.should_exit = True
            await serving
