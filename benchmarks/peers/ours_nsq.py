"""Our NSQ client: `python -m benchmarks.peers.ours_nsq consume|publish …`."""

from __future__ import annotations

import asyncio

from benchmarks.peers.measuring import WARM_UP, Outcome, Settings, Watch, main
from benchmarks.peers.nsq_consumer import CHANNEL, MAX_IN_FLIGHT
from liftbridge_aio import nsq


async def publish(settings: Settings) -> Outcome:
    """Publish by as many tasks as the window has room for."""
    async with nsq.Producer(settings.servers[0]) as producer:
        await _publish(producer, settings, WARM_UP)
        watch = Watch()
        await _publish(producer, settings, settings.messages)
        return watch.stop(settings.messages)


async def _publish(producer: nsq.Producer, settings: Settings, messages: int) -> None:
    left = messages
    topic, value = settings.stream, settings.value

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await producer.publish(topic, value)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(settings.window, messages)):
            tasks.create_task(work())


async def consume(settings: Settings) -> Outcome:
    """Consume and finish."""
    received = 0
    watch = Watch()
    async with nsq.Consumer(
        settings.stream, CHANNEL, nsqd=settings.servers, max_in_flight=MAX_IN_FLIGHT
    ) as consumer:
        async for message in consumer:
            await message.finish()
            received += 1
            if received == settings.expected:
                break
        return watch.stop(settings.expected)


if __name__ == "__main__":
    main(
        "ours-nsq",
        "liftbridge-aio",
        {
            "consume": lambda settings: asyncio.run(consume(settings)),
            "publish": lambda settings: asyncio.run(publish(settings)),
        },
    )
