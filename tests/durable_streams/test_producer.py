"""A producer stores everything once and in order, and says so when it does not."""

from __future__ import annotations

import asyncio
import logging

import pytest

from durable_streams.conftest import items
from liftbridge_aio.durable_streams import (
    BadRequest,
    Closed,
    DurableStream,
    IdempotentProducer,
    NoStream,
    NotStored,
    StaleEpoch,
    StreamClosed,
)
from liftbridge_aio.durable_streams.core.producer_window import Phase
from liftbridge_aio.errors import WrongType
from support.waiting import until


async def new_stream(url: str, content_type: str = "application/json") -> DurableStream:
    stream = DurableStream(url)
    await stream.create(content_type=content_type)
    return stream


@pytest.mark.parametrize("max_in_flight", [1, 5, 50])
async def test_batches_in_flight_stay_in_order(url: str, max_in_flight: int) -> None:
    async with await new_stream(url) as stream:
        async with IdempotentProducer(
            stream, "p", max_batch_items=1, linger=0, max_in_flight=max_in_flight
        ) as producer:
            pending = [await producer.append_async(number) for number in range(200)]
        assert await items(stream) == list(range(200))
        results = [await each for each in pending]
        assert [result.offset for result in results] == sorted({each.offset for each in results})


async def test_items_wait_for_others_and_go_in_one_batch(url: str) -> None:
    async with await new_stream(url) as stream:
        async with IdempotentProducer(stream, "p", linger=60) as producer:
            pending = [await producer.append_async(number) for number in range(100)]
            assert not any(each.done for each in pending)
            await producer.flush()
            assert len({(await each).offset for each in pending}) == 1
        assert await items(stream) == list(range(100))


async def test_an_append_returns_when_it_is_stored(url: str) -> None:
    async with await new_stream(url, "text/plain") as stream:
        async with IdempotentProducer(stream, "p") as producer:
            stored = await asyncio.gather(*(producer.append("x") for _ in range(10)))
            assert (await items(stream)) == [b"x" * 10]
            assert not any(each.duplicate for each in stored)
            await producer.append(b"y" * 2_000_000)  # larger than a batch
        assert sum(map(len, await items(stream))) == 2_000_010


async def test_a_higher_epoch_fences_a_lower_one_off(url: str) -> None:
    async with await new_stream(url) as stream:
        async with IdempotentProducer(stream, "p", epoch=1) as new:
            await new.append("new")
            old = IdempotentProducer(stream, "p", epoch=0)
            await old.__aenter__()
            with pytest.raises(StaleEpoch) as fenced:
                await old.append("old")
            assert fenced.value.current_epoch == 1
            with pytest.raises(NotStored):
                await old.append_async("old")
            with pytest.raises(StaleEpoch):
                await old.aclose()
        assert await items(stream) == ["new"]


async def test_after_a_restart_it_goes_on_above_the_epoch_that_fenced_it(url: str) -> None:
    async with await new_stream(url) as stream:
        async with IdempotentProducer(stream, "p", epoch=7) as other:
            await other.append(1)
        async with IdempotentProducer(stream, "p", epoch=2) as producer:
            failed = await producer.append_async(2)
            with pytest.raises(StaleEpoch):
                await producer.flush()
            with pytest.raises(StaleEpoch):
                await failed
            await producer.restart()
            assert producer.epoch == 8
            await producer.append(3)
        assert await items(stream) == [1, 3]


async def test_a_used_epoch_is_claimed_anew_if_that_is_allowed(url: str) -> None:
    async with await new_stream(url) as stream:
        for process in range(3):
            async with IdempotentProducer(stream, "p", auto_claim=True) as producer:
                for number in range(3):
                    await producer.append([process, number])
                assert producer.epoch == process
        assert await items(stream) == [[p, n] for p in range(3) for n in range(3)]


async def test_a_used_epoch_is_told(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with await new_stream(url) as stream:
        for process in range(2):
            async with IdempotentProducer(stream, "p", epoch=4) as producer:
                stored = [await producer.append(process), await producer.append(process)]
            assert [each.duplicate for each in stored] == [process == 1] * 2
        assert await items(stream) == [0, 0]
    [record] = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "start with a higher epoch" in record.getMessage()


async def test_two_producers_with_one_id_take_turns_if_they_claim(url: str) -> None:
    async with await new_stream(url) as stream:

        async def work(name: str) -> None:
            async with IdempotentProducer(stream, "p", auto_claim=True, linger=0) as producer:
                for number in range(20):
                    await producer.append([name, number])

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(work("a"))
            group.create_task(work("b"))
        found = await items(stream)
        assert sorted(found) == [[name, number] for name in "ab" for number in range(20)]


async def test_what_comes_after_a_failure_is_not_stored_until_a_restart(url: str) -> None:
    async with await new_stream(url) as stream:
        async with IdempotentProducer(stream, "p", max_batch_items=1) as producer:
            await producer.append(1)
            bad = await producer.append_async(b"no JSON")
            after = await producer.append_async(2)
            with pytest.raises(NotStored) as failed:
                await after
            assert producer.phase is Phase.FAILED
            assert isinstance(failed.value.__cause__, BadRequest)
            with pytest.raises(BadRequest):
                await bad
            await producer.restart()
            await producer.append(3)
        assert await items(stream) == [1, 3]


async def test_a_failure_that_nobody_awaits_is_raised_at_the_end(url: str) -> None:
    async with await new_stream(url) as stream:
        with pytest.raises(NoStream):  # noqa: PT012 - leaving the block raises
            async with IdempotentProducer(stream, "p") as producer:
                await stream.delete()
                await producer.append_async(1)


async def test_an_error_of_the_block_is_not_replaced(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with await new_stream(url) as stream:
        with pytest.raises(LookupError):  # noqa: PT012 - leaving the block raises
            async with IdempotentProducer(stream, "p", linger=60) as producer:
                await producer.append_async(1)
                await stream.close()
                raise LookupError
    assert "while closing" in caplog.text


async def test_a_cancelled_block_ends_at_once(url: str) -> None:
    async with await new_stream(url) as stream:
        pending = []

        async def work() -> None:
            async with IdempotentProducer(stream, "p", linger=60) as producer:
                pending.append(await producer.append_async(1))
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await until(lambda: bool(pending))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(NotStored):
            await pending[0]
        assert await items(stream) == []


async def test_closing_ends_the_stream_with_a_last_item(url: str) -> None:
    async with await new_stream(url) as stream:
        async with IdempotentProducer(stream, "p") as producer:
            await producer.append_async(1)
            end = await producer.close({"last": 2})
            assert await producer.close() == end
            with pytest.raises(Closed):
                await producer.append(3)
        assert (await stream.head()).offset == end
        assert await items(stream) == [1, {"last": 2}]
        async with IdempotentProducer(stream, "q") as other:
            with pytest.raises(StreamClosed):
                await other.append(3)
            await other.restart()


async def test_values_are_checked_before_they_are_taken(url: str) -> None:
    async with await new_stream(url) as stream:
        async with IdempotentProducer(stream, "p") as producer:
            with pytest.raises(WrongType):
                await producer.append_async(object())
            await producer.append(1)
        assert await items(stream) == [1]
        with pytest.raises(Closed):
            await producer.append_async(2)
        with pytest.raises(Closed):
            await IdempotentProducer(stream, "q").append_async(2)
