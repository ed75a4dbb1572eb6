"""Programs of a simulated world, and what must hold of all that they have seen."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from liftbridge_aio import (
    AckPolicy,
    Client,
    ClientOptions,
    LiftbridgeError,
    Message,
    PublishOutcomeUnknown,
    StartAt,
    StopAt,
    StreamOptions,
)
from liftbridge_aio.queue import Delivery, Order
from liftbridge_aio.testing import History, check_history

from .faults import inflict
from .world import PORT, World

STREAM: Final = "orders"
PARTITIONS: Final = 2
GROUP_HOSTS: Final = ("g1", "g2")
QUEUE_HOSTS: Final = ("q1", "q2")
CLIENT_HOSTS: Final = ("publisher", "reader", *GROUP_HOSTS, *QUEUE_HOSTS)
RECOVERED: Final = 40.0
"""Simulated seconds after the last fault within which everybody works again."""
SETTLED: Final = 5.0
"""Seconds after which a new leader knows what is committed, which "latest" stands for."""
PACE: Final = 0.2
"""Seconds between two messages of a publisher."""


class Load:
    """Publishers, a reader, the members of a group and of a queue, and what they have seen.

    Args:
        world: where they run.
        faults: seconds of faults.
    """

    def __init__(self, world: World, faults: float) -> None:
        self.world = world
        self.history = History(clock=lambda: world.now)
        self.acked: set[bytes] = set()
        self.by_reader: Counter[bytes] = Counter()
        self.by_group: Counter[bytes] = Counter()
        self.by_queue: Counter[bytes] = Counter()
        self._faults = faults
        self._stop = asyncio.Event()
        self._publishers = PARTITIONS
        """How many still publish; the others may end when there are none."""

    async def run(self) -> None:
        """Run all, inflict faults, then demand progress, and judge."""
        async with self._client() as client:
            options = StreamOptions(min_isr=2)
            await client.create_stream(
                STREAM, partitions=PARTITIONS, replication_factor=3, options=options
            )
            world = self.world
            working = {
                **{
                    world.on("publisher", self._publish(client, each)): f"publisher {each}"
                    for each in range(PARTITIONS)
                },
                world.on("reader", self._read()): "reader",
                **{world.on(each, self._work_in_group()): each for each in GROUP_HOSTS},
                **{world.on(each, self._work_in_queue()): each for each in QUEUE_HOSTS},
            }
            faults = await inflict(world, self._faults, CLIENT_HOSTS)
            self._stop.set()
            done, left = await asyncio.wait(working, timeout=RECOVERED)
            late = [working[task] for task in left]
            for task in left:
                task.cancel()
            for task in done:
                task.result()
            if left:
                await asyncio.wait(left)
                missing = {
                    "reader": sorted(self.acked - self.by_reader.keys())[:5],
                    "group": sorted(self.acked - self.by_group.keys())[:5],
                    "queue": sorted(self.acked - self.by_queue.keys())[:5],
                }
                text = (
                    f"{late} not done {RECOVERED:g} s after the last fault; {missing=}; {faults=}"
                )
                raise AssertionError(text)
            await asyncio.sleep(SETTLED)
            await self._read_out(client)
        self.judge()

    def judge(self) -> None:
        """Compare what was published with what was read and handled."""
        check_history(self.history).raise_for_defects()
        for name, handled in (("group", self.by_group), ("queue", self.by_queue)):
            missing = self.acked - handled.keys()
            assert not missing, f"{name} has not handled {sorted(missing)}"

    def _client(self) -> Client:
        options = ClientOptions(health_interval=1.0, health_timeout=1.5, publish_timeout=5.0)
        return Client(*(f"{each}:{PORT}" for each in self.world.broker_ids), options=options)

    async def _publish(self, client: Client, partition: int) -> None:
        number = 0
        while not self._stop.is_set():
            key = b"%d.%d" % (partition, number % 3)
            value = b"%b/%d" % (key, number)
            self.history.sent(value, partition, producer=f"p{partition}")
            try:
                await client.publish(
                    STREAM, value, key=key, partition=partition, ack_policy=AckPolicy.ALL
                )
            except PublishOutcomeUnknown:
                self.history.unknown(value, partition, producer=f"p{partition}")
            except LiftbridgeError:
                self.history.refused(value, partition, producer=f"p{partition}")
            else:
                self.history.acked(value, partition, producer=f"p{partition}")
                self.acked.add(value)
            number += 1
            await asyncio.sleep(PACE)
        self._publishers -= 1

    async def _read(self) -> None:
        """Read everything, resuming by itself, until all that was acked has come."""
        async with (
            self._client() as client,
            client.subscribe(
                STREAM,
                list(range(PARTITIONS)),
                start=StartAt.earliest(),
                resubscribe_timeout=None,
            ) as messages,
            asyncio.TaskGroup() as tasks,
        ):

            async def follow() -> None:
                async for message in messages:
                    self.history.delivered(message.value, message.partition, reader="live")
                    self.by_reader[message.value] += 1

            reading = tasks.create_task(follow())
            await self._all_came(self.by_reader)
            reading.cancel()

    async def _work_in_group(self) -> None:
        async with (
            self._client() as client,
            client.group("billing", [STREAM], start=StartAt.earliest()) as group,
            asyncio.TaskGroup() as tasks,
        ):

            async def handle(message: Message) -> None:
                self.by_group[message.value] += 1

            running = tasks.create_task(group.run(handle, concurrency=2, stop_on_signals=False))
            await self._all_came(self.by_group)
            running.cancel()

    async def _work_in_queue(self) -> None:
        async with (
            self._client() as client,
            client.queue(
                STREAM, group="shipping", start=StartAt.earliest(), order=Order.KEY, ack_wait=5.0
            ) as queue,
            asyncio.TaskGroup() as tasks,
        ):
            running = tasks.create_task(queue.run(self._ship, concurrency=4, stop_on_signals=False))
            await self._all_came(self.by_queue)
            running.cancel()

    async def _all_came(self, seen: Counter[bytes]) -> None:
        while self._publishers or not self.acked <= seen.keys():  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(0.1)

    async def _ship(self, delivery: Delivery) -> None:
        assert delivery.key is not None
        await asyncio.sleep(self.world.chance.uniform(0.0, 0.3))
        if self.world.chance.random() < 0.1:
            raise RuntimeError("refused once")
        self.by_queue[delivery.value] += 1

    async def _read_out(self, client: Client) -> None:
        for partition in range(PARTITIONS):
            async for message in client.subscribe(
                STREAM, partition, start=StartAt.earliest(), stop=StopAt.latest()
            ):
                self.history.delivered(message.value, partition, reader="at the end")
            self.history.finished(partition, reader="at the end")
