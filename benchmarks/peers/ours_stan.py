"""Our client of NATS Streaming: `python -m benchmarks.peers.ours_stan consume|publish …`."""

from __future__ import annotations

import asyncio
import time
from collections import deque

from benchmarks.peers.measuring import WARM_UP, Outcome, Settings, Watch, main
from benchmarks.peers.stan_session import CLIENT_ID, CLUSTER, MAX_IN_FLIGHT
from liftbridge_aio import stan


def _client(settings: Settings, window: int) -> stan.Client:
    address = f"nats://{settings.servers[0]}"
    options = stan.ClientOptions(max_in_flight=window)
    return stan.Client(address, cluster=CLUSTER, client_id=CLIENT_ID, options=options)


async def publish(settings: Settings) -> Outcome:
    """Publish, and wait for every ack; the client keeps the window."""
    async with _client(settings, settings.window) as client:
        await _windowed(client, settings, WARM_UP)
        watch = Watch()
        if settings.window > 1:
            await _windowed(client, settings, settings.messages)
            return watch.stop(settings.messages)
        took = await _one_by_one(client, settings)
        outcome = watch.stop(settings.messages)
        outcome.latencies["latency"] = took
        return outcome


async def _windowed(client: stan.Client, settings: Settings, messages: int) -> None:
    channel, value, window = settings.stream, settings.value, settings.window
    acks: deque[stan.Publish] = deque()
    for _ in range(messages):
        acks.append(await client.publish_async(channel, value))
        if len(acks) > window:
            await acks.popleft()
    for ack in acks:
        await ack


async def _one_by_one(client: stan.Client, settings: Settings) -> list[int]:
    """Publish, wait for the ack, publish the next; the nanoseconds of each."""
    channel, value = settings.stream, settings.value
    took = []
    for _ in range(settings.messages):
        began = time.monotonic_ns()
        await client.publish(channel, value)
        took.append(time.monotonic_ns() - began)
    return took


async def consume(settings: Settings) -> Outcome:
    """Consume and ack."""
    received = 0
    async with _client(settings, settings.window) as client:
        watch = Watch()
        async with client.subscribe(
            settings.stream,
            start=stan.StartAt.earliest(),
            manual_ack=True,
            max_in_flight=MAX_IN_FLIGHT,
        ) as messages:
            async for message in messages:
                await message.ack()
                received += 1
                if received == settings.expected:
                    break
            return watch.stop(settings.expected)


if __name__ == "__main__":
    main(
        "ours-stan",
        "liftbridge-aio",
        {
            "consume": lambda settings: asyncio.run(consume(settings)),
            "publish": lambda settings: asyncio.run(publish(settings)),
        },
    )
