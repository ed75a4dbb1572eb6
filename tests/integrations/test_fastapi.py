"""What is FastAPI's own: the dependency, wherever it is asked for, and what says it is missing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import pytest
from fastapi import Depends, FastAPI, WebSocket
from fastapi.testclient import TestClient
from starlette.applications import Starlette

from liftbridge_aio import Client, ClientOptions, UsageError
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.integrations.fastapi import (
    ConnectedClient,
    client_lifespan,
    connected_client,
    get_client,
    health,
)


async def last_offset(client: ConnectedClient) -> int:
    return (await client.fetch_partition_metadata("orders", 0)).newest_offset


def add_routes(app: FastAPI) -> None:
    @app.get("/offset")
    async def offset(offset: Annotated[int, Depends(last_offset)]) -> int:
        return offset

    @app.post("/order")
    async def order(client: ConnectedClient) -> int:
        ack = await client.publish("orders", b"bread")
        assert ack is not None
        return ack.offset

    @app.websocket("/orders")
    async def orders(websocket: WebSocket, client: ConnectedClient) -> None:
        await websocket.accept()
        ack = await client.publish("orders", await websocket.receive_bytes())
        await websocket.send_text(f"{ack}")
        await websocket.close()


def test_routes_dependencies_and_websockets_get_the_client(
    liftbridge_broker: EmbeddedBroker,
) -> None:
    options = ClientOptions(call_timeout=5)
    app = FastAPI(lifespan=client_lifespan(liftbridge_broker.address, options=options))
    mounted = FastAPI()
    for each in (app, mounted):
        add_routes(each)
    app.mount("/mounted", mounted)
    app.add_route("/health", health())

    @app.post("/stream")
    async def create(client: ConnectedClient) -> None:
        assert client.options is options
        await client.create_stream("orders")

    for first in (0, 3):  # an application may be started again
        with TestClient(app) as http:
            if not first:
                assert http.post("/stream").status_code == 200
            assert http.post("/order").json() == first
            assert http.post("/mounted/order").json() == first + 1
            with http.websocket_connect("/orders") as websocket:
                websocket.send_bytes(b"milk")
                assert f"offset={first + 2}" in websocket.receive_text()
            assert http.get("/offset").json() == first + 2
            assert http.get("/health").json()["problems"] == []


def test_the_client_can_be_replaced_in_tests(liftbridge_broker: EmbeddedBroker) -> None:
    app = FastAPI()
    add_routes(app)

    async def another() -> AsyncIterator[Client]:
        async with Client(liftbridge_broker.address) as client:
            await client.create_stream("orders")
            yield client

    app.dependency_overrides[get_client] = another
    with TestClient(app) as http:
        assert http.post("/order").json() == 0


def test_an_application_without_a_client_says_so() -> None:
    app = FastAPI()
    add_routes(app)
    with TestClient(app) as http, pytest.raises(UsageError, match="lifespan=client_lifespan"):
        http.post("/order")


async def test_the_client_is_closed_with_the_application(
    embedded_server: EmbeddedBroker,
) -> None:
    app = Starlette()
    async with connected_client(app, embedded_server.address) as client:
        assert (await client.ping()) > 0
        service = app.state.liftbridge_aio
        assert service.client is client
        assert not service.stopping.is_set()
    assert "closed" in repr(client)
    assert service.stopping.is_set()
    assert not hasattr(app.state, "liftbridge_aio")
