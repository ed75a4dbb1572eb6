"""Our client publishing at a fixed rate and reading what it has published."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from benchmarks.peers.measuring import WARM_UP, CallEnded, Outcome, Settings, Watch
from benchmarks.peers.pacing import apaced, stamp, stamped
from liftbridge_aio import Ack, Client, StartAt, Subscription


async def latency(client: Client, settings: Settings) -> Outcome:
    """Measure from when a message was due, to its ack and to its delivery.

    Messages become due at a fixed rate, however long acks take: a client that falls behind shows
    that in its latencies.
    """
    for _ in range(WARM_UP):
        await client.publish_async(settings.stream, settings.value)
    await client.flush()
    measuring = _Measuring(settings.due)
    async with client.subscribe(
        settings.stream, partition=0, start=StartAt.new_only()
    ) as delivered:
        watch = Watch()
        reader = asyncio.create_task(measuring.read(delivered))
        try:
            await measuring.publish(client, settings)
            await reader
        finally:
            reader.cancel()
        outcome = watch.stop(settings.due)
    outcome.errors = measuring.errors
    outcome.latencies = {
        "latency": measuring.deliveries,
        "ack_latency": measuring.acks,
        "delivery_latency": measuring.deliveries,
    }
    return outcome


class _Measuring:
    def __init__(self, due: int) -> None:
        self.left = due
        self.acks: list[int] = []
        self.deliveries: list[int] = []
        self.errors = 0

    async def publish(self, client: Client, settings: Settings) -> None:
        """Publish each message when it is due, and wait for the acks of all."""
        async for due in apaced(settings.rate, settings.due):
            value = stamped(due, settings.message_size)
            ack = await client.publish_async(settings.stream, value)
            ack.add_done_callback(partial(self._acked, due))
        await client.flush()

    def _acked(self, due: int, ack: asyncio.Future[Ack | None]) -> None:
        self.acks.append(time.monotonic_ns() - due)
        if ack.cancelled() or ack.exception() is not None:
            self.errors += 1

    async def read(self, messages: Subscription) -> None:
        """Take the messages as they are delivered, until all have come."""
        async for message in messages:
            self.deliveries.append(time.monotonic_ns() - stamp(message.value))
            self.left -= 1
            if not self.left:
                return
        raise CallEnded
