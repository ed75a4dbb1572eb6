"""Run the scenario: orders in, invoices, totals and an archive out, while everything is killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow.dataset as ds

from liftbridge_aio import Client, Message, StartAt
from liftbridge_aio.errors import LiftbridgeError
from scenario.judge import KILLS, Found
from scenario.orders import (
    INVOICES,
    LAST,
    ORDERS,
    PARTITIONS,
    PLAIN_CURSOR,
    PLAIN_INVOICES,
    TOTALS,
    identity,
    last_order,
    total,
)
from scenario.processes import Child, Servers
from scenario.service import PATIENT, publish_orders, served

_BOUND: Final = 400.0
"""Seconds after which what is waited for has failed."""
_IN_A_CALL: Final = 500
_COMMITTED: Final = True


class Scenario:
    """One run.

    Args:
        servers: not started yet.
        folder: for everything that is written.
        count: orders, without the last one.
        log: called with a line about each step.
        kills: what is killed in each wave of orders.
    """

    def __init__(
        self,
        servers: Servers,
        folder: Path,
        count: int,
        log: Callable[[str], None],
        kills: tuple[str, ...] = KILLS,
    ) -> None:
        self._servers = servers
        self._folder = folder
        self._count = count
        self._log = log
        self._archive = folder / "archive"
        self._found = Found(count, kills)
        self._kills = kills
        self._invoices = 0
        self._followed: list[Message] = []
        self._grouped: list[Message] = []
        self._children: dict[str, Child] = {}
        self._batches_before = 0

    async def run(self) -> Found:
        """Run, and return what was found; everything that was started is ended."""
        started = time.monotonic()
        descriptors = _descriptors()
        try:
            await self._servers.start()
            self._log(f"servers on {', '.join(self._servers.addresses)}")
            async with Client(*self._servers.addresses, options=PATIENT) as client:
                for stream in (ORDERS, INVOICES, PLAIN_INVOICES):
                    await client.create_stream(stream, partitions=PARTITIONS)
                await client.create_stream(TOTALS)
                await self._play(client)
                await self._judge(client)
        finally:
            self._servers.stop()
        current = asyncio.current_task()
        await asyncio.sleep(0)
        self._found.tasks_left = len(asyncio.all_tasks() - {current})
        self._found.descriptors_left = max(_descriptors() - descriptors, 0)
        self._found.seconds = time.monotonic() - started
        return self._found

    async def _play(self, client: Client) -> None:
        addresses = ",".join(self._servers.addresses)
        words = {
            "worker": ("scenario.worker", addresses),
            "driver": ("scenario.driver", str(self._folder), addresses),
        }
        self._children = {name: Child(command, self._folder) for name, command in words.items()}
        endless: list[asyncio.Task[None]] = []
        async with asyncio.TaskGroup() as group:
            works = (
                self._count_invoices(client),
                self._follow(client),
                self._follow_in_group(client),
                self._watch_cursors(client),
                *(child.watch() for child in self._children.values()),
            )
            endless += map(group.create_task, works)
            async with served(self._servers.addresses, self._count) as post:
                for wave, victim in enumerate(self._kills):
                    await self._wave(client, post, wave, victim)
            async with client.producer() as producer:
                await producer.publish(ORDERS, last_order(), partition=0)
            self._log("all orders are published; waiting for the last totals and the archive")
            await self._until(lambda: self._totalled() >= self._count, "all orders are in totals")
            await self._until(lambda: self._rows() > self._count, "all invoices are archived")
            await self._until(
                lambda: len(self._grouped) >= len(self._followed), "the group is done"
            )
            for task in endless:
                task.cancel()

    async def _wave(
        self,
        client: Client,
        post: Callable[[list[int]], Awaitable[None]],
        wave: int,
        victim: str,
    ) -> None:
        """Publish a wave of orders, half of them through the service, and kill in its midst."""
        first, last = (self._count * (wave + each) // len(self._kills) for each in (0, 1))
        numbers = range(first, last)
        if victim == "driver":  # it is to have something that it could do twice
            await self._until(lambda: self._batches() > self._batches_before, "Spark works")
        async with client.producer() as producer, asyncio.TaskGroup() as group:
            group.create_task(self._kill(client, victim, first + len(numbers) // 4))
            for begin in range(first, last, _IN_A_CALL):
                part = list(range(begin, min(begin + _IN_A_CALL, last)))
                await post(part[::2])
                await publish_orders(producer, part[1::2], self._count)
        await self._until(lambda: self._invoices >= last, f"{last} invoices")
        self._log(f"wave {wave + 1}: {last:,} orders, {self._invoices:,} invoices; {victim} killed")

    async def _kill(self, client: Client, victim: str, invoices: int) -> None:
        await self._until(lambda: self._invoices >= invoices, f"{invoices} invoices")
        if victim == "leader":
            await self._servers.kill_leader(client)
        else:
            self._children[victim].kill()
        if victim == "driver":
            self._batches_before = self._batches()
        self._found.kills[victim] += 1

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _BOUND
        while not condition():
            if time.monotonic() > deadline:
                outputs = "\n".join(child.output for child in self._children.values())
                text = f"not within {_BOUND:g} s: {what} ({self._invoices} invoices,"
                text += f" {self._totalled()} in totals, {self._rows()} archived)\n{outputs}"
                raise TimeoutError(text)
            await asyncio.sleep(0.05)

    async def _count_invoices(self, client: Client) -> None:
        read = client.subscribe(INVOICES, start=StartAt.earliest(), committed=_COMMITTED)
        async for _ in read:
            self._invoices += 1

    async def _follow(self, client: Client) -> None:
        async for each in client.subscribe(
            TOTALS, partition=0, start=StartAt.earliest(), committed=_COMMITTED
        ):
            self._followed.append(each)

    async def _follow_in_group(self, client: Client) -> None:
        group = client.group("watchers", [TOTALS], start=StartAt.earliest(), committed=_COMMITTED)
        async with group:
            async for each in group:
                self._grouped.append(each)

    async def _watch_cursors(self, client: Client) -> None:
        """Count how often the cursors of the plain worker step back."""
        newest: dict[int, int] = {}
        while True:
            for partition in range(PARTITIONS):
                with suppress(LiftbridgeError):
                    position = await client.fetch_cursor(PLAIN_CURSOR, ORDERS, partition)
                    if position is not None:
                        self._found.cursor_steps_back += position < newest.get(partition, -1)
                        newest[partition] = position
            await asyncio.sleep(0.3)

    async def _judge(self, client: Client) -> None:
        found = self._found
        for stream, ids in (
            (ORDERS, found.orders),
            (INVOICES, found.invoices),
            (PLAIN_INVOICES, found.plain_invoices),
        ):
            async for each in client.read(stream, committed=_COMMITTED):
                ids.update([identity(each.value)])
        stored = [each async for each in client.read(TOTALS, partition=0, committed=_COMMITTED)]
        for each in stored:
            name, sales = total(each.value)
            found.totals[name] += 1
            found.totalled += sales
        found.archived.update(map(identity, self._archived()))
        found.followed_as_stored = [each.value for each in self._followed] == [
            each.value for each in stored
        ]
        found.group_got_all = {each.value for each in self._grouped} == {
            each.value for each in stored
        }
        for ids in (found.orders, found.invoices, found.plain_invoices, found.archived):
            ids.pop(LAST, None)

    def _totalled(self) -> int:
        return sum(total(each.value)[1] for each in self._followed)

    def _batches(self) -> int:
        """Return the number of batches that Spark has ended, of both queries."""
        return len(list(self._folder.glob("archive/_checkpoint/commits/[0-9]*"))) + len(
            list(self._folder.glob("totals/commits/[0-9]*"))
        )

    def _files(self) -> list[str]:
        return [str(file) for file in self._archive.glob("stream=*/date=*/batch=*/*.parquet")]

    def _rows(self) -> int:
        with suppress(OSError):  # a batch replaces its files right now
            return int(ds.dataset(self._files(), format="parquet").count_rows())
        return 0

    def _archived(self) -> list[bytes]:
        values = ds.dataset(self._files(), format="parquet").to_table(columns=["value"])
        return list(values.column("value").to_pylist())


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
