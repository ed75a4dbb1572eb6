"""Consumer groups."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import NoReturn

from liftbridge_aio import (
    AckPolicy,
    Client,
    GroupState,
    LiftbridgeError,
    Message,
    NotFound,
    StartAt,
)

from .program import OUTAGE, PACE, SAFE, STREAM, Orders, Program, Surroundings, new_client


class Grouping(Program):
    """Members of a consumer group."""

    hosts = ("g1", "g2", "g3")
    with_twins = hosts
    may_end_with = OUTAGE

    async def work(self, host: str) -> None:
        """Be a member."""

        async def handle(message: Message) -> None:
            await asyncio.sleep(self.world.chance.choice((0.0, 0.0, 0.1)))
            self.seen[message.value] += 1

        async with (
            new_client(self.world) as client,
            client.group(
                "billing", [STREAM], start=StartAt.earliest(), on_reset=self.on_reset
            ) as group,
        ):
            self.members[host] = group
            await group.run(handle, concurrency=2, stop_on_signals=False)


class Recreating(Program):
    """A group whose streams are deleted under it: one for ever, one is created again and longer."""

    hosts = ("operator", "c1", "c2")
    may_end_with = (LiftbridgeError,)
    target = "ledger"
    passing = "passing"

    def __init__(self, world: Surroundings, orders: Orders) -> None:
        super().__init__(world, orders)
        self._round = 0
        """How often the stream was created."""
        self._stored: set[bytes] = set()
        """What servers have stored in the stream that there is."""
        self._streams = [self.target, self.passing]

    async def prepare(self, client: Client) -> None:
        """Create the streams."""
        for stream in self._streams:
            await client.create_stream(stream, replication_factor=3, options=SAFE)

    async def work(self, host: str) -> None:
        """Delete, create and publish; or be a member."""
        async with new_client(self.world) as client:
            if host == self.hosts[0]:
                await self._operate(client)
            group = client.group(
                "clerks", self._streams, start=StartAt.earliest(), on_reset="start"
            )
            async with group:
                self.members[host] = group
                await group.run(self._handle, concurrency=2, stop_on_signals=False)

    async def _handle(self, message: Message) -> None:
        self.seen[message.value] += 1

    async def _operate(self, client: Client) -> NoReturn:
        while True:
            number = len(self._stored)
            if number >= 20 * (self._round + 1):
                await self._create_again(client)
                continue
            value = b"%d/%d" % (self._round, number)
            await client.publish(self.target, value, ack_policy=AckPolicy.ALL)
            self._stored.add(value)
            await asyncio.sleep(PACE)

    async def _create_again(self, client: Client) -> None:
        """Delete both streams the first time, and one from then on; it becomes longer each time."""
        self._round += 1
        self._stored = set()
        self._streams = [self.target]
        for stream in (self.target, self.passing):
            with suppress(NotFound):
                await client.delete_stream(stream)
        await client.create_stream(self.target, replication_factor=3, options=SAFE, exist_ok=True)

    def missing(self) -> Collection[bytes]:
        """Return what is stored and was not handled, and hosts whose member is out."""
        out = (host for host, each in self.members.items() if each.state is not GroupState.STABLE)
        return {*(self._stored - self.seen.keys()), *map(str.encode, out)}
