"""Exactly once, with a producer or a queue, and a committed reader of the results."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import ClassVar

from liftbridge_aio import Client, Message, StartAt
from liftbridge_aio.queue import Delivery, Queue, QueueOptions
from liftbridge_aio.transactions import (
    CheckpointStream,
    CommitInDoubt,
    TransactionAborted,
    TransactionError,
)
from support.queues import after

from .program import OUTAGE, PARTITIONS, SAFE, STREAM, Program, new_client


class Invoicing(Program):
    """Reads, processes and writes exactly once, with a producer and its store.

    A committed reader follows the results.
    """

    hosts: ClassVar[tuple[str, ...]] = ("invoicer", "auditor")
    with_twins: ClassVar[tuple[str, ...]] = ("invoicer",)
    may_end_with = (TransactionError, *OUTAGE)
    target = "invoices"
    is_ordered = True
    """Whether the results of a key are in the order of its messages."""

    async def prepare(self, client: Client) -> None:
        """Create the stream of results."""
        await client.create_stream(
            self.target, partitions=PARTITIONS, replication_factor=3, options=SAFE
        )

    async def work(self, host: str) -> None:
        """Produce, or follow."""
        async with new_client(self.world) as client:
            if host == self.hosts[-1]:
                await self._follow(client)
            else:
                await self._produce(client, host)

    async def _follow(self, client: Client) -> None:
        self.seen.clear()
        async with client.subscribe(
            self.target,
            start=StartAt.earliest(),
            committed=True,
            resubscribe_timeout=None,
        ) as results:
            async for result in results:
                self.seen[result.value] += 1
                assert self.seen[result.value] == 1, f"{result} was committed twice"

    async def _produce(self, client: Client, host: str) -> None:
        """Read on where the store says, and write an invoice for each order."""
        async with (
            client.producer("invoicer", store=CheckpointStream("checkpoints")) as producer,
            client.subscribe(
                STREAM,
                start=StartAt.earliest(),
                positions=producer,
                resubscribe_timeout=None,
            ) as orders,
        ):
            async for batch in orders.batches(max_size=100, wait=0.5):
                try:
                    async with producer.transaction(orders) as txn:
                        for order in batch:
                            await txn.publish(self.target, order.value, key=order.key)
                except TransactionAborted:
                    continue  # the same messages come again

    async def judge(self, client: Client) -> None:
        """Check that committed readers see each order once, wherever they start."""
        found = [await self._committed(client, each) for each in range(PARTITIONS)]
        values = Counter(each.value for messages in found for each in messages)
        doubled = [value for value, count in values.items() if count > 1]
        assert not doubled, f"{self.target}: committed twice: {doubled}"
        ordered = {value for log in self.orders.log.values() for value in log.values()}
        lost, invented = self.orders.acked - values.keys(), values.keys() - ordered
        assert not lost, f"{self.target}: lost: {sorted(lost)[:5]}"
        assert not invented, f"{self.target}: of no order: {sorted(invented)[:5]}"
        places = {value: at for log in self.orders.log.values() for at, value in log.items()}
        for partition, messages in enumerate(found):
            by_key: defaultdict[bytes, list[int]] = defaultdict(list)
            for message in messages if self.is_ordered else ():
                by_key[message.key].append(places[message.value])
            assert all(each == sorted(each) for each in by_key.values()), "in another order"
            if not messages:
                continue
            start = self.world.chance.randrange(messages[-1].offset + 1)
            rest = await self._committed(client, partition, start)
            expected = [each.value for each in messages[len(messages) - len(rest) :]]
            assert [each.value for each in rest] == expected, f"from offset {start}"

    async def _committed(self, client: Client, partition: int, start: int = 0) -> list[Message]:
        reading = client.read(
            self.target,
            start=StartAt.offset(start),
            partition=partition,
            committed=True,
        )
        async with reading as messages:
            return [each async for each in messages]


class Receipting(Invoicing):
    """A queue whose deliveries are acked together with their results."""

    hosts = ("r1", "r2", "accountant")
    with_twins = ("r1", "r2")
    target = "receipts"
    is_ordered = False

    async def _produce(self, client: Client, host: str) -> None:
        """Be a member."""
        async with (
            client.queue(
                STREAM, group="receipts", options=QueueOptions(ack_wait=5.0, retry=after(0.2))
            ) as queue,
            asyncio.TaskGroup() as tasks,
        ):
            self.members[host] = queue
            for _ in range(3):
                tasks.create_task(self._write(queue))

    async def _write(self, queue: Queue[Delivery]) -> None:
        async for delivery in queue:
            try:
                async with delivery, delivery.transaction() as transaction:
                    await transaction.publish(self.target, delivery.value, key=delivery.key)
            except CommitInDoubt:
                continue  # the queue goes on with it
