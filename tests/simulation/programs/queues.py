"""A queue that delivers in the order of keys."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection
from typing import Final

from liftbridge_aio import Client, StartAt
from liftbridge_aio.queue import DeadLetter, Delivery, Exponential, Order
from liftbridge_aio.testing.simulation.world import World

from .program import OUTAGE, SAFE, STREAM, Orders, Program, new_client

POISON: Final = 0.03
"""The part of the messages that no handler of the queue can handle."""


class Queueing(Program):
    """Members of a queue: order by key, failures, handlers that hang, dead letters.

    A reader follows the dead letters.
    """

    hosts = ("q1", "q2", "undertaker")
    with_twins = ("q1", "q2")
    may_end_with = OUTAGE

    def __init__(self, world: World, orders: Orders) -> None:
        super().__init__(world, orders)
        self._order: dict[bytes, dict[bytes, None]] = defaultdict(dict)
        """The values of each key, in the order of their first success."""
        self._letters: set[bytes] = set()
        """The values of the dead letters."""

    async def prepare(self, client: Client) -> None:
        """Create the stream of dead letters."""
        await client.create_stream("orders.dead", replication_factor=3, options=SAFE)

    async def work(self, host: str) -> None:
        """Be a member, or read dead letters."""
        async with new_client(self.world) as client:
            if host == self.hosts[-1]:
                async with client.subscribe(
                    "orders.dead", 0, StartAt.earliest(), resubscribe_timeout=None
                ) as letters:
                    async for letter in letters:
                        self._letters.add(letter.value)
            async with client.queue(
                STREAM,
                group="shipping",
                start=StartAt.earliest(),
                order=Order.KEY,
                ack_wait=5.0,
                retry=Exponential(0.1, max=2.0),
                max_attempts=0,
                dead_letter=DeadLetter("orders.dead"),
                on_reset=self.on_reset,
            ) as queue:
                self.members[host] = queue
                await queue.run(self._ship, concurrency=4, stop_on_signals=False)

    async def _ship(self, delivery: Delivery) -> None:
        assert delivery.key is not None
        chance = self.world.chance
        await asyncio.sleep(chance.uniform(0.0, 0.3))
        if self.is_poison(delivery.value):
            await delivery.reject("it cannot be shipped")
            return
        if chance.random() < 0.1:
            raise RuntimeError("refused once")
        if chance.random() < 0.01:
            await asyncio.sleep(60)  # until ack_wait is over
        self.seen[delivery.value] += 1
        self._order[delivery.key][delivery.value] = None

    @staticmethod
    def is_poison(value: bytes) -> bool:
        """Return True for a message that becomes a dead letter."""
        number = value.rpartition(b"/")[2]
        return number.isdigit() and int(number) % round(1 / POISON) == 1

    def missing(self) -> Collection[bytes]:
        """Return acked messages that were neither shipped nor dead-lettered, and hosts as usual."""
        letters = self._letters | self.orders.excused("orders.dead")
        return {
            each for each in super().missing() if not self.is_poison(each) or each not in letters
        }

    async def judge(self, client: Client) -> None:
        """Check the order of each key, and that only poisonous messages became dead letters."""
        excused = self.orders.excused()
        for partition, log in self.orders.log.items():
            offsets = {value: at for at, value in sorted(log.items(), reverse=True)}
            for key, shipped in self._order.items():
                if key.startswith(b"%d." % partition):
                    first = [offsets[value] for value in shipped if value not in excused]
                    assert first == sorted(first), (
                        f"key {key!r} was shipped in another order: {first}"
                    )
        assert all(map(self.is_poison, self._letters))
