"""The parts specific to FastAPI: the dependency, and the error if the client is missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Annotated

import pytest
from anyio.from_thread import start_blocking_portal
from fastapi import Depends, FastAPI, HTTPException, Request, Response, WebSocket
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.types import Message

from liftbridge_aio import Client, ClientClosed, ClientOptions, StartAt, StopAt, UsageError
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.integrations.fastapi import (
    ConnectedClient,
    EventStreamResponse,
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


def test_an_event_stream_is_described_as_such() -> None:
    app = FastAPI()

    @app.get("/orders", response_class=EventStreamResponse)
    async def follow(request: Request) -> EventStreamResponse:
        return EventStreamResponse(request, "orders")

    [answer] = app.openapi()["paths"]["/orders"]["get"]["responses"].values()
    assert list(answer["content"]) == ["text/event-stream"]


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


class Gate:
    """A dependency of a dependency: lets its client be used while a request lasts."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.open = 0
        self.closed = 0

    async def client(self, item: str = "") -> AsyncIterator[Client]:
        if item == "refused":
            raise HTTPException(403, "refused")
        self.open += 1
        try:
            async with Client(self.address) as client:
                yield client
        finally:
            self.closed += 1


@pytest.mark.parametrize("is_mounted", [False, True])
@pytest.mark.parametrize("has_own_client", [False, True])
def test_a_client_that_replaces_it_is_used_by_events_and_health(
    liftbridge_broker: EmbeddedBroker, *, is_mounted: bool, has_own_client: bool
) -> None:
    """That of the application, where it has one, knows nothing of the stream."""
    gate = Gate(liftbridge_broker.address)
    app = FastAPI()
    app.dependency_overrides[get_client] = gate.client
    app.add_route("/health", health("orders", timeout=5))

    @app.get("/orders")
    @app.head("/orders")
    async def orders(request: Request) -> EventStreamResponse:
        return EventStreamResponse(
            request, "orders", start=StartAt.earliest(), stop=StopAt.latest()
        )

    @app.post("/orders")
    async def order(client: ConnectedClient) -> None:
        await client.create_stream("orders")
        await client.publish("orders", b"bread")

    with ExitStack() as stack:
        outer = app
        if has_own_client:
            other = stack.enter_context(running_broker())
            outer = FastAPI(lifespan=client_lifespan(other))
            outer.mount("/" if is_mounted else "/elsewhere", app)
            if not is_mounted:
                app.router.lifespan_context = client_lifespan(other)
                outer = app
        elif is_mounted:
            outer = FastAPI()
            outer.mount("/", app)
        http = stack.enter_context(TestClient(outer))
        assert http.post("/orders").status_code == 200
        assert gate.open == gate.closed == 1
        assert http.get("/health").json()["status"] == "ready"
        assert "data: bread" in http.get("/orders").text
        assert gate.open == gate.closed == 3
        for path in ("/health", "/orders"):
            assert http.get(path, params={"item": "refused"}).status_code == 403
        head = http.head("/orders")
        assert (head.status_code, head.text) == (200, "")
        assert gate.open == gate.closed == 3


@contextmanager
def running_broker() -> Iterator[str]:
    """A broker that has nothing, in a loop of its own."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(EmbeddedBroker()) as broker,
    ):
        yield broker.address


def test_requests_are_told_that_the_lifespan_failed(
    liftbridge_broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with connected_client(app, liftbridge_broker.address), asyncio.TaskGroup() as tasks:
            app.state.broken = asyncio.Event()
            tasks.create_task(worker(app.state.broken))
            yield

    async def worker(broken: asyncio.Event) -> None:
        await broken.wait()
        raise RuntimeError("no more orders")

    app = FastAPI(lifespan=lifespan)
    app.add_route("/health", health())
    add_routes(app)

    @app.post("/break")
    async def fail(request: Request) -> None:
        request.app.state.broken.set()

    http = TestClient(app).__enter__()
    assert http.get("/health").status_code == 200
    http.post("/break")
    answer = http.get("/health")
    while answer.status_code == 200:
        answer = http.get("/health")
    assert answer.status_code == 503
    assert "no more orders" in answer.json()["problems"][0]
    with pytest.raises(ClientClosed, match=r"the lifespan failed: .*no more orders"):
        http.post("/order")
    with pytest.raises(ExceptionGroup, match="TaskGroup"):
        http.__exit__(None, None, None)
    assert "no more orders" in caplog.text


def test_a_plain_function_may_replace_it(liftbridge_broker: EmbeddedBroker) -> None:
    app = FastAPI(lifespan=client_lifespan(liftbridge_broker.address))
    app.add_route("/health", health())

    def closed() -> Client:
        return Client("127.0.0.1:1")

    with TestClient(app) as http:
        assert http.get("/health").status_code == 200
        app.dependency_overrides[get_client] = closed
        answer = http.get("/health")
        assert answer.status_code == 503
        assert answer.headers["cache-control"] == "no-store"
        app.dependency_overrides.clear()
        assert http.get("/health").status_code == 200


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


async def test_a_browser_that_leaves_at_once_is_no_error_for_a_middleware(
    liftbridge_broker: EmbeddedBroker,
) -> None:
    app = FastAPI(lifespan=client_lifespan(liftbridge_broker.address))

    @app.middleware("http")
    async def passing(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        return await call_next(request)

    @app.get("/events", response_class=EventStreamResponse)
    async def events(request: Request) -> EventStreamResponse:
        return EventStreamResponse(request, "orders")

    to_receive = ["http.request", "http.disconnect"]
    sent: list[str] = []

    async def receive() -> Message:
        return {"type": to_receive.pop(0) if len(to_receive) > 1 else to_receive[0]}

    async def send(message: Message) -> None:
        sent.append(message["type"])

    scope = {"type": "http", "method": "GET", "path": "/events", "headers": [], "query_string": b""}
    async with app.router.lifespan_context(app):
        await app(scope, receive, send)
    assert sent[0] == "http.response.start"
