"""Ten members of a queue that come and go all the time, and what is handled meanwhile.

LIFTBRIDGE_STORM_SECONDS has it last longer than the seconds that it takes in CI.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter, defaultdict
from contextlib import AsyncExitStack, suppress
from typing import Final

import pytest

from liftbridge_aio import Client, RequestTimeout
from liftbridge_aio.queue import Delivery, Nack, Order, Queue, QueueOptions
from support.key_order import Step, out_of_order
from support.queues import after
from support.servers.node import Server

SECONDS: Final = float(os.environ.get("LIFTBRIDGE_STORM_SECONDS", "8"))
BOUND: Final = SECONDS + 100
MEMBERS: Final = 10
PARTITIONS: Final = 4
KEYS: Final = 16
CLIENTS: Final = 3


class Storm:
    """A queue whose members come and go, and a publisher."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.chance = random.Random(7)
        self.steps: list[Step] = []
        self.published: list[bytes] = []
        self.lives = 0
        self.is_over = False

    def queue(self, client: Client) -> Queue[Delivery]:
        return client.queue(
            self.stream,
            group=f"{self.stream}-workers",
            options=QueueOptions(
                order=Order.KEY, retry=after(0.05), max_attempts=0, commit_interval=0.2
            ),
        )

    async def handle(self, delivery: Delivery) -> None:
        self.steps.append(Step(delivery.value, ended=False))
        await asyncio.sleep(self.chance.random() / 100)
        if delivery.attempt == 1 and self.chance.random() < 0.1:
            raise Nack
        self.steps.append(Step(delivery.value, ended=True))

    async def come_and_go(self, client: Client) -> None:
        while not self.is_over:
            # Where the machine is busy, leaving may take longer: what was not stored comes again.
            with suppress(RequestTimeout):
                async with self.queue(client) as queue:
                    self.lives += 1
                    running = asyncio.create_task(queue.run(self.handle, concurrency=4))
                    await asyncio.wait([running], timeout=0.2 + 2 * self.chance.random())
                    if self.chance.random() < 0.3:
                        running.cancel()  # what its handlers had is delivered again
                        await asyncio.wait([running])
            if not running.cancelled():
                await running

    async def publish(self, client: Client) -> None:
        while not self.is_over:
            number = len(self.published)
            self.published.append(b"%d" % number)
            await client.publish(self.stream, self.published[-1], b"key %d" % (number % KEYS))
            await asyncio.sleep(0.002)

    async def drain(self, client: Client) -> None:
        """Handle what is left."""
        async with self.queue(client) as queue:
            running = asyncio.create_task(queue.run(self.handle))
            while not self.handled.keys() >= set(self.published):
                assert not running.done()
                await asyncio.sleep(0.05)
        await running

    @property
    def handled(self) -> Counter[bytes]:
        return Counter(step.value for step in self.steps if step.ended)


@pytest.mark.timeout(BOUND + 10)
async def test_members_that_come_and_go_lose_nothing_and_keep_the_order_of_keys(
    server: Server, client: Client, stream_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    storm = Storm(stream_name)
    await client.create_stream(stream_name, partitions=PARTITIONS)
    async with asyncio.timeout(BOUND), AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Client(server.address)) for _ in range(CLIENTS)]
        async with asyncio.TaskGroup() as tasks:
            for number in range(MEMBERS):
                tasks.create_task(storm.come_and_go(clients[number % CLIENTS]))
            tasks.create_task(storm.publish(client))
            await asyncio.sleep(SECONDS)
            storm.is_over = True
        await storm.drain(client)
        by_key: dict[bytes, list[bytes]] = defaultdict(list)
        async for message in client.read(stream_name):
            by_key[message.key].append(message.value)
    handled = storm.handled
    with capsys.disabled():
        print(  # noqa: T201 - a figure that is reported
            f"\n{len(handled)} messages, {storm.lives} lives of members in {SECONDS:g} s,"
            f" {handled.total() - len(handled)} handled again"
        )
    assert out_of_order(by_key, storm.steps) == []
