"""Sync tests as users of the plugin write them; test_modes.py runs them in every mode."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from liftbridge_aio import Client, StartAt, StopAt
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.pytest_plugin import RunInLoop


def make_app(servers: str) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with Client(servers) as client:
            await client.create_stream("orders", exist_ok=True)
            app.state.client = client
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders")
    async def publish(request: Request) -> int:
        ack = await request.app.state.client.publish("orders", await request.body())
        return int(ack.offset)

    return app


async def stored(servers: str) -> list[bytes]:
    async with Client(servers) as client:
        orders = client.subscribe("orders", start=StartAt.earliest(), stop=StopAt.latest())
        return [order.value async for order in orders]


def test_the_service_publishes_and_survives_a_restart(
    liftbridge_broker: EmbeddedBroker, liftbridge_run: RunInLoop
) -> None:
    with TestClient(make_app(liftbridge_broker.address)) as http:
        assert http.post("/orders", content=b"bread").json() == 0
        liftbridge_run(liftbridge_broker.restart())
        assert http.post("/orders", content=b"milk").json() == 1
    assert asyncio.run(stored(liftbridge_broker.address)) == [b"bread", b"milk"]


def test_a_program_reaches_the_broker(liftbridge_broker: EmbeddedBroker) -> None:
    command = [sys.executable, "-m", "liftbridge_aio", "streams", "create", "orders"]
    subprocess.run([*command, "--servers", liftbridge_broker.address], check=True, timeout=30)
    assert asyncio.run(stored(liftbridge_broker.address)) == []
