"""Behaviours of the Go client when acking, under the names of its tests."""

from __future__ import annotations

import asyncio

import pytest

from liftbridge_aio import InvalidRequest, stan
from liftbridge_aio.stan import StartAt
from support.streaming_clients import (
    MakeClient,
    nothing_comes,
    publish_many,
    sequences,
    take,
    until,
)

FIRST = StartAt.earliest()


async def test_manual_ack(make: MakeClient, channel: str) -> None:
    async with make() as client:
        await publish_many(client, channel, 20)
        async with client.subscribe(channel, start=FIRST) as automatic:
            [message] = await take(automatic, 1)
            with pytest.raises(stan.AckedAutomatically):
                await message.ack()
        async with client.subscribe(
            channel, start=FIRST, manual_ack=True, max_in_flight=5
        ) as manual:
            messages = await take(manual, 5)
            await nothing_comes(manual, 0.2)
            assert manual.statistics().unacked == 5
            for message in messages:
                await message.ack()
                await message.ack()
            rest = await take(manual, 5)
            assert sequences(messages + rest) == [*range(1, 11)]
            await rest[0].ack()
            assert sequences(await take(manual, 1)) == [11]
        with pytest.raises(stan.SubscriptionClosed):
            await rest[1].ack()
        async with client.subscribe(channel, start=FIRST, manual_ack=True) as manual:
            [message] = await take(manual, 1)
            await manual.unsubscribe()
            with pytest.raises(stan.SubscriptionClosed):
                await message.ack()
    with pytest.raises(stan.SubscriptionClosed):
        await message.ack()


async def test_redelivery(make: MakeClient, channel: str) -> None:
    async with make() as client:
        with pytest.raises(InvalidRequest, match="ack_wait"):
            client.subscribe(channel, ack_wait=0.9)
        await publish_many(client, channel, 10)
        async with client.subscribe(channel, start=FIRST, manual_ack=True, ack_wait=1) as messages:
            assert sequences(await take(messages, 10)) == [*range(1, 11)]
            again = await take(messages, 10)
            assert sequences(again) == [*range(1, 11)]
            assert {message.redelivery_count for message in again} == {1}
            for message in again:
                await message.ack()
            await nothing_comes(messages, 1.3)


async def test_redelivered_flag(make: MakeClient, channel: str) -> None:
    """Only what was not acked comes again, and says so."""
    async with make() as client:
        await publish_many(client, channel, 10)
        async with client.subscribe(channel, start=FIRST, manual_ack=True, ack_wait=1) as messages:
            for message in await take(messages, 10):
                assert not message.redelivered
                if message.sequence % 2 == 0:
                    await message.ack()
            again = await take(messages, 5)
            assert sequences(again) == [1, 3, 5, 7, 9]
            assert all(message.redelivered for message in again)


async def test_a_handler_that_raises_gets_the_message_again(
    make: MakeClient, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[stan.Event] = []
    seen: list[tuple[int, bool]] = []

    def handle(message: stan.Message) -> None:
        seen.append((message.sequence, message.redelivered))
        if message.sequence == 2 and not message.redelivered:
            raise ZeroDivisionError

    async with make(on_event=events.append) as client:
        await publish_many(client, channel, 3)
        async with client.subscribe(channel, start=FIRST, ack_wait=1) as messages:
            running = asyncio.create_task(messages.run(handle))
            await until(lambda: len(seen) == 4)
            await messages.aclose()
            await running
    assert seen == [(1, False), (2, False), (3, False), (2, True)]
    [event] = events
    assert isinstance(event, stan.HandlerFailed)
    assert isinstance(event.error, ZeroDivisionError)
    assert event.message.sequence == 2
    assert "the handler of message 2" in caplog.text


async def test_a_handler_that_raises_stops_the_run(make: MakeClient, channel: str) -> None:
    async def handle(message: stan.Message) -> None:
        handled.append(message.sequence)
        if message.sequence == 3:
            raise ZeroDivisionError

    handled: list[int] = []
    async with make() as client:
        await publish_many(client, channel, 5)
        async with client.subscribe(channel, start=FIRST, durable="dur") as messages:
            with pytest.raises(ZeroDivisionError) as caught:
                await messages.run(handle, on_error="stop")
        assert caught.value.__notes__ == [f"raised by the handler of message 3 of '{channel}'"]
        async with client.subscribe(channel, durable="dur") as messages:
            assert sequences(await take(messages, 3)) == [3, 4, 5]
        assert handled == [1, 2, 3]


async def test_handlers_run_side_by_side(make: MakeClient, channel: str) -> None:
    running = 0
    most = 0
    handled: list[int] = []
    enough = asyncio.Event()

    async def handle(message: stan.Message) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if most == 8:
            enough.set()
        await enough.wait()
        running -= 1
        handled.append(message.sequence)

    async with make() as client:
        await publish_many(client, channel, 50)
        async with client.subscribe(channel, start=FIRST, max_in_flight=20) as messages:
            task = asyncio.create_task(messages.run(handle, concurrency=8))
            await until(lambda: len(handled) == 50)
            await until(lambda: messages.statistics().unacked == 0)
            await messages.aclose()
            await task
    assert most == 8
    assert sorted(handled) == [*range(1, 51)]


async def test_one_handler_at_a_time_keeps_the_order(make: MakeClient, channel: str) -> None:
    handled: list[int] = []

    async def handle(message: stan.Message) -> None:
        await asyncio.sleep(0)
        handled.append(message.sequence)

    async with make() as client:
        await publish_many(client, channel, 100)
        async with client.subscribe(channel, start=FIRST) as messages:
            task = asyncio.create_task(messages.run(handle))
            await until(lambda: len(handled) == 100)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await client.publish(channel, b"")
            assert sequences(await take(messages, 1)) == [101]
    assert handled == [*range(1, 101)]


async def test_a_cancelled_handler_does_not_ack(make: MakeClient, channel: str) -> None:
    async def handle(_message: stan.Message) -> None:
        began.set()
        await asyncio.Event().wait()

    began = asyncio.Event()
    async with make() as client:
        await publish_many(client, channel, 1)
        async with client.subscribe(channel, start=FIRST, durable="dur") as messages:
            task = asyncio.create_task(messages.run(handle))
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        async with client.subscribe(channel, durable="dur") as messages:
            [message] = await take(messages, 1)
            assert message.redelivered


async def test_a_handler_that_is_cancelled_from_elsewhere_has_failed(
    make: MakeClient, channel: str
) -> None:
    async def handle(message: stan.Message) -> None:
        handled.append(message.sequence)
        if message.sequence == 1:
            raise asyncio.CancelledError

    handled: list[int] = []
    async with make() as client:
        await publish_many(client, channel, 3)
        async with client.subscribe(channel, start=FIRST) as messages:
            task = asyncio.create_task(messages.run(handle))
            await until(lambda: len(handled) == 3)
            await until(lambda: messages.statistics().unacked == 1)
            await messages.aclose()
            await task


async def test_manual_acks_in_handlers(make: MakeClient, channel: str) -> None:
    async def handle(message: stan.Message) -> None:
        if message.sequence != 2:
            await message.ack()
        handled.append(message.sequence)

    handled: list[int] = []
    async with make() as client:
        await publish_many(client, channel, 3)
        async with client.subscribe(channel, start=FIRST, manual_ack=True) as messages:
            task = asyncio.create_task(messages.run(handle))
            await until(lambda: len(handled) == 3)
            assert messages.statistics().unacked == 1
            await messages.aclose()
            await task


async def test_leaving_the_block_acks_the_last_message(make: MakeClient, channel: str) -> None:
    async with make() as client:
        await publish_many(client, channel, 3)
        async with client.subscribe(channel, start=FIRST, durable="dur") as messages:
            await take(messages, 1)
        with pytest.raises(ZeroDivisionError):
            await fail_at_the_next(client.subscribe(channel, durable="dur"))
        async with client.subscribe(channel, durable="dur") as messages:
            assert sequences(await take(messages, 2)) == [2, 3]


async def fail_at_the_next(subscription: stan.Subscription) -> None:
    async with subscription as messages:
        assert sequences(await take(messages, 1)) == [2]
        raise ZeroDivisionError


async def first_list(messages: stan.Subscription, size: int) -> list[int]:
    """Take one list, and leave its loop."""
    async with asyncio.timeout(10):
        await until(lambda: messages.statistics().pending >= size)
        async for batch in messages.batches(size):
            return sequences(batch)
    return []


async def test_leaving_the_block_acks_the_last_list(make: MakeClient, channel: str) -> None:
    async with make() as client:
        await publish_many(client, channel, 6)
        async with client.subscribe(channel, start=FIRST, durable="dur") as messages:
            assert await first_list(messages, 4) == [1, 2, 3, 4]
        async with client.subscribe(channel, durable="dur") as messages:
            assert sequences(await take(messages, 2)) == [5, 6]


async def test_reading_on_acks_no_list_whose_loop_was_left(make: MakeClient, channel: str) -> None:
    async with make() as client:
        await publish_many(client, channel, 6)
        async with client.subscribe(channel, start=FIRST, durable="dur", ack_wait=1) as messages:
            assert await first_list(messages, 3) == [1, 2, 3]  # its processing failed
            assert sequences(await take(messages, 3)) == [4, 5, 6]
            again = await take(messages, 3)
            assert sequences(again) == [1, 2, 3]
            assert all(message.redelivered for message in again)
        async with client.subscribe(channel, durable="dur") as messages:
            await client.publish(channel, b"")
            assert sequences(await take(messages, 1)) == [7]


async def test_asking_for_the_next_list_acks_the_one_before(make: MakeClient, channel: str) -> None:
    async with make() as client:
        await publish_many(client, channel, 6)
        lists = []
        async with client.subscribe(channel, start=FIRST, durable="dur") as messages:
            await until(lambda: messages.statistics().pending == 6)
            async with asyncio.timeout(10):
                async for batch in messages.batches(3):
                    lists.append(sequences(batch))
                    if len(lists) == 2:
                        assert messages.statistics().unacked == 3
                        break
        assert lists == [[1, 2, 3], [4, 5, 6]]


async def test_wrong_arguments_of_run(make: MakeClient, channel: str) -> None:
    async with make() as client, client.subscribe(channel) as messages:
        with pytest.raises(InvalidRequest, match="on_error"):
            await messages.run(print, on_error="skip")  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="concurrency"):
            await messages.run(print, concurrency=0)
        with pytest.raises(InvalidRequest, match="handler"):
            await messages.run(None)  # type: ignore[arg-type]
