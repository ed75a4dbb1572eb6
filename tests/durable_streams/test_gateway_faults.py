"""The gateway under faults: killed processes, brokers that restart, clients that lie or vanish."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import aiohttp
import pytest
import uvicorn

from conftest import StartRealServer
from durable_streams.conftest import RunGateway
from liftbridge_aio import Client
from liftbridge_aio.durable_streams import (
    START,
    DurableStream,
    IdempotentProducer,
    StreamOptions,
)
from liftbridge_aio.durable_streams.gateway import Gateway, GatewayOptions
from liftbridge_aio.durable_streams.gateway.http_protocol import LimitedHttpProtocol
from liftbridge_aio.retry import Backoff
from support.faults import eventually
from support.servers.gateway import GatewayProcess
from support.servers.node import EmbeddedServer, LiftbridgeNode
from support.servers.ports import free_ports, listens
from support.servers.process import ServerProcess

TEXT: Final = {"Content-Type": "text/plain"}
JSON: Final = "application/json"
ITEMS: Final = 400
PATIENT: Final = StreamOptions(
    timeout=60.0, max_retries=1000, backoff=Backoff(initial=0.05, maximum=0.5)
)


async def numbers_of(stream: DurableStream) -> list[int]:
    """Return the numbers in a stream of `{"n": …}`."""
    return [item["n"] async for item, _ in stream.read(offset=START)]


async def write_through(
    url: str, breaks: Callable[[int], Awaitable[None]], every: int
) -> list[int]:
    """Append numbers by a producer, break something now and then, and return what is stored."""
    async with DurableStream(url, options=PATIENT) as stream:
        await stream.create(content_type=JSON)
        async with IdempotentProducer(stream, "till", epoch=0, max_batch_items=5) as producer:
            for n in range(ITEMS):
                await producer.append_async({"n": n})
                if n % every == every - 1:
                    await breaks(n)
            await producer.flush()
        return await numbers_of(stream)


async def test_a_killed_gateway_loses_and_doubles_nothing(
    run_gateway: RunGateway, embedded_server: EmbeddedServer
) -> None:
    gateway = await run_gateway(embedded_server.address)

    async def kill(_: int) -> None:
        await asyncio.to_thread(gateway.kill)
        await asyncio.to_thread(gateway.start)

    stored = await write_through(f"{gateway.url}/v1/stream/orders", kill, every=150)
    assert stored == list(range(ITEMS))


async def test_a_killed_broker_loses_and_doubles_nothing(
    run_gateway: RunGateway, start_real_server: StartRealServer
) -> None:
    node: LiftbridgeNode = await asyncio.to_thread(start_real_server)
    gateway = await run_gateway(node.address)

    async def kill(_: int) -> None:
        await asyncio.to_thread(node.kill)
        await asyncio.to_thread(node.start)

    stored = await write_through(f"{gateway.url}/v1/stream/orders", kill, every=200)
    assert stored == list(range(ITEMS))


async def test_an_outage_is_logged_and_a_lost_disk_is_a_new_beginning(
    run_gateway: RunGateway, start_real_server: StartRealServer
) -> None:
    node: LiftbridgeNode = await asyncio.to_thread(start_real_server)
    gateway = await run_gateway(node.address)
    assert gateway.process is not None
    url = f"{gateway.url}/v1/stream/orders"
    async with aiohttp.ClientSession() as http:
        async with http.put(url, headers=TEXT, data="old") as created:
            old = created.headers["Stream-Next-Offset"]
        await asyncio.to_thread(node.kill)
        async with http.get(f"{gateway.url}/v1/stream/none") as away:
            text = await away.text()
            assert (away.status, away.headers["Retry-After"]) == (503, "1")
            assert str(node.port) not in text
            assert "try again" in text
        async with asyncio.timeout(60):
            while "Liftbridge does not answer" not in gateway.process.log:  # noqa: ASYNC110 - same
                await asyncio.sleep(0.1)
            await asyncio.to_thread(node.lose_disk)
            await asyncio.to_thread(node.start)
            status = 0
            while status not in {200, 201}:
                async with http.put(url, headers=TEXT, data="new, longer") as again:
                    status = again.status
                await asyncio.sleep(0.1)
            while status != 410:
                async with http.get(f"{url}?offset={old}") as stale:
                    status = stale.status
                if status == 404:
                    async with http.put(url, headers=TEXT, data="new, longer"):
                        pass
        async with http.get(url) as found:
            assert await found.text() == "new, longer"
    for line in ("does not answer", "answers again", "was gone from Liftbridge"):
        assert gateway.process.log.count(line) == 1, line


async def test_a_producer_moves_between_gateways(
    run_gateway: RunGateway, embedded_server: EmbeddedServer
) -> None:
    gateways = [await run_gateway(embedded_server.address) for _ in range(2)]
    urls = [f"{each.url}/v1/stream/orders" for each in gateways]
    async with aiohttp.ClientSession() as http:
        async with http.put(urls[0], headers={"Content-Type": JSON}) as created:
            assert created.status == 201
        for seq in range(60):
            headers = {"Content-Type": JSON, "Producer-Id": "till", "Producer-Epoch": "0"}
            headers["Producer-Seq"] = str(seq)
            for url, status in zip((urls[seq % 2], urls[1 - seq % 2]), (200, 204), strict=True):
                async with http.post(url, json={"n": seq}, headers=headers) as answer:
                    assert answer.status == status
    for url in urls:
        async with DurableStream(url) as stream:
            assert await numbers_of(stream) == list(range(60))


async def send_raw(gateway: GatewayProcess, data: bytes) -> bytes:
    """Send bytes, end the connection's half, and return what comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(data)
    writer.write_eof()
    async with asyncio.timeout(10):
        got = await reader.read()
    writer.close()
    return got


INCOMPLETE: Final = {
    "shorter than it says": b"Content-Length: 100\r\n\r\ntoo short",
    "cut in a chunk": b"Transfer-Encoding: chunked\r\n\r\n9\r\nincompl",
    "no size": b"Transfer-Encoding: chunked\r\n\r\nzz\r\nwhat\r\n0\r\n\r\n",
    "negative": b"Content-Length: -1\r\n\r\nnegative",
    "not a number": b"Content-Length: many\r\n\r\nmany",
    "two lengths": b"Content-Length: 3\r\nContent-Length: 5\r\n\r\nthree",
}


async def test_a_body_that_is_not_complete_is_not_stored(
    run_gateway: RunGateway, embedded_server: EmbeddedServer
) -> None:
    gateway = await run_gateway(embedded_server.address)
    url = f"{gateway.url}/v1/stream/orders"
    async with aiohttp.ClientSession() as http:
        async with http.put(url, headers=TEXT) as created:
            assert created.status == 201
        head = b"POST /v1/stream/orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
        for what, body in INCOMPLETE.items():
            answer = await send_raw(gateway, head + body)
            assert b" 20" not in answer.partition(b"\r\n")[0], what
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(b"GET /v1/stream/orders HTTP/1.1\r\nHost: localhost\r\nX: ")
        async with asyncio.timeout(30):
            with suppress(OSError):
                while not reader.at_eof():  # headers without an end
                    writer.write(b"x" * 10_000)
                    await writer.drain()
                    await asyncio.sleep(0)
        writer.close()
        # A large body and the next request in one write are within the limits.
        large = b"x" * 200_000
        length = b"Content-Length: 200000\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write((head + length + large) * 2)
        answers = b""
        async with asyncio.timeout(30):
            while answers.count(b"HTTP/1.1 204") < 2:
                answer = await reader.read(4096)
                assert answer, answers
                answers += answer
        writer.close()
        async with http.get(url) as found:
            assert await found.read() == large * 2


async def test_readers_that_take_nothing_hold_up_no_others(
    run_gateway: RunGateway, embedded_server: EmbeddedServer
) -> None:
    gateway = await run_gateway(embedded_server.address)
    url = f"{gateway.url}/v1/stream/orders"
    async with aiohttp.ClientSession() as http:
        async with http.put(url, headers=TEXT) as created:
            assert created.status == 201
        stuck = []
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=1)
            writer.write(
                b"GET /v1/stream/orders?offset=-1&live=sse HTTP/1.1\r\nHost: localhost\r\n\r\n"
            )
            stuck.append((reader, writer))
        for _, writer in stuck[:2]:
            writer.transport.abort()  # without a word
        async with http.get(f"{url}?offset=-1&live=sse") as events:
            part = "x" * 500_000
            for n in range(30):
                async with http.post(url, data=f"{n}{part}", headers=TEXT) as appended:
                    assert appended.status == 204
            async with asyncio.timeout(30):
                seen = b""
                while b"29xxx" not in seen:
                    seen = seen[-20:] + await events.content.readany()
        for _, writer in stuck:
            writer.close()


async def test_live_reads_end_when_the_gateway_does(
    run_gateway: RunGateway, embedded_server: EmbeddedServer
) -> None:
    gateway = await run_gateway(embedded_server.address)
    url = f"{gateway.url}/v1/stream/orders"
    async with aiohttp.ClientSession() as http:
        async with http.put(url, headers=TEXT) as created:
            assert created.status == 201
        async with http.get(f"{url}?offset=-1&live=sse") as events:
            control = b""
            while b"streamNextOffset" not in control:
                control += await events.content.readany()
            loop = asyncio.get_running_loop()
            began = loop.time()
            await asyncio.to_thread(gateway.stop)
            assert loop.time() - began < 6
            await events.read()
    assert gateway.process is not None
    assert "Traceback" not in gateway.process.log
    assert json.dumps({"url": gateway.url}) in gateway.process.log


APPLICATION: Final = """
from liftbridge_aio.durable_streams.gateway import gateway_app

app = gateway_app("{servers}")
"""


async def test_events_end_when_the_server_of_the_application_is_told_to(
    embedded_server: EmbeddedServer, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(APPLICATION.format(servers=embedded_server.address))
    [port] = free_ports(1)
    protocol = f"{LimitedHttpProtocol.__module__}:{LimitedHttpProtocol.__name__}"
    flags = ("--port", str(port), "--http", protocol)
    command = (sys.executable, "-m", "uvicorn", "shop:app", *flags)
    server = ServerProcess(command, tmp_path, "uvicorn")
    server.start()
    try:
        async with asyncio.timeout(30):
            while "Uvicorn running" not in server.log:
                assert server.running, server.log
                await asyncio.sleep(0.05)
        url = f"http://127.0.0.1:{port}/v1/stream/orders"
        async with aiohttp.ClientSession() as http:
            async with http.put(url, headers=TEXT) as created:
                assert created.status == 201
            async with http.get(f"{url}?offset=-1&live=sse") as events:
                assert await events.content.readany()
                stopping = asyncio.create_task(asyncio.to_thread(server.stop))
                await events.read()  # whole, or else it raises
                await stopping
        assert "Finished server process" in server.log
        assert "Traceback" not in server.log
    finally:
        server.kill()


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[int, str], Awaitable[Connection]]
KERNEL_BYTES: Final = 2**14
PART: Final = b"x" * 890_000


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Sends a request's text over a connection that takes little before it is read."""
    writers: list[asyncio.StreamWriter] = []

    async def connect(port: int, text: str) -> Connection:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)
        connection.setblocking(False)  # noqa: FBT003 - the name of the socket module
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=connection, limit=KERNEL_BYTES)
        writers.append(writer)
        writer.write(text.encode())
        return reader, writer

    yield connect
    for writer in writers:
        writer.transport.abort()


def get(target: str) -> str:
    return f"GET /v1/stream/{target} HTTP/1.1\r\nHost: localhost\r\n\r\n"


def post(path: str, length: int) -> str:
    head = f"POST /v1/stream/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
    return f"{head}Content-Length: {length}\r\n\r\n"


async def fill(url: str) -> None:
    """Create a stream of more than the kernel takes for a reader that takes nothing."""
    async with aiohttp.ClientSession() as http:
        async with http.put(url, headers=TEXT) as created:
            assert created.status == 201
        for _ in range(10):
            async with http.post(url, data=PART, headers=TEXT) as appended:
                assert appended.status == 204


def unsent_bytes(port: int) -> int:
    """Return the most that the kernel has for the other side of one connection of a port."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    queues = [line[4] for line in lines if line[1].endswith(f":{port:04X}")]
    return max(int(queue.partition(":")[0], 16) for queue in queues)


async def test_a_gateway_ends_in_time_whatever_its_clients_do(
    run_gateway: RunGateway, embedded_server: EmbeddedServer, connect: Connect
) -> None:
    gateway = await run_gateway(embedded_server.address)
    await fill(f"{gateway.url}/v1/stream/orders")
    half, late, *_ = [
        await connect(gateway.port, f"{post('orders', 10)}half"),
        await connect(gateway.port, f"{post('orders', 8)}half"),
        await connect(gateway.port, f"{post('__ds/subscriptions/shop/claim', 10)}half"),
        await connect(gateway.port, get("orders?offset=-1&live=sse")),
        await connect(gateway.port, get("orders?offset=-1")),
        await connect(gateway.port, "GET /v1/st"),
        await connect(gateway.port, ""),
    ]
    await eventually(lambda: unsent_bytes(gateway.port) > 2 * len(PART), bound=15)
    assert gateway.process is not None
    loop = asyncio.get_running_loop()
    began = loop.time()
    gateway.process.interrupt()
    late[1].write(b" and")
    async with asyncio.timeout(20):
        assert (await late[0].read()).startswith(b"HTTP/1.1 204")
        assert (await half[0].read()).startswith(b"HTTP/1.1 503")
        await eventually(lambda: not gateway.running, bound=15)
    assert loop.time() - began < 12
    assert "Traceback" not in gateway.log
    assert "ASGI" not in gateway.log


async def test_a_second_interrupt_ends_a_gateway_at_once(
    run_gateway: RunGateway, embedded_server: EmbeddedServer, connect: Connect
) -> None:
    gateway = await run_gateway(embedded_server.address)
    half, _ = await connect(gateway.port, f"{post('__ds/subscriptions/shop/claim', 10)}half")
    async with aiohttp.ClientSession() as http, http.get(gateway.url) as page:
        assert page.status == 200
    assert gateway.process is not None
    gateway.process.interrupt()
    await eventually(lambda: not listens(gateway.port), bound=15)
    gateway.process.interrupt()
    async with asyncio.timeout(15):
        with suppress(ConnectionResetError):
            assert await half.read() == b""  # unless it waits on
    await eventually(lambda: not gateway.running, bound=15)
    assert "Traceback" not in gateway.log


class Impatient(LimitedHttpProtocol):
    write_timeout = 2.0
    request_timeout = 3.0


@asynccontextmanager
async def impatient_gateway(address: str, registry: str) -> AsyncIterator[uvicorn.Server]:
    """A gateway in this process, whose kernel takes little for readers."""
    options = GatewayOptions(registry=registry)
    async with Client(address) as client, Gateway(client, options) as app:
        config = uvicorn.Config(app, http=Impatient, ws="none", lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
            task = asyncio.create_task(server.serve([listener]))
            await eventually(lambda: server.started)
            try:
                yield server
            finally:
                server.should_exit = True
                async with asyncio.timeout(20):
                    await task


async def test_clients_that_do_nothing_are_cut_off_and_slow_ones_are_not(
    embedded_server: EmbeddedServer,
    stream_name: str,
    connect: Connect,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with impatient_gateway(embedded_server.address, stream_name) as server:
        [listener] = server.servers[0].sockets
        port = listener.getsockname()[1]
        await fill(f"http://127.0.0.1:{port}/v1/stream/orders")
        slow = await connect(port, get("orders?offset=-1").replace("1.1", "1.0", 1))
        for silent in (
            get("orders?offset=-1&live=sse"),
            get("orders?offset=-1&live=long-poll"),
            get("orders?offset=-1"),
            get("orders?offset=-1").replace("1.1", "1.0", 1),
            f"{post('orders', 10)}half",
            f"{post('unknown', 10)}half",
            "GET /v1/st",
            "HEAD /v1/stream/orders HTTP/1.1\r\nHost: localhost\r\n\r\n\r\n",
            "",
        ):
            await connect(port, silent)
        connections = server.server_state.connections
        taken = 0
        while part := await slow[0].read(2**16):
            taken += len(part)
            await asyncio.sleep(0.15)  # a slow client, which takes longer than the limit
        assert taken > len(PART)
        await eventually(lambda: not connections and not server.server_state.tasks, bound=20)
    assert "ASGI" not in caplog.text
