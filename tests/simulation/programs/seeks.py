"""A subscription that is paused and sought, and a reader that keeps its cursor by hand."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from liftbridge_aio import LiftbridgeError, MergedSubscription, StartAt, StopAt

from .program import PARTITIONS, STREAM, Orders, Program, Surroundings, new_client


class Seeking(Program):
    """A subscription of all partitions that is paused, resumed, and sought here and there.

    After a seek the message of that offset comes, then each that follows it. A paused partition
    delivers nothing. Each seek back to the unseen goes on, so everything is seen in the end.
    """

    hosts = ("seeker",)

    def __init__(self, world: Surroundings, orders: Orders) -> None:
        super().__init__(world, orders)
        self._unseen = dict.fromkeys(range(PARTITIONS), 0)
        """The offset of each partition up to which all was seen."""

    async def work(self, host: str) -> None:
        """Read, and do something else after some messages."""
        due = dict(self._unseen)
        async with (
            new_client(self.world) as client,
            client.subscribe(
                STREAM,
                partition=range(PARTITIONS),
                start={each: StartAt.offset(offset) for each, offset in due.items()},
                resubscribe_timeout=None,
            ) as messages,
            asyncio.TaskGroup() as tasks,
        ):
            async for message in messages:
                partition, offset = message.partition, message.offset
                assert offset == due[partition], f"{message}, not offset {due[partition]}"
                assert partition not in messages.paused, f"{message} of a paused partition"
                due[partition] += 1
                assert messages.positions[partition] == due[partition]
                self.seen[message.value] += 1
                if offset == self._unseen[partition]:
                    self._unseen[partition] += 1
                if self.world.chance.random() < 0.1:
                    await self._seek(messages, due)
                elif not messages.paused and self.world.chance.random() < 0.1:
                    messages.pause([partition])
                    tasks.create_task(self._resume_later(messages))

    async def _seek(self, messages: MergedSubscription, due: dict[int, int]) -> None:
        """Go to an offset that was seen, or back to where nothing was."""
        chance = self.world.chance
        for each, unseen in self._unseen.items():
            is_back = due[each] < unseen or not unseen
            due[each] = unseen if is_back or self.orders.is_over else chance.randrange(unseen)
        await messages.seek(dict(due))

    async def _resume_later(self, messages: MergedSubscription) -> None:
        await asyncio.sleep(self.world.chance.uniform(0.0, 3.0))
        messages.resume()


class Marking(Program):
    """A reader that keeps its position in a cursor by hand, and reads up to the newest each time.

    A cursor that was fetched is at or after the last one that was stored for sure, and not after
    what was read. So no life leaves out a message.
    """

    hosts = ("marker",)
    may_end_with = (LiftbridgeError,)

    def __init__(self, world: Surroundings, orders: Orders) -> None:
        super().__init__(world, orders)
        self._read: defaultdict[int, int] = defaultdict(lambda: -1)
        """The last offset of each partition that was read."""
        self._stored: defaultdict[int, int] = defaultdict(lambda: -1)
        """The last one that was stored for sure."""

    async def work(self, host: str) -> None:
        """Fetch, read on, store."""
        async with new_client(self.world) as client:
            while True:
                for partition in range(PARTITIONS):
                    sure = self._stored[partition]
                    at = await client.fetch_cursor("marks", STREAM, partition)
                    at = -1 if at is None else at
                    assert sure <= at <= self._read[partition], (sure, at, self._read[partition])
                    async with client.subscribe(
                        STREAM,
                        partition=partition,
                        start=StartAt.offset(at + 1),
                        stop=StopAt.latest(),
                    ) as messages:
                        async for message in messages:
                            at += 1
                            assert message.offset == at, f"{message}, not offset {at}"
                            self.seen[message.value] += 1
                            self._read[partition] = max(self._read[partition], at)
                    if at > sure:
                        await client.set_cursor("marks", STREAM, partition, at)
                        self._stored[partition] = at
                await asyncio.sleep(self.world.chance.uniform(0.0, 1.0))
