"""Crashes, cuts, silence, garbage and wrong TLS: nothing acked is lost, and every call ends."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from durable_streams.conftest import StartDurableStreams, items
from liftbridge_aio.durable_streams import (
    NOW,
    START,
    DurableStream,
    HandshakeFailed,
    IdempotentProducer,
    NotConnected,
    OutcomeUnknown,
    ProtocolError,
    StreamOptions,
    TimedOut,
    TooLarge,
    UnexpectedStatus,
)
from liftbridge_aio.retry import Backoff
from liftbridge_aio.testing import Direction, FaultProxy
from support.certificates import Certificates
from support.raw import eventually
from support.servers.durable_streams import DurableStreamsServer

QUICK: Final = Backoff(initial=0.01, maximum=0.1)
IMPATIENT: Final = StreamOptions(
    timeout=2,
    resume_timeout=3,
    response_timeout=0.5,
    live_timeout=1.5,
    max_retries=3,
    backoff=QUICK,
)
PATIENT: Final = StreamOptions(timeout=30, max_retries=1_000, backoff=QUICK)
LIVE = pytest.mark.parametrize("live", ["long-poll", "sse"])


def path(url: str) -> str:
    return httpx2.URL(url).path


# Crashes


@LIVE
async def test_a_killed_server_loses_nothing_that_was_acked(
    start_durable_streams: StartDurableStreams, live: Any
) -> None:
    server = start_durable_streams()
    url = f"{server.url}/v1/stream/orders"
    async with DurableStream(url, options=PATIENT) as stream:
        await stream.create(content_type="application/json")
        found: list[int] = []

        async def follow() -> None:
            async for item, _ in stream.read(live=live):
                found.append(item)

        following = asyncio.create_task(follow())
        async with IdempotentProducer(stream, "p", max_batch_items=3, linger=0.001) as producer:
            for number in range(300):
                await producer.append_async(number)
                if number in {100, 200}:
                    await asyncio.to_thread(server.kill)
                    await asyncio.to_thread(server.start)
            await producer.flush()
        await stream.close()
        async with asyncio.timeout(30):
            await following
        # A server that is killed may forget that it has the batches that it was storing.
        stored = await items(stream)
        assert list(dict.fromkeys(stored)) == list(range(300))
        assert len(stored) <= 300 + 2 * 5 * 3
        assert list(dict.fromkeys(found)) == list(range(300))


async def test_plain_appends_to_a_killed_server_are_stored_or_told(
    start_durable_streams: StartDurableStreams,
) -> None:
    server = start_durable_streams()
    async with DurableStream(f"{server.url}/v1/stream/orders", options=PATIENT) as stream:
        await stream.create(content_type="application/json")
        acked, unknown = [], []

        async def work(worker: int) -> None:
            for number in range(50):
                try:
                    await stream.append([worker, number])
                except OutcomeUnknown:
                    unknown.append([worker, number])
                else:
                    acked.append([worker, number])

        async with asyncio.TaskGroup() as group:
            for worker in range(4):
                group.create_task(work(worker))
            await eventually(lambda: len(acked) >= 40)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        found = await items(stream)
        assert len(acked) + len(unknown) == 200
        assert len({tuple(each) for each in found}) == len(found)
        assert all(each in found for each in acked)
        assert all(each in acked or each in unknown for each in found)


async def test_a_server_that_is_gone_is_told_in_time(
    start_durable_streams: StartDurableStreams, url: str
) -> None:
    server = start_durable_streams()
    gone = f"{server.url}{path(url)}"
    server.stop()
    async with DurableStream(gone, content_type="text/plain", options=IMPATIENT) as stream:
        for call in (stream.create(), stream.append("x"), stream.head(), anext(stream.read())):
            async with asyncio.timeout(10):
                with pytest.raises(NotConnected, match=gone):
                    await call


# The network


@LIVE
async def test_a_cut_connection_is_made_again(
    durable_streams: DurableStreamsServer, url: str, live: Any
) -> None:
    async with (
        FaultProxy(f"127.0.0.1:{durable_streams.port}") as proxy,
        DurableStream(f"http://{proxy.address}{path(url)}", options=PATIENT) as stream,
        DurableStream(url) as direct,
    ):
        await stream.create(content_type="application/json")
        reader = stream.read(live=live)
        for number in range(10):
            waiting = asyncio.ensure_future(anext(reader))
            if number % 3 == 1:
                await proxy.cut()
            elif number % 3 == 2:
                await proxy.reset()
            await direct.append(number)
            async with asyncio.timeout(20):
                assert (await waiting)[0] == number
        await reader.aclose()


@LIVE
async def test_a_silent_connection_is_made_again(
    durable_streams: DurableStreamsServer, url: str, live: Any
) -> None:
    async with (
        FaultProxy(f"127.0.0.1:{durable_streams.port}") as proxy,
        DurableStream(f"http://{proxy.address}{path(url)}", options=IMPATIENT) as stream,
        DurableStream(url) as direct,
    ):
        await stream.create(content_type="application/json")
        reader = stream.read(live=live)
        batches = reader.batches()
        await anext(batches)  # it is up to date
        waiting = asyncio.ensure_future(anext(batches))
        proxy.swallow(Direction.TO_CLIENTS)
        await direct.append(1)
        await asyncio.sleep(0.2)  # what is sent meanwhile gets lost
        await proxy.heal()
        async with asyncio.timeout(20):
            assert (await waiting).items == [1]
        await reader.aclose()


async def test_calls_over_a_silent_connection_end(
    durable_streams: DurableStreamsServer, url: str
) -> None:
    async with (
        FaultProxy(f"127.0.0.1:{durable_streams.port}") as proxy,
        DurableStream(f"http://{proxy.address}{path(url)}", options=IMPATIENT) as stream,
    ):
        await stream.create(content_type="application/json")
        proxy.freeze()
        for call, errors in (
            (stream.append(1), OutcomeUnknown),
            (stream.head(), (TimedOut, NotConnected)),
            (anext(stream.read()), NotConnected),
        ):
            async with asyncio.timeout(10):
                with pytest.raises(errors):
                    await call
        with pytest.raises(OutcomeUnknown):
            async with asyncio.timeout(20), IdempotentProducer(stream, "p") as producer:
                await producer.append(1)
        await proxy.heal()
        assert set(await items(stream)) <= {1}


async def test_a_producer_over_a_bad_network_stores_all_once(
    durable_streams: DurableStreamsServer, url: str
) -> None:
    async with (
        FaultProxy(f"127.0.0.1:{durable_streams.port}") as proxy,
        DurableStream(f"http://{proxy.address}{path(url)}", options=PATIENT) as stream,
    ):
        await stream.create(content_type="application/json")

        async def break_connections() -> None:
            while True:
                await asyncio.sleep(0.02)
                await proxy.cut()

        breaking = asyncio.create_task(break_connections())
        async with IdempotentProducer(stream, "p", max_batch_items=2) as producer:
            for number in range(300):
                await producer.append_async(number)
            await producer.flush()
        breaking.cancel()
        assert await items(stream) == list(range(300))


# What a server may answer


async def inject(durable_streams: DurableStreamsServer, url: str, **fault: Any) -> None:
    async with httpx2.AsyncClient() as http:
        answer = await http.post(
            f"{durable_streams.url}/_test/inject-error", json={"path": path(url), **fault}
        )
        answer.raise_for_status()


async def test_a_busy_server_is_asked_again_after_its_wait(
    durable_streams: DurableStreamsServer, url: str
) -> None:
    async with DurableStream(url, options=PATIENT) as stream:
        await stream.create(content_type="application/json")
        await inject(durable_streams, url, status=429, count=1, retryAfter=1, method="POST")
        began = asyncio.get_running_loop().time()
        await stream.append(1)
        assert asyncio.get_running_loop().time() - began >= 1
        assert await items(stream) == [1]


async def test_a_server_that_stays_busy_is_told(
    durable_streams: DurableStreamsServer, url: str
) -> None:
    async with DurableStream(url, options=IMPATIENT) as stream:
        await stream.create()
        await inject(durable_streams, url, status=429, count=1, retryAfter=3_600)
        with pytest.raises(UnexpectedStatus) as refused:
            await stream.append(b"1")
        assert refused.value.status == 429
        await inject(durable_streams, url, status=503, count=4)
        with pytest.raises(UnexpectedStatus) as refused:
            await stream.head()
        assert refused.value.status == 503
        assert (await stream.head()).content_type == "application/octet-stream"


@asynccontextmanager
async def answering(*answers: bytes, stay: bool = False) -> AsyncIterator[str]:
    """Serve a URL whose connections answer requests with these bytes in turn, and then end.

    If they `stay`, their clients end them.
    """
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            if left:
                writer.write(left.pop(0))
                await writer.drain()
            if stay:
                await reader.read()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server:
        yield f"http://{host}:{port}/stream"


def response(status: str, *headers: str, body: bytes = b"") -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


OFFSET: Final = "Stream-Next-Offset: 7"
IS_JSON: Final = "Content-Type: application/json"
UP_TO_DATE: Final = response("200 OK", OFFSET, "Stream-Up-To-Date: true", IS_JSON, body=b"[]")
EVENTS: Final = "Content-Type: text/event-stream"


@pytest.mark.parametrize(
    "answers",
    [
        [response("200 OK", IS_JSON, body=b"[1]")],
        [response("200 OK", OFFSET, IS_JSON, body=b"[1")],
        [response("200 OK", OFFSET, IS_JSON, body=b"1")],
        [response("200 OK", OFFSET, IS_JSON, "Content-Encoding: gzip", body=b"garbage")],
        [UP_TO_DATE, response("200 OK", OFFSET, IS_JSON, body=b"[1]")],
        [UP_TO_DATE, response("200 OK", EVENTS, body=b"event: control\ndata: {}\n\n")],
        [UP_TO_DATE, response("200 OK", EVENTS, body=b"event: control\ndata\n\n")],
        [
            UP_TO_DATE,
            response(
                "200 OK",
                EVENTS,
                body=b'event:data\ndata:[1\n\nevent:control\ndata:{"streamNextOffset":"8"}\n\n',
            ),
        ],
        [
            UP_TO_DATE,
            response(
                "200 OK",
                EVENTS,
                "Stream-SSE-Data-Encoding: base64",
                body=b'event:data\ndata:???\n\nevent:control\ndata:{"streamNextOffset":"8"}\n\n',
            ),
        ],
    ],
)
async def test_garbage_in_a_response_is_told(answers: list[bytes]) -> None:
    async with answering(*answers) as url, DurableStream(url, options=IMPATIENT) as stream:
        async with asyncio.timeout(10):
            with pytest.raises(ProtocolError, match=url):
                async for _ in stream.read(live="sse"):
                    pass


@pytest.mark.parametrize(
    "answer", [b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort", b""]
)
async def test_what_is_no_http_is_no_connection(answer: bytes) -> None:
    async with answering(*[answer] * 9) as url, DurableStream(url, options=IMPATIENT) as stream:
        async with asyncio.timeout(10):
            with pytest.raises(NotConnected, match=url):
                await anext(stream.read())


async def test_a_redirect_is_told_with_its_target() -> None:
    moved = response("301 Moved Permanently", "Location: https://elsewhere.example/stream")
    async with answering(moved) as url, DurableStream(url, options=IMPATIENT) as stream:
        with pytest.raises(UnexpectedStatus, match=r"301 to https://elsewhere\.example/stream"):
            await anext(stream.read())


async def test_events_that_end_at_once_do_not_go_on_for_ever() -> None:
    empty = response("200 OK", EVENTS)
    async with (
        answering(UP_TO_DATE, *[empty] * 99) as url,
        DurableStream(url, options=IMPATIENT) as stream,
    ):
        async with asyncio.timeout(10):
            with pytest.raises(NotConnected):
                async for _ in stream.read(live="sse"):
                    pass


async def test_events_that_a_proxy_holds_back_are_waited_for_no_longer_than_said() -> None:
    silent = f"HTTP/1.1 200 OK\r\n{EVENTS}\r\n\r\n".encode()
    end = b'event: control\ndata: {"streamNextOffset":"8","streamClosed":true}\n\n'
    answers = [UP_TO_DATE, *[silent] * 6, response("200 OK", EVENTS, body=end)]
    options = StreamOptions(live_timeout=0.2, resume_timeout=0.5)  # enough for three responses
    async with (
        answering(*answers, stay=True) as url,
        DurableStream(url, options=options) as stream,
        asyncio.timeout(20),
    ):
        with pytest.raises(NotConnected, match="holds Server-Sent Events back"):
            async for _ in stream.read(live="sse"):
                pass


async def test_data_without_its_offset_is_read_again() -> None:
    data = b"event: data\ndata: [1]\n\n"
    end = b'event: control\ndata: {"streamNextOffset":"8","streamClosed":true}\n\n'
    async with (
        answering(
            UP_TO_DATE,
            response("200 OK", EVENTS, body=data),
            response("200 OK", EVENTS, body=data + end),
        ) as url,
        DurableStream(url, options=IMPATIENT) as stream,
    ):
        assert [pair async for pair in stream.read(live="sse")] == [(1, "8")]


CONTROL: Final = b'event: control\ndata: {"streamNextOffset":"7","upToDate":true}\n\n'


@pytest.mark.parametrize(
    ("live", "nothing"),
    [
        ("long-poll", response("204 No Content", OFFSET, "Stream-Up-To-Date: true")),
        ("long-poll", UP_TO_DATE),
        ("long-poll", response("200 OK", OFFSET, IS_JSON, body=b"[]")),
        ("sse", response("200 OK", EVENTS, body=CONTROL)),
        (
            "sse",
            response("200 OK", EVENTS, body=b'event: control\ndata: {"streamNextOffset":"7"}\n\n'),
        ),
    ],
)
async def test_responses_that_end_at_once_are_slowed_down(live: Any, nothing: bytes) -> None:
    async with (
        answering(UP_TO_DATE, *[nothing] * 1_000) as url,
        DurableStream(url, options=IMPATIENT) as stream,
    ):
        reader = stream.read(live=live)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await anext(reader)
        # An event that does not say so leaves open whether more is there.
        assert reader.up_to_date == (live == "long-poll" or nothing.endswith(CONTROL))
        assert 1 < reader._idle < 50


@pytest.mark.parametrize(
    ("live", "cached"),
    [
        (False, response("200 OK", OFFSET, IS_JSON, body=b"[1]")),
        ("long-poll", response("200 OK", OFFSET, IS_JSON, body=b"[1]")),
        (
            "long-poll",
            response("200 OK", OFFSET, "Stream-Up-To-Date: true", IS_JSON, body=b"[1]"),
        ),
        ("sse", response("200 OK", EVENTS, body=b"event: data\ndata: [1]\n\n" + CONTROL)),
    ],
)
@pytest.mark.parametrize("start", [START, NOW, "6"])
async def test_a_cache_that_repeats_an_answer_is_told(live: Any, cached: bytes, start: str) -> None:
    first = [UP_TO_DATE] if live == "sse" else []
    found = []
    async with (
        answering(*first, *[cached] * 20) as url,
        DurableStream(url, options=IMPATIENT) as stream,
    ):

        async def follow() -> None:
            async for item, _ in stream.read(offset=start, live=live):
                found.append(item)

        async with asyncio.timeout(10):
            with pytest.raises(ProtocolError, match="again for ever"):
                await follow()
    assert len(found) <= 1


async def test_a_body_that_is_too_large_is_told() -> None:
    async with (
        answering(response("413 Payload Too Large")) as url,
        DurableStream(url, content_type="text/plain") as stream,
    ):
        with pytest.raises(TooLarge):
            await stream.append("x")


async def test_an_answer_to_an_append_that_is_lost_is_told() -> None:
    async with (
        answering(b"", response("204 No Content", OFFSET)) as url,
        DurableStream(url, content_type="text/plain", options=IMPATIENT) as stream,
    ):
        with pytest.raises(OutcomeUnknown, match="may be stored or not"):
            await stream.append("x")
        assert (await stream.append("x")).offset == "7"


async def test_a_deletion_whose_answer_was_lost_is_one() -> None:
    async with (
        answering(b"", response("404 Not Found")) as url,
        DurableStream(url, options=IMPATIENT) as stream,
    ):
        await stream.delete()


# TLS


async def test_tls_that_does_not_fit_is_told(
    durable_streams: DurableStreamsServer, tmp_path: Path
) -> None:
    certificates = Certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server.cert, certificates.server.key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(response("200 OK", OFFSET, "Content-Type: text/plain"))
        finally:
            writer.close()

    secure = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = secure.sockets[0].getsockname()[1]
    trusting = StreamOptions(tls=ssl.create_default_context(cafile=certificates.ca))
    async with secure:
        async with DurableStream(f"https://127.0.0.1:{port}/s", options=trusting) as stream:
            assert (await stream.head()).offset == "7"
        async with DurableStream(f"https://127.0.0.1:{port}/s") as stream:
            with pytest.raises(HandshakeFailed, match="certificate"):
                await stream.head()
        async with DurableStream(f"http://127.0.0.1:{port}/s", options=IMPATIENT) as stream:
            with pytest.raises(NotConnected):
                await stream.head()
    async with DurableStream(
        f"https://127.0.0.1:{durable_streams.port}/s", options=IMPATIENT
    ) as stream:
        with pytest.raises(HandshakeFailed):
            await stream.head()


# Closing


@LIVE
async def test_closing_ends_what_waits(url: str, live: Any) -> None:
    async with DurableStream(url) as stream:
        await stream.create()
        reader = stream.read(live=live)
        waiting = asyncio.ensure_future(anext(reader, None))

        async def up_to_date() -> bool:
            return reader.up_to_date

        await eventually(up_to_date)
        async with asyncio.timeout(5):
            await stream.aclose()
            with pytest.raises(Exception, match="closed"):
                await waiting


# Between client and server


class Answers(httpx2.AsyncBaseTransport):
    """Answers of something between client and server; None lets a request through.

    Args:
        answer: returns the answer to a request.
    """

    def __init__(self, answer: Callable[[httpx2.Request], httpx2.Response | None]) -> None:
        self._answer = answer
        self._beyond = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        found = self._answer(request)
        return await self._beyond.handle_async_request(request) if found is None else found

    async def aclose(self) -> None:
        await self._beyond.aclose()


@asynccontextmanager
async def through(
    url: str, answer: Callable[[httpx2.Request], httpx2.Response | None]
) -> AsyncIterator[DurableStream]:
    async with httpx2.AsyncClient(transport=Answers(answer)) as http:
        yield DurableStream(url, content_type="application/json", http=http, options=PATIENT)


PROXY = pytest.mark.parametrize("status", [502, 504])


@PROXY
@pytest.mark.parametrize("live", [False, "long-poll", "sse"])
async def test_a_proxy_without_its_server_ends_no_reader(url: str, status: int, live: Any) -> None:
    refused = itertools.cycle([True, True, False])

    def answer(request: httpx2.Request) -> httpx2.Response | None:
        is_refused = request.method == "GET" and next(refused)
        return httpx2.Response(status, text="<h1>Bad Gateway</h1>") if is_refused else None

    async with through(url, answer) as stream:
        await stream.create(data=1)
        await stream.close(2)
        assert [item async for item, _ in stream.read(live=live)] == [1, 2]


@PROXY
async def test_a_proxy_without_its_server_ends_no_producer(url: str, status: int) -> None:
    """The batch may be stored, although the proxy says that it got no answer."""
    refused = itertools.cycle([True, False])

    def answer(request: httpx2.Request) -> httpx2.Response | None:
        if request.method != "POST" or not next(refused):
            return None
        httpx2.post(request.url, content=request.content, headers=request.headers)
        return httpx2.Response(status)

    async with through(url, answer) as stream:
        await stream.create()
        async with IdempotentProducer(stream, "till", linger=0) as producer:
            for n in range(3):
                await producer.append(n)
        assert await items(stream) == [0, 1, 2]


@PROXY
async def test_a_plain_append_is_not_repeated_through_a_proxy(url: str, status: int) -> None:
    posts: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response | None:
        if request.method != "POST":
            return None
        posts.append(request)
        return httpx2.Response(status)

    async with through(url, answer) as stream:
        await stream.create()
        with pytest.raises(OutcomeUnknown):
            await stream.append(1)
    assert len(posts) == 1
