"""A producer of single messages."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection

from liftbridge_aio import Client, LiftbridgeError, StartAt

from .program import PACE, SAFE, Orders, Program, Surroundings, new_client


class Producing(Program):
    """A producer of single messages, which are repeated until they are stored, and shown once."""

    hosts = ("producer", "counter")
    may_end_with = (LiftbridgeError,)
    target = "numbers"

    def __init__(self, world: Surroundings, orders: Orders) -> None:
        super().__init__(world, orders)
        self._stored: set[bytes] = set()
        self._tried = 0

    async def prepare(self, client: Client) -> None:
        """Create the stream of numbers."""
        await client.create_stream(self.target, replication_factor=3, options=SAFE)

    async def work(self, host: str) -> None:
        """Publish, or count."""
        async with new_client(self.world) as client:
            if host == self.hosts[0]:
                producer = client.producer()
                while True:
                    self._tried += 1
                    value = b"%d" % self._tried
                    await producer.publish(self.target, value)
                    self._stored.add(value)
                    await asyncio.sleep(PACE / 2)
            seen = self.seen = Counter()
            async with client.subscribe(
                self.target,
                partition=0,
                start=StartAt.earliest(),
                committed=True,
                resubscribe_timeout=None,
            ) as numbers:
                async for number in numbers:
                    seen[number.value] += 1
                    assert seen[number.value] == 1, f"{number} was shown twice"

    def missing(self) -> Collection[bytes]:
        """Return what was stored and not shown."""
        return self._stored - self.seen.keys()
