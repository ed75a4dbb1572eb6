"""Streams are created, appended to, closed, forked and deleted on the reference server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from durable_streams.conftest import items
from liftbridge_aio import CallbackCancelled
from liftbridge_aio.durable_streams import (
    BadRequest,
    Closed,
    Conflict,
    DurableStream,
    Gone,
    NoStream,
    StreamClosed,
)
from support.faults import await_what_others_cancel


async def test_a_stream_is_created_once(url: str) -> None:
    async with DurableStream(url) as stream:
        first = await stream.create(content_type="text/plain; charset=utf-8")
        again = await stream.create(content_type="text/plain; charset=utf-8")
        assert (first.created, again.created) == (True, False)
        assert first.offset == again.offset
        assert stream.content_type == "text/plain; charset=utf-8"
        with pytest.raises(Conflict):
            await stream.create(content_type="application/json")


async def test_lifetimes_are_told(url: str) -> None:
    end = datetime(2100, 1, 2, 3, 4, 5, tzinfo=UTC)
    async with DurableStream(url) as stream, DurableStream(url + "-2") as other:
        await stream.create(ttl=timedelta(hours=1))
        assert (await stream.head()).ttl == 3_600
        await other.create(expires_at=end)
        assert (await other.head()).expires_at == end


async def test_a_stream_expires(url: str) -> None:
    async with DurableStream(url) as stream:
        await stream.create(ttl=1)
        async with asyncio.timeout(20):
            with pytest.raises(NoStream):  # noqa: PT012 - one of the calls raises
                while True:
                    await stream.head()


@pytest.mark.parametrize(
    ("content_type", "data", "found"),
    [
        ("application/json", {"é": [1, None]}, {"é": [1, None]}),
        ("application/json", [[1], []], [[1], []]),
        ("application/json", "text", "text"),
        ("application/json", b'{"n":1.0}', {"n": 1.0}),
        ("text/plain", "é\r\n", "é\r\n".encode()),
        ("text/plain", b"\xff", b"\xff"),
        ("application/octet-stream", bytes(range(256)), bytes(range(256))),
    ],
)
async def test_items_are_read_as_they_were_appended(
    url: str, content_type: str, data: Any, found: Any
) -> None:
    async with DurableStream(url) as stream:
        await stream.create(content_type=content_type)
        stored = await stream.append(data)
        assert not stored.duplicate
        assert [pair async for pair in stream.read()] == [(found, stored.offset)]


async def test_items_of_one_request_are_kept_apart_in_json_alone(url: str) -> None:
    async with DurableStream(url) as stream, DurableStream(url + "-2") as text:
        await stream.create(content_type="application/json")
        await stream.append_many([{"n": 1}, [2], 3])
        assert await items(stream) == [{"n": 1}, [2], 3]
        await text.create(content_type="text/plain")
        await text.append_many(["a", b"b"])
        assert await items(text) == [b"ab"]


async def test_the_content_type_is_asked_for(url: str) -> None:
    async with DurableStream(url) as stream:
        await stream.create(content_type="application/json")
    async with DurableStream(url) as stream:
        await stream.append({"n": 1})
        assert stream.content_type == "application/json"
    async with DurableStream(url, content_type="text/plain") as stream:
        with pytest.raises(Conflict):
            await stream.append("text")


async def test_a_closed_stream_takes_no_more(url: str) -> None:
    async with DurableStream(url) as stream:
        await stream.create()
        await stream.append(b"1")
        end = await stream.close(b"2")
        with pytest.raises(StreamClosed) as refused:
            await stream.append(b"3")
        assert refused.value.final_offset == end
        assert await stream.close() == end
        with pytest.raises(StreamClosed):
            await stream.close(b"3")
        assert (await stream.head()).closed


async def test_an_append_may_close(url: str) -> None:
    async with DurableStream(url) as stream:
        await stream.create(content_type="application/json")
        stored = await stream.append_many([1, 2], close=True)
        assert stored.closed
        reader = stream.read(live=True)
        assert [item async for item, _ in reader] == [1, 2]
        assert (reader.closed, reader.up_to_date) == (True, True)


async def test_a_fork_has_what_was_there_and_goes_on_alone(url: str) -> None:
    async with DurableStream(url) as stream:
        await stream.create(content_type="application/json")
        offset = (await stream.append(1)).offset
        await stream.append_many([2, 3])
        whole = await stream.fork(url + "-whole")
        part = await stream.fork(url.rsplit("/", 1)[-1] + "-part", offset=offset, sub_offset=1)
        await whole.append("w")
        await part.append("p")
        await stream.append(4)
        assert await items(stream) == [1, 2, 3, 4]
        assert await items(whole) == [1, 2, 3, "w"]
        assert await items(part) == [1, 2, "p"]
        with pytest.raises(BadRequest):
            await stream.fork(url + "-beyond", offset="9999999999999999_9999999999999999")
        await stream.delete()
        with pytest.raises(Gone):
            await stream.head()
        assert await items(whole) == [1, 2, 3, "w"]
    async with DurableStream(url + "-none") as none:
        with pytest.raises(NoStream):
            await none.fork(url + "-of-none")


async def test_a_deleted_stream_is_not_there(url: str) -> None:
    async with DurableStream(url) as stream:
        await stream.create()
        await stream.delete()
        for call in (stream.head(), stream.append(b"1"), stream.close(), stream.delete()):
            with pytest.raises(NoStream, match=url):
                await call
        ways: tuple[Any, ...] = (False, "long-poll", "sse")
        for live in ways:
            with pytest.raises(NoStream):
                await anext(stream.read(live=live))


async def test_functions_that_others_cancel_have_failed(url: str) -> None:
    async def token() -> str:
        await await_what_others_cancel()
        return ""

    async def sign(_: httpx2.Request) -> None:
        await await_what_others_cancel()

    async with DurableStream(url, headers={"Authorization": token}) as stream:
        with pytest.raises(CallbackCancelled, match="the function for Authorization"):
            await stream.create()
    async with (
        httpx2.AsyncClient(event_hooks={"request": [sign]}) as http,
        DurableStream(url, http=http) as stream,
    ):
        with pytest.raises(CallbackCancelled, match="the HTTP client"):
            await stream.create()


async def test_headers_and_parameters_may_be_functions(url: str) -> None:
    seen: list[httpx2.Request] = []

    async def note(request: httpx2.Request) -> None:
        seen.append(request)

    async def token() -> str:
        return f"Bearer {len(seen)}"

    async with (
        httpx2.AsyncClient(event_hooks={"request": [note]}) as http,
        DurableStream(
            url + "?b=2",
            headers={"Authorization": token, "X-Shop": "1"},
            params={"z": lambda: "9", "a": "1"},
            http=http,
        ) as stream,
    ):
        await stream.create()
        async for _ in stream.read():
            pass
        assert [request.headers["Authorization"] for request in seen] == ["Bearer 0", "Bearer 1"]
        assert [request.headers["X-Shop"] for request in seen] == ["1", "1"]
        assert seen[0].url.query == b"a=1&b=2&z=9"
        assert seen[1].url.query == b"a=1&b=2&offset=-1&z=9"  # in order, as caches want it
        await stream.aclose()
        assert not http.is_closed


async def test_a_failing_function_for_a_header_fails_the_call(url: str) -> None:
    def broken() -> str:
        raise LookupError("no token")

    async with DurableStream(url, headers={"Authorization": broken}) as stream:
        with pytest.raises(LookupError, match="no token"):
            await stream.create()


async def test_a_closed_object_is_not_used_again(url: str) -> None:
    async with DurableStream(url) as stream:
        await stream.create()
        reader = stream.read()
    await stream.aclose()
    for call in (stream.head(), anext(reader), stream.__aenter__()):
        with pytest.raises(Closed):
            await call
    with pytest.raises(Closed):
        stream.read()
