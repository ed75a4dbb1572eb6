"""Faults for so many seconds, and what came of them."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from chaos.stream_sum.judge import Sum, Verdict, judge, parse_chunk, parse_sum
from chaos.stream_sum.worker import (
    CHUNKS,
    ENTERED,
    EXACTLY_ONCE,
    PARTITIONS,
    SUMS,
    UNFENCED,
)
from liftbridge_aio import (
    Client,
    Isolation,
    LiftbridgeError,
    Message,
    StreamOptions,
)
from support.servers.cluster import Cluster
from support.servers.process import ServerProcess

TESTS: Final = Path(__file__).parents[2]
WITHIN: Final = 60.0
"""Seconds for a takeover, and for the sums to catch up in the end."""
_LOOK: Final = 0.1
_NODE_DOWN: Final = 3.0
_ZOMBIE: Final = 2.0


class StreamSum:
    """A run on a cluster.

    Args:
        cluster: whose nodes are killed and frozen.
        folder: for ledgers and logs of the workers.
        way: exactly once, plain, or without the fence.
        seed: chooses the faults.
        tell: takes a line for each fault.
    """

    def __init__(
        self, cluster: Cluster, folder: Path, way: str, seed: int, tell: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._folder = folder
        self._way = way
        self._chance = random.Random(seed)
        self._tell = tell
        self._workers = 0
        self._all: list[ServerProcess] = []
        self._zombies: list[ServerProcess] = []
        self._ledger = folder / "ledger"
        self.verdict = Verdict()

    async def run(self, seconds: float) -> Verdict:
        """Run for so many seconds, wait until all is summed up, and judge."""
        until = time.monotonic() + seconds
        servers = list(self._cluster.addresses.values())
        async with Client(*servers) as client:
            for stream in (CHUNKS, SUMS):
                await client.create_stream(
                    stream,
                    partitions=PARTITIONS,
                    replication_factor=len(servers),
                    options=StreamOptions(min_isr=min(2, len(servers))),
                    exist_ok=True,
                )
            try:
                self._chunker, self._summer = self._start("chunker"), self._start("summer")
                await self._play(until)
                await self._finish(client)
            finally:
                for worker in self._all:
                    await asyncio.to_thread(worker.kill)
        return self.verdict

    # Faults

    async def _play(self, until: float) -> None:
        faults: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("zombie", self._zombie),
            ("summer killed", self._kill_summer),
            ("server killed", self._kill_server),
            ("chunker killed", self._kill_chunker),
            ("summer killed", self._kill_summer),
            ("server stopped", self._freeze_server),
        ]
        if len(self._cluster.addresses) == 1:
            faults = [fault for fault in faults if "server" not in fault[0]]
        turn = faults[::-1]  # even a short run has the worst of them
        while time.monotonic() < until:
            await self._pause(self._chance.uniform(1.0, 3.0))
            if not turn:
                turn = self._chance.sample(faults, len(faults))
            name, fault = turn.pop()
            self.verdict.faults[name] += 1
            self._tell(f"{until - time.monotonic():6.1f} s left: {name}")
            await fault()

    async def _pause(self, seconds: float) -> None:
        """Wait; workers that have ended by an error meanwhile are started again."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await asyncio.sleep(_LOOK)
            if not self._summer.running:
                self._summer = self._start("summer")
            if not self._chunker.running:
                self._chunker = self._start("chunker")

    async def _kill_summer(self) -> None:
        await asyncio.to_thread(self._summer.kill)
        self._summer = self._start("summer")
        await self._pause(1)

    async def _kill_chunker(self) -> None:
        await asyncio.to_thread(self._chunker.kill)
        self._chunker = self._start("chunker")

    async def _zombie(self) -> None:
        """Stop the summer, let another one take over, and let the first go on."""
        zombie = self._summer
        if not await self._until(lambda: ENTERED in zombie.log or not zombie.running):
            self.verdict.failures.append("no summer was ready in time")
        await asyncio.to_thread(zombie.freeze)
        self._summer = self._start("summer")
        if not await self._until(lambda: ENTERED in self._summer.log):
            self.verdict.failures.append("no other summer took over in time")
        await self._pause(_ZOMBIE)
        zombie.thaw()
        self._zombies.append(zombie)

    async def _kill_server(self) -> None:
        node = self._chance.choice(sorted(self._cluster.addresses))
        await self._cluster.kill(node)
        await self._pause(_NODE_DOWN)
        await self._cluster.start(node)
        await self._pause(_NODE_DOWN)

    async def _freeze_server(self) -> None:
        node = self._chance.choice(sorted(self._cluster.addresses))
        await self._cluster.freeze(node)
        await self._pause(_NODE_DOWN)
        await self._cluster.thaw(node)
        await self._pause(_NODE_DOWN)

    # The end

    async def _finish(self, client: Client) -> None:
        # Only a summer that has something to sum up learns that another one took over.
        if self._way == EXACTLY_ONCE and not await self._until(self._zombies_fenced):
            self.verdict.failures.append("a summer that was stopped was not fenced off")
        await asyncio.to_thread(self._chunker.stop, WITHIN)
        until = time.monotonic() + WITHIN
        while True:
            chunks = await self._read(client, CHUNKS, _chunk, Isolation.READ_COMMITTED)
            sums = await self._read(client, SUMS, parse_sum, Isolation.READ_COMMITTED)
            caught_up = all(set(chunks[each]) <= set(sums[each]) for each in chunks)
            if self._way == UNFENCED:  # the zombie gets the time to do its harm
                caught_up &= any(len(each) > len(set(each)) for each in sums.values())
            if caught_up or time.monotonic() > until:
                break
            await self._pause_of_summer()
        raw = await self._read(client, CHUNKS, _chunk, Isolation.UNCOMMITTED)
        acked = [Sum(*json.loads(line)) for line in self._ledger.read_text().splitlines()]
        judge(self.verdict, acked, raw, chunks, sums)
        complaints = {
            line
            for worker in self._all
            for line in worker.log.splitlines()
            if "comes after" in line
        }
        self.verdict.failures += [f"the summer has seen {each}" for each in complaints]

    def _zombies_fenced(self) -> bool:
        return all(not each.running for each in self._zombies)

    async def _pause_of_summer(self) -> None:
        await asyncio.sleep(0.5)
        if not self._summer.running:
            self._summer = self._start("summer")

    async def _read(
        self, client: Client, stream: str, parse: Callable[[bytes], Sum], isolation: Isolation
    ) -> dict[int, list[Sum]]:
        """Read all partitions, however often the servers are not ready yet."""
        found: dict[int, list[Sum]] = {}
        until = time.monotonic() + WITHIN
        while True:
            try:
                for partition in range(PARTITIONS):
                    reading = client.read(stream, partition=partition, isolation=isolation)
                    found[partition] = [
                        parse(each.value) async for each in reading if _is_text(each)
                    ]
            except LiftbridgeError:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.5)
            else:
                return found

    async def _until(self, condition: Callable[[], bool]) -> bool:
        until = time.monotonic() + WITHIN
        while not condition():
            if time.monotonic() > until:
                return False
            await self._pause(_LOOK)
        return True

    def _start(self, role: str) -> ServerProcess:
        self._workers += 1
        servers = ",".join(self._cluster.addresses.values())
        words = (sys.executable, "-m", "chaos.stream_sum.worker", role, self._way)
        process = ServerProcess(
            (*words, servers, str(self._ledger)),
            self._folder,
            f"{role}-{self._workers}",
            {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])},
        )
        process.start()
        self._all.append(process)
        return process


def _is_text(message: Message) -> bool:
    """Return False for acks, which an uncommitted reading shows as well."""
    return message.value.startswith(b"[")


def _chunk(value: bytes) -> Sum:
    return parse_chunk(value)[0]


async def stream_sum(
    cluster: Cluster,
    seconds: float,
    seed: int,
    way: str = EXACTLY_ONCE,
    tell: Callable[[str], None] = print,
) -> Verdict:
    """Run stream-sum on a cluster for so many seconds, and judge it."""
    with tempfile.TemporaryDirectory(prefix="stream-sum-") as folder:
        return await StreamSum(cluster, Path(folder), way, seed, tell).run(seconds)
