"""Subscriptions to the orders."""

from __future__ import annotations

import asyncio

from liftbridge_aio import StartAt

from .program import PARTITIONS, STREAM, Orders, Program, Surroundings, new_client


class Reading(Program):
    """A subscription that resumes by itself, from the earliest message on in each life."""

    hosts = ("reader",)

    def __init__(self, world: Surroundings, orders: Orders) -> None:
        super().__init__(world, orders)
        self._lives = 0

    async def work(self, host: str) -> None:
        """Read everything."""
        self._lives += 1
        reader = f"live {self._lives}"
        self.seen.clear()
        async with (
            new_client(self.world) as client,
            client.subscribe(
                STREAM, start=StartAt.earliest(), resubscribe_timeout=None
            ) as messages,
        ):
            async for message in messages:
                self.orders.history.delivered(
                    message.value, message.partition, reader=reader, offset=message.offset
                )
                self.seen[message.value] += 1


class DurableReading(Program):
    """A subscription whose position is in cursors: each life goes on where the last one stopped."""

    hosts = ("durable",)

    async def work(self, host: str) -> None:
        """Read on."""
        async with (
            new_client(self.world) as client,
            client.subscribe(
                STREAM,
                start=StartAt.earliest(),
                cursor="audit",
                cursor_interval=1.0,
                resubscribe_timeout=None,
            ) as messages,
        ):
            last = dict.fromkeys(range(PARTITIONS), -1)
            async for message in messages:
                assert message.offset > last[message.partition], message
                last[message.partition] = message.offset
                await asyncio.sleep(self.world.chance.choice((0.0, 0.05, 0.2)))
                self.seen[message.value] += 1
