"""A broker whose host crashes with its disk starts again, and has a prefix of each log."""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from liftbridge_aio import Client, ClientOptions, StartAt, StopAt, StreamOptions
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.testing.simulation.world import PORT, World

from .disk import Disk

pytestmark = pytest.mark.virtual_time

SEEDS: Final = int(os.environ.get("LIFTBRIDGE_SEEDS", "12"))
LIVES: Final = 6
HOST: Final = "disk"
"""The host of the broker, which has a disk."""
PARTITIONS: Final = 2
SMALL: Final = StreamOptions(segment_max_bytes=2000)


class Disks:
    """A broker with a data directory, its clients, and what these know.

    Args:
        seed: decides everything.
        folder: the data directory.
    """

    def __init__(self, seed: int, folder: Path) -> None:
        self.world = World(seed, 1)
        self.chance = random.Random(f"{seed}:disks")
        self.disk = Disk(folder, self.chance)
        self.world.replaced += self.disk.stand_ins()
        self.broker = EmbeddedBroker(port=PORT, data_dir=folder)
        vars(self.broker)["_host"] = HOST
        self.sent: set[bytes] = set()
        self.acked: dict[tuple[str, int, int], bytes] = {}
        """What was acked, by stream, partition and offset."""
        self.streams: dict[str, None] = {}
        """Those that exist."""
        self.numbers = 0
        self.lost = 0
        """How many acked messages crashes have lost."""

    async def run(self) -> None:
        """Start it, use it, crash it, some times; everything is checked after each start."""
        self.world.net.host(HOST)
        for _ in range(LIVES):
            await self.world.on(HOST, self.broker.start())
            options = ClientOptions(health_interval=1.0, health_timeout=1.0)
            async with Client(f"{HOST}:{PORT}", options=options) as client:
                await self.check(client)
                using = asyncio.create_task(self.use(client))
                await asyncio.sleep(self.chance.uniform(0.0, 3.0))
                using.cancel()
                with suppress(asyncio.CancelledError):
                    await using
            self.disk.crash()
            await self.world.crash(HOST)
            await self.broker.stop()
            self.disk.restore()
            self.world.restart(HOST)
        await self.world.on(HOST, self.broker.start())
        async with Client(f"{HOST}:{PORT}") as client:
            await self.check(client)
            await self.publish(client, "s1" if "s1" in self.streams else "s0")
        await self.broker.stop()

    async def use(self, client: Client) -> None:
        """Create streams, delete some, publish."""
        while True:
            stream = f"s{self.chance.randrange(3)}"
            if stream not in self.streams:
                await client.create_stream(
                    stream, partitions=PARTITIONS, options=SMALL, exist_ok=True
                )
                self.streams[stream] = None
            elif self.chance.random() < 0.03:
                del self.streams[stream]
                self.acked = {at: each for at, each in self.acked.items() if at[0] != stream}
                await client.delete_stream(stream)
            else:
                await asyncio.gather(
                    *(self.publish(client, stream) for _ in range(self.chance.randint(1, 9)))
                )
                await asyncio.sleep(self.chance.uniform(0.0, 0.1))

    async def publish(self, client: Client, stream: str) -> None:
        """Publish a value that there is once."""
        self.numbers += 1
        value, partition = b"%d" % self.numbers * 20, self.chance.randrange(PARTITIONS)
        self.sent.add(value)
        ack = await client.publish(stream, value, partition=partition)
        self.acked[stream, partition, ack.offset] = value

    async def check(self, client: Client) -> None:
        """Check that logs are prefixes of what they were, and streams are as they were answered."""
        names = set((await client.fetch_metadata()).streams)
        assert names >= self.streams.keys(), f"streams are lost: {self.streams.keys() - names}"
        self.streams = dict.fromkeys(sorted(name for name in names if name.startswith("s")))
        for stream in self.streams:
            for partition in range(PARTITIONS):
                async with client.subscribe(
                    stream, partition=partition, start=StartAt.earliest(), stop=StopAt.latest()
                ) as messages:
                    found = [each async for each in messages]
                assert [each.offset for each in found] == [*range(len(found))]
                for each in found:
                    known = self.acked.get((stream, partition, each.offset), each.value)
                    assert known == each.value, f"{each} was acked as {known!r}"
                    assert each.value in self.sent, f"{each} was never sent"
                lost = [
                    at for at in self.acked if at[:2] == (stream, partition) and at[2] >= len(found)
                ]
                for at in lost:
                    self.acked.pop(at)
                self.lost += len(lost)


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_a_broker_survives_the_crash_of_its_disk(seed: int, tmp_path: Path) -> None:
    disks = Disks(seed, tmp_path / "data")
    disks.world.run(disks.run, 300.0)
