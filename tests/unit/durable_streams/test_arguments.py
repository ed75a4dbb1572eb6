"""Invalid arguments are refused before anything is sent."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from liftbridge_aio.durable_streams import (
    DurableStream,
    IdempotentProducer,
    NotConnected,
    StreamOptions,
)
from liftbridge_aio.errors import InvalidRequest, UsageError, WrongType

URL = "http://127.0.0.1:1/stream"  # where nobody listens


@pytest.mark.parametrize(
    "url", ["", "stream", "ftp://h/s", "http://", "http://h:x/s", "http://h:99999999/"]
)
def test_a_url_is_of_a_stream(url: str) -> None:
    with pytest.raises(InvalidRequest):
        DurableStream(url)


@pytest.mark.parametrize(
    "arguments",
    [
        *({"url": None}, {"url": URL, "headers": [("a", "b")]}),
        *({"url": URL, "headers": {"a": 7}}, {"url": URL, "params": {7: "a"}}),
        *({"url": URL, "content_type": 7}, {"url": URL, "options": {"timeout": 7}}),
    ],
)
def test_arguments_of_a_stream_have_their_types(arguments: dict[str, Any]) -> None:
    with pytest.raises(WrongType):
        DurableStream(**arguments)


@pytest.mark.parametrize(
    "options",
    [
        *({"timeout": 0}, {"timeout": -1}, {"response_timeout": float("nan")}),
        *({"live_timeout": 0}, {"max_retries": -1}, {"max_retries": True}, {"backoff": 7}),
        {"tls": True},
    ],
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        StreamOptions(**options)


@pytest.mark.parametrize(
    "arguments",
    [
        {"content_type": "nonsense"},
        {"content_type": "text/plain\r\nX: y"},
        {"ttl": 1.5},
        {"ttl": -1},
        {"ttl": float("inf")},
        {"ttl": 1, "expires_at": datetime.now(UTC)},
        {"expires_at": datetime(2030, 1, 1)},  # noqa: DTZ001 - what is refused
        {"expires_at": "2030-01-01"},
        {"closed": "yes"},
        {"data": "text"},
    ],
)
async def test_arguments_of_create_are_checked(arguments: dict[str, Any]) -> None:
    async with DurableStream(URL) as stream:
        with pytest.raises(InvalidRequest):
            await stream.create(**arguments)


async def test_arguments_of_appends_forks_and_reads_are_checked() -> None:
    async with DurableStream(URL, content_type="application/json") as stream:
        for call in (
            stream.append(object()),
            stream.append(1, seq=""),
            stream.append(1, seq="a\nb"),
            stream.append_many([]),
            stream.append_many("text"),
            stream.fork("/f", offset="a,b"),
            stream.fork("/f", sub_offset=1),
            stream.fork("/f", offset="1", sub_offset=-1),
            stream.fork("http://127.0.0.1:2/f"),
        ):
            with pytest.raises(InvalidRequest):
                await call
        with pytest.raises(InvalidRequest):
            stream.read(offset="")
        live: Any = "always"
        with pytest.raises(InvalidRequest):
            stream.read(live=live)


def test_an_object_belongs_to_one_event_loop() -> None:
    stream = DurableStream(URL, options=StreamOptions(max_retries=0))

    async def head() -> None:
        await stream.head()

    with pytest.raises(NotConnected):
        asyncio.run(head())
    with pytest.raises(UsageError, match="another event loop"):
        asyncio.run(head())


@pytest.mark.parametrize(
    "arguments",
    [
        *({"producer_id": ""}, {"producer_id": "é"}, {"epoch": -1}, {"epoch": 2**53}),
        *({"epoch": True}, {"auto_claim": 1}, {"max_batch_bytes": 0}, {"max_batch_items": 0}),
        *({"linger": -1}, {"max_in_flight": 0}),
    ],
)
def test_arguments_of_a_producer_are_checked(arguments: dict[str, Any]) -> None:
    stream = DurableStream(URL, http=httpx2.AsyncClient())
    with pytest.raises(InvalidRequest):
        IdempotentProducer(stream, **{"producer_id": "p", **arguments})
