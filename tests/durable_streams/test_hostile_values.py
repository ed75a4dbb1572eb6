"""Values from outside: the gateway never answers 500, and the client raises its own errors only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any, Final
from urllib.parse import quote, unquote

import httpx2
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from liftbridge_aio import Client, ClientOptions
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.durable_streams import (
    DurableStream,
    DurableStreamError,
    IdempotentProducer,
    StreamOptions,
)
from liftbridge_aio.durable_streams.gateway import Gateway, GatewayOptions
from liftbridge_aio.retry import Backoff

WILD: Final = (
    "9" * 5_000,
    "1" + "0" * 400,
    str(2**53),
    str(2**63),
    "-1",
    "+1",
    "1_0",
    "0x10",
    "1e400",
    "NaN",
    "\u0663",
    "",
    " ",
    "now",
    "true",
    "\x00",
    "\ud800",
    "%",
    "%zz",
    "%ff",
    "%00",
    "%25",
    "a%20b",
    "..",
    "*",
    '"' * 40,
    "9999999999999999_9999999999999999",
    "0000000000000000_0000000000000000",
    "9999-12-31T23:59:59-23:59",
    "0001-01-01T00:00:00+23:59",
    "2030-02-30T00:00:00Z",
    "2030-01-01T00:00:00." + "1" * 5_000 + "Z",
    "Fri, 31 Dec 99999999999 23:59:59 GMT",
    "Mon, 01 Jan 0000 00:00:00 +9999",
    "[",
    "text/html",
    "/v1/stream/known",
    "http://[::1",
)
values = st.sampled_from(WILD) | st.text(max_size=20)
REQUEST_HEADERS: Final = [
    "Content-Type",
    "Stream-TTL",
    "Stream-Expires-At",
    "Stream-Closed",
    "Stream-Seq",
    "Stream-Forked-From",
    "Stream-Fork-Offset",
    "Stream-Fork-Sub-Offset",
    "Producer-Id",
    "Producer-Epoch",
    "Producer-Seq",
    "If-Match",
    "If-None-Match",
    "Content-Encoding",
    "Authorization",
    "Host",
    "Origin",
    "Range",
    "Accept",
    "Last-Event-ID",
]
RESPONSE_HEADERS: Final = [
    "Content-Type",
    "Stream-Next-Offset",
    "Stream-Up-To-Date",
    "Stream-Closed",
    "Stream-Cursor",
    "Stream-TTL",
    "Stream-Expires-At",
    "Stream-SSE-Data-Encoding",
    "Producer-Epoch",
    "Producer-Seq",
    "Producer-Expected-Seq",
    "Producer-Received-Seq",
    "Retry-After",
    "ETag",
    "Content-Encoding",
]
QUICK: Final = settings(
    max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


def encoded(text: str) -> bytes:
    """Return text as bytes that a header may have, half surrogate pairs included."""
    return text.encode("utf-8", "surrogatepass").replace(b"\r", b" ").replace(b"\n", b" ")


class Service:
    """A gateway over an embedded broker, called as an ASGI server would."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner = runner
        self._stack = AsyncExitStack()
        self.app: Any = None

    async def start(self) -> None:
        enter = self._stack.enter_async_context
        broker = await enter(EmbeddedBroker())
        client = await enter(Client(broker.address, options=ClientOptions(not_found_timeout=0.1)))
        await client.create_stream("native")
        await client.publish("native", b"x")
        options = GatewayOptions(long_poll_timeout=0.02, sse_duration=0.02)
        self.app = await enter(Gateway(client, options))

    async def stop(self) -> None:
        await self._stack.aclose()

    def request(
        self, method: str, path: str, query: str, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> int:
        return self.runner.run(self._request(method, path, query, headers, body))

    async def _request(
        self, method: str, path: str, query: str, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> int:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": headers,
            "server": ("127.0.0.1", 4437),
            "client": ("127.0.0.1", 1),
        }
        received = [{"type": "http.request", "body": body, "more_body": False}]
        statuses: list[int] = []
        never = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if not received:
                await never.wait()
            return received.pop()

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        await self.app(scope, receive, send)
        return statuses[0]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with asyncio.Runner() as runner:
        found = Service(runner)
        runner.run(found.start())
        try:
            host = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
            assert found.request("PUT", "/v1/stream/known", "", host, b"[1, 2]") == 201
            yield found
        finally:
            runner.run(found.stop())


def paths() -> st.SearchStrategy[str]:
    name = values.map(lambda text: quote(text.encode("utf-8", "surrogatepass"), safe="/%"))
    places = (
        "/v1/stream/{}",
        "/v1/liftbridge/native/{}",
        "/v1/liftbridge/{}/0",
        "/v1/stream/__ds/subscriptions/{}",
        "/v1/stream/__ds/subscriptions/wild/streams/{}",
        "/v1/stream/__ds/{}",
        "/{}",
    )
    wild = st.builds(str.format, st.sampled_from(places), name)
    return wild | st.sampled_from(["/v1/stream/known", "/v1/liftbridge/native/0"])


PATHS: Final = paths()
HEADERS: Final = st.dictionaries(st.sampled_from(REQUEST_HEADERS), values, max_size=5)
QUERY: Final = st.dictionaries(
    st.sampled_from(["offset", "live", "cursor", "isolation", "x"]),
    values | st.sampled_from(["-1", "long-poll", "sse", "committed"]),
    max_size=4,
)


@QUICK
@given(
    st.sampled_from(["GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"]),
    PATHS,
    HEADERS,
    QUERY,
    st.sampled_from([b"", b"[7]", b"[" * 9_999, b"9" * 5_000, b"\xff", b'["\\ud800"]']),
)
@example("GET", "/v1/liftbridge/native/" + "9" * 5_000, {}, {}, b"")
@example("GET", "/v1/liftbridge/native/0", {}, {"offset": "9" * 200}, b"")
@example("GET", "/v1/stream/known", {}, {"offset": "-1", "live": "sse", "cursor": "9" * 5_000}, b"")
def test_no_request_is_answered_with_500(
    service: Service,
    method: str,
    path: str,
    headers: dict[str, str],
    query: dict[str, str],
    body: bytes,
) -> None:
    if path == "/v1/stream/known" and method == "DELETE":
        method = "GET"
    given = {"Host": "127.0.0.1", "Content-Type": "application/json"} | headers
    raw = [(name.lower().encode(), encoded(value)) for name, value in given.items()]
    asked = "&".join(f"{name}={quote(encoded(value))}" for name, value in query.items())
    assert service.request(method, path, asked, raw, body) != 500


@pytest.mark.parametrize("name", REQUEST_HEADERS)
@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
def test_no_header_is_answered_with_500(service: Service, name: str, method: str) -> None:
    complete = {
        "Producer-Id": "p",
        "Producer-Epoch": "0",
        "Producer-Seq": "0",
        "Stream-Forked-From": "/v1/stream/known",
        "Stream-Fork-Offset": "-1",
    }
    kinds = ("Producer", "Stream-Fork")
    with_it = {each: given for each, given in complete.items() if name.startswith(kinds)}
    for number, value in enumerate(WILD):
        given = {"Host": "127.0.0.1", "Content-Type": "application/json"} | with_it | {name: value}
        raw = [(each.lower().encode(), encoded(content)) for each, content in given.items()]
        path = f"/v1/stream/{name}-{number}" if method == "PUT" else "/v1/stream/known"
        body = b"" if method == "GET" else b"[7]"
        assert service.request(method, path, "", raw, body) != 500, value


JSON: Final = st.recursive(
    values | st.none() | st.booleans() | st.integers() | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(values, inner, max_size=3),
    max_leaves=5,
)
FIELDS: Final = [
    "type",
    "pattern",
    "streams",
    "wake_stream",
    "webhook",
    "url",
    "lease_ttl_ms",
    "description",
    "worker",
    "wake_id",
    "generation",
    "acks",
    "stream",
    "path",
    "offset",
    "done",
]


@QUICK
@given(
    action=st.sampled_from(["", "/streams", "/claim", "/ack", "/release", "/callback"]),
    fields=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6),
    complete=st.booleans(),
)
@example(action="", fields={"streams": ["\ud800"], "description": "\ud800"}, complete=True)
@example(action="", fields={"pattern": "\ud800", "lease_ttl_ms": 10**400}, complete=True)
@example(action="/claim", fields={"worker": "\ud800"}, complete=True)
def test_no_subscription_is_answered_with_500(
    service: Service, action: str, fields: dict[str, Any], complete: bool
) -> None:
    if complete:
        fields = {
            "type": "pull-wake",
            "streams": ["known"],
            "wake_stream": "known-wakes",
            "wake_id": "w",
            "generation": 1,
        } | fields
    root = "/v1/stream/__ds/subscriptions/wild"
    raw = [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer x")]
    kind = (b"content-type", b"application/json")
    service.request("PUT", "/v1/stream/known-wakes", "", [*raw, kind], b"")
    method = "POST" if action else "PUT"
    body = json.dumps(fields).encode()
    assert service.request(method, root + action, "", raw, body) != 500
    assert service.request("GET", root, "", raw, b"") != 500
    service.request("DELETE", root, "", raw, b"")


@QUICK
@given(
    st.sampled_from([200, 201, 204, 400, 403, 404, 409, 410, 413, 429, 500, 503]),
    st.dictionaries(st.sampled_from(RESPONSE_HEADERS), values, max_size=6),
    st.sampled_from(["read", "long-poll", "sse", "append", "produce", "create", "head", "delete"]),
    st.sampled_from(
        [
            b"",
            b"[1]",
            b"9" * 5_000,
            b"[" + b"9" * 5_000 + b"]",
            b"[" * 9_999,
            b"\xff",
            b'event: control\ndata: {"streamNextOffset": "\\ud800"}\n\n',
            b'event: control\ndata: {"streamNextOffset": 7}\n\n',
            b'event: control\ndata: {"streamNextOffset": "2", "streamCursor": "\\udfff"}\n\n',
            b"event: control\ndata: " + b"[" * 9_999 + b"\n\n",
        ]
    ),
)
@example(429, {"Retry-After": "9" * 5_000}, "append", b"")
@example(503, {"Retry-After": "1" + "0" * 400}, "read", b"")
@example(503, {"Retry-After": "Mon, 01 Jan 0000 00:00:00 +9999"}, "read", b"")
@example(403, {"Producer-Epoch": "9" * 5_000}, "produce", b"")
@example(200, {"Stream-Next-Offset": "1", "Stream-TTL": "9" * 5_000}, "head", b"")
def test_no_response_raises_what_is_not_ours(
    status: int, headers: dict[str, str], call: str, body: bytes
) -> None:
    good = {"Content-Type": "text/event-stream" if call == "sse" else "application/json"}
    raw = [(name.encode(), encoded(value)) for name, value in (good | headers).items()]

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, headers=raw, content=body)

    asyncio.run(use(httpx2.MockTransport(answer), call))


async def use(server: httpx2.AsyncBaseTransport, call: str) -> None:
    quick = StreamOptions(
        timeout=1, resume_timeout=1, max_retries=1, backoff=Backoff(initial=0.001, maximum=0.001)
    )
    async with httpx2.AsyncClient(transport=server) as http:
        stream = DurableStream(
            "http://gateway/s", content_type="application/json", http=http, options=quick
        )
        try:
            async with asyncio.timeout(0.3):
                match call:
                    case "append":
                        await stream.append(1)
                    case "create":
                        await stream.create()
                    case "head":
                        await stream.head()
                    case "delete":
                        await stream.delete()
                    case "produce":
                        async with IdempotentProducer(stream, "p", auto_claim=True) as producer:
                            await producer.append(1)
                    case _:
                        live: Any = call if call != "read" else False
                        async for _ in stream.read(live=live):
                            await asyncio.sleep(0)
        except DurableStreamError:
            pass
        except TimeoutError:
            pass
