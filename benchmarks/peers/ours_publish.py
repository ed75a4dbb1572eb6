"""Our client publishing as fast as it can."""

from __future__ import annotations

import time

from benchmarks.peers.measuring import WARM_UP, Outcome, Settings, Watch
from liftbridge_aio import AckPolicy, Client, LiftbridgeError
from liftbridge_aio.model import Acked


async def publish(client: Client, settings: Settings) -> Outcome:
    """Publish to all partitions in turn, and wait for every ack; the client keeps the window."""
    one_by_one = settings.window == 1 and settings.ack_policy != "none"
    await _windowed(client, settings, WARM_UP)
    watch = Watch()
    if one_by_one:
        took = await _one_by_one(client, settings)
        outcome = watch.stop(settings.messages)
        outcome.latencies["latency"] = took
        return outcome
    failed = await _windowed(client, settings, settings.messages)
    outcome = watch.stop(settings.messages)
    outcome.errors = int(failed)
    return outcome


async def _windowed(client: Client, settings: Settings, messages: int) -> bool:
    """Publish and wait for what is on its way; whether anything failed."""
    stream, value, partitions = settings.stream, settings.value, settings.partitions
    policy = AckPolicy[settings.ack_policy.upper()]
    for number in range(messages):
        await client.publish_async(stream, value, partition=number % partitions, ack_policy=policy)
    try:
        await client.flush()
    except LiftbridgeError:
        return True
    return False


async def _one_by_one(client: Client, settings: Settings) -> list[int]:
    """Publish, wait for the ack, publish the next; the nanoseconds of each."""
    stream, value, partitions = settings.stream, settings.value, settings.partitions
    policy: Acked = AckPolicy.ALL if settings.ack_policy == "all" else AckPolicy.LEADER
    took = []
    for number in range(settings.messages):
        began = time.monotonic_ns()
        await client.publish(stream, value, partition=number % partitions, ack_policy=policy)
        took.append(time.monotonic_ns() - began)
    return took
