"""Queues: members that ack what they are handed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from liftbridge_aio import ConnectionFailed, Message, NotFound, NotGroupMember, RequestTimeout
from liftbridge_aio.queue import Delivery, Queue, QueueOptions, RetryStreams
from liftbridge_aio.queue.retry_tiers import tier_stream
from matrix.cells import ALL, GOES_ON, Cell
from matrix.operations import operation
from matrix.outside import HandlingMember, Member, last_to_read

TABLE: Final = "Queues"
WAIT: Final = 0.2
"""Seconds that messages wait in a retry stream."""


class QueueMember(Member):
    """A member of a queue."""

    def __init__(self, queue: Queue[Delivery]) -> None:
        super().__init__(queue._member)
        self.queue = queue

    async def next(self) -> Message:
        """Take the next delivery, and ack it."""
        delivery = await anext(self.queue)
        await delivery.ack()
        return delivery.message


class HandlingQueueMember(HandlingMember):
    """A member of a queue that is handed messages by `run`."""

    def __init__(self, queue: Queue[Delivery]) -> None:
        super().__init__(queue._member)
        self.queue = queue

    async def hand_on(self) -> None:
        await self.queue.run(lambda delivery: self.handed.put(delivery.message), concurrency=2)


@asynccontextmanager
async def entered(
    cell: Cell, group: str, nats: str | None = None, **options: Any
) -> AsyncIterator[Queue[Delivery]]:
    group = f"{cell.stream}-{group}"
    queue = cell.user.queue(cell.stream, group=group, options=QueueOptions(nats=nats, **options))
    await queue.__aenter__()
    try:
        yield queue
    finally:
        with suppress(NotGroupMember, ConnectionFailed, RequestTimeout):
            await queue.aclose()


@operation(TABLE, "a queue begins")
async def begin_queue(cell: Cell) -> str:
    async with entered(cell, "new") as queue:
        return await QueueMember(queue).share(cell, dict.fromkeys(cell.place.logs, 0))


async def go_on_in_queue(cell: Cell, *, unpause: bool = False) -> str:
    async with entered(cell, "old", unpause=unpause) as queue:
        one = QueueMember(queue)
        cell.begun.set()
        ends = dict(cell.place.ends)
        await one.take_all(last_to_read(cell))
        await cell.until_arisen()
        return await one.share(cell, ends)


operation(TABLE, "a queue in the middle", midway=True)(go_on_in_queue)
operation(TABLE, "queue in the middle, unpause=True", midway=True)(
    partial(go_on_in_queue, unpause=True)
)


class RetryingMember(QueueMember):
    """A member that takes each message when it comes again from the retry stream."""

    async def next(self) -> Message:
        """Nack new messages; take the next one that has waited."""
        while True:
            delivery = await anext(self.queue)
            if delivery.attempt > 1:
                await delivery.ack()
                stream, partition, offset = delivery.origin
                return replace(delivery.message, stream=stream, partition=partition, offset=offset)
            await delivery.nack()


@operation(TABLE, "its retry stream is deleted", midway=True, slow=True)
async def lose_retry_stream(cell: Cell) -> str:
    tiers: dict[str, Any] = {"retry_streams": RetryStreams((WAIT,)), "retry": WAIT, "resume": True}
    async with entered(cell, "retrying", **tiers) as queue:
        one = RetryingMember(queue)
        cell.begun.set()
        ends = dict(cell.place.ends)
        await one.take_all(last_to_read(cell))
        await cell.until_arisen()
        with suppress(NotFound):
            await cell.user.delete_stream(tier_stream(cell.stream, queue.group, WAIT))
        return await one.share(cell, ends)


@operation(TABLE, "queue run in the middle", midway=True)
async def run_queue(cell: Cell) -> str:
    async with entered(cell, "run") as queue:
        one = HandlingQueueMember(queue)
        async with one.running():
            cell.begun.set()
            ends = dict(cell.place.ends)
            await one.take_all(last_to_read(cell))
            await cell.until_arisen()
            return await one.share(cell, ends)


@operation(TABLE, "a queue goes on", midway=True)
async def queue_goes_on(cell: Cell) -> str:
    async with entered(cell, "left") as queue:
        cell.begun.set()
        ends = dict(cell.place.ends)
        await QueueMember(queue).take_all(last_to_read(cell))
    await cell.until_arisen()
    async with entered(cell, "left") as queue:
        return await QueueMember(queue).share(cell, ends)


class BorrowingMember(QueueMember):
    """A member that takes all: another one owns a partition, and leases it the messages."""

    def __init__(self, queue: Queue[Delivery], owner: Queue[Delivery]) -> None:
        super().__init__(queue)
        self.owner = owner

    async def next(self) -> Message:
        """Take the next new message: while partitions move, some come again."""
        while True:
            message = await super().next()
            if (message.partition, message.offset) not in self.found:
                return message

    async def share(self, cell: Cell, start: Mapping[int, int]) -> str:
        """Read on, and see that messages were leased, if there were any."""
        before = self.queue.statistics().borrowed
        result = await super().share(cell, start)
        leased = self.queue.statistics().borrowed - before
        if result in {ALL, GOES_ON} and self.owner.assignment and not leased:
            return f"{result}, without a lease"
        return result


@asynccontextmanager
async def borrowing(cell: Cell, group: str) -> AsyncIterator[BorrowingMember]:
    """Two members over NATS, one of which only owns and lends."""
    nats = cell.stage.world.nats_url
    async with entered(cell, group, nats) as owner, entered(cell, group, nats) as queue:
        yield BorrowingMember(queue, owner)


@operation(TABLE, "leases begin")
async def begin_leases(cell: Cell) -> str:
    async with borrowing(cell, "leased") as one:
        return await one.share(cell, dict.fromkeys(cell.place.logs, 0))


@operation(TABLE, "leases in the middle", midway=True, slow=True)
async def go_on_with_leases(cell: Cell) -> str:
    async with borrowing(cell, "lending") as one:
        cell.begun.set()
        ends = dict(cell.place.ends)
        await one.take_all(last_to_read(cell))
        await cell.until_arisen()
        return await one.share(cell, ends)
