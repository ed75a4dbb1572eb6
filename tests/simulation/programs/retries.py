"""A queue whose messages wait in retry streams."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import ClassVar, Final, NoReturn

from liftbridge_aio import Client, LiftbridgeError, Message, NotFound, StartAt
from liftbridge_aio.queue import DeadLetter, Delivery, Nack, QueueOptions, RetryStreams

from .program import SAFE, STREAM, Orders, Program, Surroundings, new_client

TIERS: Final = (0.5, 3.0)
"""Seconds that messages wait in the retry streams."""
DELAYS: Final = (0.1, 0.5, 2.5)
"""Seconds after which a refused message is due: one waits in memory, the others in streams."""
ATTEMPTS: Final = 5
LETTERS: Final = "orders.failed"
TIERS_BY_STREAM: Final = {f"orders.retry.packing.{tier:g}s": tier for tier in TIERS}
DELETED: Final = [*TIERS_BY_STREAM][-1]


class Retrying(Program):
    """Members of a queue with retry streams; an operator deletes one of these now and then.

    Each order is packed, or is a dead letter after its attempts, however often it was moved. Only
    what waited in the deleted stream may be lost. No message comes before its delay is over.
    """

    hosts: ClassVar[tuple[str, ...]] = ("k1", "k2", "janitor", "collector")
    with_twins = ("k1", "k2")
    may_end_with = (LiftbridgeError,)

    def __init__(self, world: Surroundings, orders: Orders) -> None:
        super().__init__(world, orders)
        self._letters: dict[bytes, Message] = {}
        """The dead letters by value."""
        self._later: set[bytes] = set()
        """Values that were published for later, and stored."""
        self._sent: dict[bytes, float] = {}
        """When these were published."""
        self._number = 0
        """How many of these were tried."""
        self._faults: list[str] = []
        """What handlers have found wrong; their errors are attempts that failed."""
        self._moved: set[bytes] = set()
        """The values that may be in the stream that is deleted."""
        self._lost: set[bytes] = set()
        """Those of them that were there when it was deleted."""

    async def prepare(self, client: Client) -> None:
        """Create the stream of dead letters."""
        await client.create_stream(LETTERS, replication_factor=3, options=SAFE)

    async def work(self, host: str) -> None:
        """Be a member, the operator or the reader of dead letters."""
        async with new_client(self.world) as client:
            if host == "janitor":
                await self._delete(client)
            if host == "collector":
                await self._collect(client)
            queue = client.queue(
                STREAM,
                group="packing",
                options=QueueOptions(
                    ack_wait=5.0,
                    max_attempts=ATTEMPTS,
                    retry_streams=RetryStreams(TIERS),
                    dead_letter=DeadLetter(LETTERS),
                ),
            )
            async with queue, asyncio.TaskGroup() as tasks:
                self.members[host] = queue
                tasks.create_task(queue.run(self._pack, concurrency=4, stop_on_signals=False))
                while not self.orders.is_over:
                    await asyncio.sleep(2.0)
                    self._number += 1
                    value = b"later/%d" % self._number
                    self._sent[value] = self.world.now
                    await queue.publish_later(value, TIERS[0])
                    self._later.add(value)

    async def _delete(self, client: Client) -> NoReturn:
        while True:
            await asyncio.sleep(self.world.chance.uniform(5.0, 25.0))
            if self.orders.is_over:
                continue
            self._lost |= self._moved
            with suppress(NotFound):
                await client.delete_stream(DELETED)
            self._lost |= self._moved

    async def _collect(self, client: Client) -> None:
        async with client.subscribe(
            LETTERS, partition=0, start=StartAt.earliest(), resubscribe_timeout=None
        ) as letters:
            async for letter in letters:
                self._letters[letter.value] = letter

    async def _pack(self, delivery: Delivery) -> None:
        value, chance = delivery.value, self.world.chance
        self._check(delivery)
        await asyncio.sleep(chance.uniform(0.0, 0.2))
        if chance.random() < 0.3:
            delay = chance.choice(DELAYS)
            if delay > TIERS[0]:
                self._moved.add(value)
            raise Nack("refused", delay=delay)
        self._moved.discard(value)
        self.seen[value] += 1

    def _check(self, delivery: Delivery) -> None:
        """Note what must not be: too many attempts, a wrong origin, the end of a wait too soon."""
        waited = self.world.now - self._sent.get(delivery.value, -TIERS[0])
        # A clock that was wrong may let it come at any time, also later on: what a member has
        # learned of the time of a server counts until this is set back by more than has passed.
        if waited < TIERS[0] and self.world.clocks_were_right(since=0.0):
            self._faults.append(f"{delivery} waited {waited:.3f} s")
        if delivery.attempt > ATTEMPTS or delivery.origin.stream not in {STREAM, *TIERS_BY_STREAM}:
            self._faults.append(f"{delivery} of {delivery.origin}")

    def missing(self) -> Collection[bytes]:
        """Return what was neither packed nor given up, and hosts whose member is out."""
        missing = {*super().missing(), *(self._later - self.seen.keys())}
        return missing - self._letters.keys() - self._lost

    async def judge(self, client: Client) -> None:
        """Check that dead letters had all their attempts, and name where they come from."""
        assert not self._faults, self._faults[:5]
        for value, letter in self._letters.items():
            headers = letter.headers
            assert headers["queue-attempts"] == b"%d" % ATTEMPTS, headers
            assert headers["queue-group"] == b"packing", headers
            if value not in self._later and headers["queue-stream"] == STREAM.encode():
                partition, offset = (
                    int(headers[f"queue-{each}"]) for each in ("partition", "offset")
                )
                assert self.orders.log[partition][offset] == value, headers
