"""The same handler, with the same interceptors, runs on each of the systems."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from liftbridge_aio import Client, ClientOptions, Interceptor, Message, nsq, stan
from liftbridge_aio.handlers import Delivery
from liftbridge_aio.queue import Nack, QueueOptions, Reject
from support.bridges import Ends, eventually
from support.queues import after

VALUES: Final = (b"fine", b"fails", b"nacked", b"raises nack", b"acked", b"rejected", b"refused")


class Recorder(Interceptor):
    """An interceptor that keeps what it has seen."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    async def process(self, message: Message, handle: Callable[[Message], Awaitable[None]]) -> None:
        self.seen.append(message.value)
        await handle(message)


@dataclass
class Handler:
    """Answers in all ways, by the value of the message; what fails does so once."""

    attempts: dict[bytes, list[int]] = field(default_factory=lambda: defaultdict(list))
    answered_twice: dict[bytes, bool] = field(default_factory=dict)

    async def __call__(self, delivery: Delivery) -> None:
        value = delivery.value
        assert delivery.message.value == value
        assert delivery.redelivered is (delivery.attempt > 1)
        assert not delivery.settled
        self.attempts[value].append(delivery.attempt)
        if value == b"acked":
            await delivery.ack()
            assert delivery.settled
        elif value == b"rejected":
            await delivery.reject("no such account")
            assert delivery.settled
        elif value == b"refused":
            raise Reject("no such account")
        elif delivery.attempt == 1:
            if value == b"fails":
                raise ValueError(value)
            if value == b"nacked":
                await delivery.nack()
                assert delivery.settled
            if value == b"raises nack":
                raise Nack("not now")

    @property
    def is_done(self) -> bool:
        """True when every message was handled as often as it should be."""
        return {value: len(found) for value, found in self.attempts.items()} == {
            value: 2 if value in {b"fails", b"nacked", b"raises nack"} else 1 for value in VALUES
        }


Run = Callable[[Ends, Handler, Recorder], Coroutine[Any, Any, None]]


async def on_a_queue(ends: Ends, handler: Handler, recorder: Recorder) -> None:
    options = ClientOptions(interceptors=[recorder])
    async with (
        Client(ends.node.address, options=options) as client,
        client.queue(ends.name, group="a", options=QueueOptions(retry=after(0.1))) as queue,
    ):
        await queue.run(handler)


async def on_nats_streaming(ends: Ends, handler: Handler, recorder: Recorder) -> None:
    start = stan.StartAt.earliest()
    async with ends.stan.subscribe(ends.name, durable="a", start=start, ack_wait=1) as subscription:
        await subscription.run(handler, interceptors=[recorder])


async def on_nsq(ends: Ends, handler: Handler, recorder: Recorder) -> None:
    options = nsq.ConsumerOptions(requeue_delay=0.1, max_backoff=0)
    async with nsq.Consumer(ends.name, "a", nsqd=[ends.nsqd.address], options=options) as consumer:
        await consumer.run(handler, interceptors=[recorder])


@pytest.mark.parametrize("run", [on_a_queue, on_nats_streaming, on_nsq])
async def test_the_same_handler_runs_everywhere(
    ends: Ends, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    publish = ends.to_channel if run is on_nats_streaming else ends.to_topic
    if run is on_a_queue:
        publish = ends.to_stream
        await ends.lift.create_stream(ends.name)
    for value in VALUES:
        await publish(value)
    handler, recorder = Handler(), Recorder()
    running = asyncio.create_task(run(ends, handler, recorder))
    try:
        await eventually(lambda: handler.is_done or running.done())
        await asyncio.sleep(1.5)  # in which nothing more comes
        assert handler.is_done
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.wait([running])
    assert sorted(recorder.seen) == sorted(
        v for v, found in handler.attempts.items() for _ in found
    )
    assert "not now" not in caplog.text  # a nack is no failure that needs a warning


async def test_what_nats_streaming_cannot_do_is_refused(ends: Ends) -> None:
    await ends.to_channel(b"bread")
    start = stan.StartAt.earliest()
    async with ends.stan.subscribe(ends.name, start=start, manual_ack=True) as subscription:
        message = await anext(subscription)
        with pytest.raises(stan.NotSupported):
            await message.nack(0.5)
        with pytest.raises(stan.NotSupported):
            await message.extend()
        assert not message.settled
        await message.ack()


@pytest.mark.parametrize("system", ["queue", "nsq"])
async def test_extending_gives_a_handler_more_time(ends: Ends, system: str) -> None:
    attempts: list[int] = []
    is_done = asyncio.Event()

    async def handle(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        for _ in range(3):
            await asyncio.sleep(0.8)
            await delivery.extend()
        is_done.set()

    run: Callable[[Callable[[Delivery], Awaitable[None]]], Coroutine[Any, Any, None]]
    async with AsyncExitStack() as stack:
        if system == "queue":
            await ends.lift.create_stream(ends.name)
            await ends.to_stream(b"bread")
            queue = ends.lift.queue(ends.name, group="a", options=QueueOptions(ack_wait=2))
            run = (await stack.enter_async_context(queue)).run
        else:
            await ends.to_topic(b"bread")
            options = nsq.ConsumerOptions(msg_timeout=2)
            consumer = nsq.Consumer(ends.name, "a", nsqd=[ends.nsqd.address], options=options)
            run = (await stack.enter_async_context(consumer)).run
        running = asyncio.create_task(run(handle))
        async with asyncio.timeout(30):
            await is_done.wait()
        running.cancel()
        await asyncio.wait([running])
    assert attempts == [1]
