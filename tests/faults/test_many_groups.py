"""More groups on one client than can join, or take over partitions, in time at once."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Final

from liftbridge_aio import Client
from liftbridge_aio._core.log_position import LogPosition
from liftbridge_aio._subscribe.cursor_committer import LocatingStore
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.errors import ClientClosed, LiftbridgeError, RequestTimeout
from liftbridge_aio.groups.consumer_group import ConsumerGroup
from support.faults import eventually
from support.groups.group_watcher import holds

DATA_PATHS: Final = ["lane"]
AT_ONCE: Final = 32


async def test_the_timeout_of_a_group_begins_when_it_is_its_turn_to_join() -> None:
    async with EmbeddedBroker(cursors_partitions=1) as broker, Client(broker.address) as client:
        await client.create_stream("s")
        groups = [client.group(f"g{number}", ["s"], timeout=2) for number in range(AT_ONCE + 8)]
        late: list[LiftbridgeError] = []

        async def join(group: ConsumerGroup) -> None:
            try:
                async with group:
                    await holds(group, 1)
            except RequestTimeout as error:
                late.append(error)

        stalled = broker.faults.stall("JoinConsumerGroup", times=None)
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            for group in groups:
                tasks.create_task(join(group))
            await eventually(lambda: len(late) == AT_ONCE, 30)
            stalled.release()
        assert len(late) == AT_ONCE


async def test_a_group_that_is_closed_while_it_waits_for_its_turn_does_not_join() -> None:
    async with EmbeddedBroker(cursors_partitions=1) as broker, Client(broker.address) as client:
        await client.create_stream("s")
        stalled = broker.faults.stall("JoinConsumerGroup", times=None)
        groups = [client.group(f"g{number}", ["s"]) for number in range(AT_ONCE + 1)]
        async with asyncio.timeout(30):
            joining = [asyncio.create_task(group.__aenter__()) for group in groups]
            await eventually(lambda: stalled.applied == AT_ONCE)
            await groups[-1].aclose()
            stalled.release()
            *joined, last = await asyncio.gather(*joining, return_exceptions=True)
        assert joined == groups[:-1]
        assert isinstance(last, ClientClosed)
        await asyncio.gather(*(group.aclose() for group in groups))
        assert f"g{AT_ONCE}" not in (await client.fetch_metadata(groups=[f"g{AT_ONCE}"])).groups


class CountedLookups:
    """Positions of a client; counts how many are looked for at once, and keeps them waiting."""

    def __init__(self, positions: LocatingStore) -> None:
        self._positions = positions
        self.answers = asyncio.Event()
        self.answers.set()
        self.now = self.most = 0

    async def fetch(
        self, cursor_id: str, stream: str, partition: int, timeout: float, /
    ) -> int | None:
        """See `CursorStore`."""
        return await self._positions.fetch(cursor_id, stream, partition, timeout)

    async def locate(
        self, cursor_id: str, stream: str, partition: int, timeout: float, /
    ) -> LogPosition:
        """See `LocatingStore`."""
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.answers.wait()
            return await self._positions.locate(cursor_id, stream, partition, timeout)
        finally:
            self.now -= 1

    async def set(
        self, cursor_id: str, stream: str, partition: int, offset: int, timeout: float, /
    ) -> None:
        """See `CursorStore`."""
        await self._positions.set(cursor_id, stream, partition, offset, timeout)


async def test_groups_that_take_over_look_for_positions_some_at_a_time() -> None:
    async with (
        EmbeddedBroker(cursors_partitions=1) as broker,
        Client(broker.address) as one,
        Client(broker.address) as other,
        AsyncExitStack() as members,
        asyncio.timeout(60),
    ):
        await one.create_stream("s")
        parts = other._living
        lookups = CountedLookups(parts.cursors)
        owners = [one.group(f"g{n}", ["s"], consumer_id="a") for n in range(3 * AT_ONCE)]
        heirs = [
            ConsumerGroup(
                other.group(owner.group, ["s"], consumer_id="b")._plan,
                parts.network,
                lookups,
                parts.budget,
            )
            for owner in owners
        ]
        for each in (owners, heirs):
            await asyncio.gather(*(members.enter_async_context(member) for member in each))
        for owner in owners:
            await holds(owner, 1)
        lookups.most = 0
        lookups.answers.clear()
        epochs = [heir.epoch for heir in heirs]
        await asyncio.gather(*(owner.aclose() for owner in owners))
        await eventually(
            lambda: all(heir.epoch != epoch for heir, epoch in zip(heirs, epochs, strict=True)), 20
        )
        assert lookups.most == AT_ONCE
        lookups.answers.set()
        for heir in heirs:
            await holds(heir, 1)
