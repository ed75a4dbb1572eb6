"""Readers go on from any offset, follow a stream in each way, and end when it is closed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from durable_streams.conftest import StartDurableStreams
from liftbridge_aio.durable_streams import (
    START,
    Batch,
    DurableStream,
    IdempotentProducer,
    Reader,
    StreamOptions,
    StreamReset,
)
from liftbridge_aio.errors import ConcurrentRead
from support.raw import eventually

LIVE = pytest.mark.parametrize("live", [True, "long-poll", "sse"])


async def take(reader: Reader, count: int) -> list[Any]:
    async with asyncio.timeout(20):
        return [(await anext(reader))[0] for _ in range(count)]


@pytest.mark.parametrize("cut", range(7))
async def test_nothing_is_lost_wherever_reading_stops(url: str, cut: int) -> None:
    async with DurableStream(url) as stream:
        await stream.create(content_type="application/json")
        await stream.append_many([1, 2, 3])
        middle = (await stream.append(4)).offset
        reader = stream.read(offset=START)
        found = await take(reader, min(cut, 4))
        saved = reader.offset
        await stream.append_many([5, 6])
    async with DurableStream(url) as stream:  # as another process would
        rest = [item async for item, _ in stream.read(offset=saved)]
        assert rest[-1] == 6
        first = rest[0] if rest else 7
        assert first <= len(found) + 1  # some may come again
        assert rest == list(range(first, 7))
        assert (saved == middle) == (len(found) == 4)


@LIVE
async def test_a_reader_follows_a_stream_until_it_is_closed(url: str, live: Any) -> None:
    async with DurableStream(url) as stream:
        await stream.create(content_type="application/json")
        await stream.append_many([1, 2])
        reader = stream.read(live=live)
        assert await take(reader, 2) == [1, 2]
        waiting = asyncio.create_task(take(reader, 2))
        await stream.append(3)
        await stream.append([4])
        assert await waiting == [3, [4]]
        ending = asyncio.ensure_future(anext(reader, None))
        end = await stream.close()
        assert await ending is None
        assert (reader.closed, reader.up_to_date, reader.offset) == (True, True, end)
        assert [each async for each in reader] == []


@LIVE
async def test_a_cancelled_wait_loses_nothing(url: str, live: Any) -> None:
    async with DurableStream(url) as stream:
        await stream.create(content_type="application/json")
        reader = stream.read(live=live)
        for number in range(5):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05 * number):
                    await anext(reader)
            await stream.append(number)
            assert await take(reader, 1) == [number]
        await reader.aclose()


@LIVE
async def test_any_text_in_json_is_followed(url: str, live: Any) -> None:
    text = "line\nline\r\n\x85\u2028 \u2029\t\x00\ufeff data: x\n\nevent: control"
    async with DurableStream(url) as stream:
        await stream.create(content_type="application/json")
        reader = stream.read(live=live)
        waiting = asyncio.create_task(take(reader, 1))
        await stream.append(text)
        assert await waiting == [text]
        await reader.aclose()


async def test_batches_tell_when_the_reader_is_up_to_date(url: str) -> None:
    async with DurableStream(url) as stream:
        await stream.create(content_type="application/json")
        empty = [batch async for batch in stream.read().batches()]
        assert [(batch.items, batch.up_to_date, batch.closed) for batch in empty] == [
            ([], True, False)
        ]
        end = (await stream.append_many([1, 2])).offset
        await stream.close()
        assert [batch async for batch in stream.read().batches()] == [
            Batch([1, 2], end, up_to_date=True, closed=True)
        ]


async def test_batches_go_on_after_items(url: str) -> None:
    async with DurableStream(url) as stream:
        await stream.create(content_type="application/json")
        await stream.append_many([1, 2, 3])
        reader = stream.read()
        assert await take(reader, 1) == [1]
        assert [batch.items async for batch in reader.batches()] == [[2, 3]]


@pytest.mark.parametrize("live", [False, "long-poll", "sse"])
async def test_a_stream_that_was_created_again_is_told(url: str, live: Any) -> None:
    options = StreamOptions(max_retries=2)
    async with DurableStream(url, options=options) as stream:
        await stream.create(content_type="application/json")
        end = (await stream.append("a long item")).offset
        await stream.delete()
        await stream.create(content_type="application/json")
        with pytest.raises(StreamReset, match=end):
            await anext(stream.read(offset=end, live=live))


async def test_a_store_on_disk_is_followed_item_by_item(
    start_durable_streams: StartDurableStreams,
) -> None:
    """The server shows appends before its records have them, and goes back."""
    server = start_durable_streams()
    async with DurableStream(f"{server.url}/v1/stream/orders") as stream:
        await stream.create(content_type="application/json")
        followers = [
            asyncio.ensure_future(take(stream.read(live=live), 600))
            for live in ("long-poll", "long-poll", "sse")
        ]
        async with IdempotentProducer(stream, "p", max_batch_items=3, linger=0.001) as producer:
            for number in range(600):
                await producer.append_async(number)
        for found in await asyncio.gather(*followers):
            assert found == list(range(600))


async def test_one_task_reads_at_a_time(url: str) -> None:
    async with DurableStream(url) as stream:
        await stream.create()
        reader = stream.read(live=True)
        waiting = asyncio.ensure_future(anext(reader, None))
        await asyncio.sleep(0)
        with pytest.raises(ConcurrentRead):
            await anext(reader)
        await stream.close()
        assert await waiting is None


@LIVE
async def test_closing_a_reader_ends_the_task_that_waits(url: str, live: Any) -> None:
    async with DurableStream(url) as stream:
        await stream.create()
        reader = stream.read(live=live)
        waiting = asyncio.ensure_future(anext(reader, None))

        async def up_to_date() -> bool:
            return reader.up_to_date

        await eventually(up_to_date)
        await reader.aclose()
        async with asyncio.timeout(10):
            assert await waiting is None
