"""A queue that delivers in the order of keys."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection
from typing import ClassVar, Final

from liftbridge_aio import Client, StartAt
from liftbridge_aio.queue import DeadLetter, Delivery, Exponential, Order, QueueOptions
from support.key_order import Step, out_of_order

from .program import OUTAGE, SAFE, STREAM, Orders, Program, Surroundings, new_client

POISON: Final = 0.03
"""The part of the messages that no handler of the queue can handle."""


class Queueing(Program):
    """Members of a queue: order by key, failures, handlers that hang, dead letters.

    A reader follows the dead letters.
    """

    hosts: ClassVar[tuple[str, ...]] = ("q1", "q2", "undertaker")
    with_twins: ClassVar[tuple[str, ...]] = ("q1", "q2")
    may_end_with = OUTAGE
    group = "shipping"
    concurrency = 4
    letters = "orders.dead"

    def __init__(self, world: Surroundings, orders: Orders) -> None:
        super().__init__(world, orders)
        self._steps: list[Step] = []
        """What handlers did, in their order."""
        self._letters: set[bytes] = set()
        """The values of the dead letters."""

    @property
    def nats(self) -> str | None:
        """The NATS server over which members share partitions."""
        return None

    async def prepare(self, client: Client) -> None:
        """Create the stream of dead letters."""
        await client.create_stream(self.letters, replication_factor=3, options=SAFE)

    async def work(self, host: str) -> None:
        """Be a member, or read dead letters."""
        async with new_client(self.world) as client:
            if host == self.hosts[-1]:
                async with client.subscribe(
                    self.letters, partition=0, start=StartAt.earliest(), resubscribe_timeout=None
                ) as letters:
                    async for letter in letters:
                        self._letters.add(letter.value)
            async with client.queue(
                STREAM,
                group=self.group,
                options=QueueOptions(
                    order=Order.KEY,
                    ack_wait=5.0,
                    retry=Exponential(0.1, max=2.0),
                    max_attempts=0,
                    dead_letter=DeadLetter(self.letters),
                    on_reset=self.on_reset,
                    nats=self.nats,
                ),
            ) as queue:
                self.members[host] = queue
                await queue.run(self.ship, concurrency=self.concurrency, stop_on_signals=False)

    async def ship(self, delivery: Delivery) -> None:
        """Handle a message, now and then too late or not at all."""
        chance = self.world.chance
        self._steps.append(Step(delivery.value, ended=False))
        await asyncio.sleep(chance.uniform(0.0, 0.3))
        if self.is_poison(delivery.value):
            self._steps.append(Step(delivery.value, ended=True))
            await delivery.reject("it cannot be shipped")
            return
        if chance.random() < 0.1:
            raise RuntimeError("refused once")
        if chance.random() < 0.01:
            await asyncio.sleep(60)  # until ack_wait is over
        self.seen[delivery.value] += 1
        self._steps.append(Step(delivery.value, ended=True))

    def missing(self) -> Collection[bytes]:
        """Return acked messages that were neither shipped nor dead-lettered, and hosts as usual."""
        letters = self._letters | self.orders.losses.excused(self.letters)
        return {
            each for each in super().missing() if not self.is_poison(each) or each not in letters
        }

    async def judge(self, client: Client) -> None:
        """Check the order of each key, and that only poisonous messages became dead letters."""
        excused = self.orders.losses.excused(STREAM)
        by_key: dict[bytes, list[bytes]] = defaultdict(list)
        for log in self.orders.log.values():
            for _, value in sorted(log.items()):
                if value not in excused:
                    by_key[value.rpartition(b"/")[0]].append(value)
        wrong = out_of_order(by_key, self._steps)
        assert not wrong, wrong[:5]
        assert all(map(self.is_poison, self._letters))

    @staticmethod
    def is_poison(value: bytes) -> bool:
        """Return True for a message that becomes a dead letter."""
        number = value.rpartition(b"/")[2]
        return number.isdigit() and int(number) % round(1 / POISON) == 1
