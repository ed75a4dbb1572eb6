"""Closing a client of which everything is in use, whatever the servers do just then."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from liftbridge_aio import (
    Client,
    ClientOptions,
    LiftbridgeError,
    StartAt,
)
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.testing import FaultProxy
from support.faults import BOUND, QUICK, eventually, nothing_left_behind, within

EARLIEST: Final = StartAt.earliest()
CLOSE_TIMEOUT: Final = 0.5
SLACK: Final = 1.5
"""Seconds beyond that for tasks to end, on a loaded machine."""


class Load:
    """Everything at once, for as long as the client lets it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.steps: Counter[str] = Counter()
        self.tasks = [
            asyncio.create_task(self._until_closed(work), name=work.__name__)
            for work in (
                self.publish,
                self.publish_ahead,
                self.read_one,
                self.read_all,
                self.read_durably,
                self.read_as_member,
                self.store,
            )
        ]

    @property
    def running(self) -> bool:
        return len(self.steps) == len(self.tasks) and min(self.steps.values()) > 5

    async def _until_closed(self, work: Callable[[], Awaitable[object]]) -> None:
        """A failure of the link is no end: that is what the client is there for."""
        while "closed" not in repr(self._client):
            try:
                await work()
            except LiftbridgeError:
                await asyncio.sleep(0)

    async def publish(self) -> None:
        await self._client.publish("s", b"", partition=1)
        self.steps["publish"] += 1

    async def publish_ahead(self) -> None:
        (await self._client.publish_async("s", b"")).add_done_callback(_look)
        self.steps["publish_ahead"] += 1

    async def read_one(self) -> None:
        async for _ in self._client.subscribe("s", partition=0, start=EARLIEST):
            self.steps["read_one"] += 1

    async def read_all(self) -> None:
        async with self._client.subscribe("s", start=EARLIEST) as messages:
            async for batch in messages.batches(100):
                self.steps["read_all"] += len(batch)

    async def read_durably(self) -> None:
        async with self._client.subscribe("s", partition=1, start=EARLIEST, cursor="c") as messages:
            async for _ in messages:
                self.steps["read_durably"] += 1

    async def read_as_member(self) -> None:
        async with self._client.group("g", ["s"], start=EARLIEST, commit_interval=0.02) as group:
            async for _ in group:
                self.steps["read_as_member"] += 1

    async def store(self) -> None:
        for number in itertools.count():
            await self._client.set_cursor("d", "s", 0, number)
            self.steps["store"] += 1


def _look(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


@dataclass(slots=True)
class Place:
    """Sources of trouble."""

    broker: EmbeddedBroker
    proxy: FaultProxy


Trouble = Callable[[Place], Coroutine[Any, Any, None]]


async def nothing(_: Place) -> None:
    """All is well."""


async def links_break(place: Place) -> None:
    """Everything has just begun to connect again."""
    await place.proxy.cut()


async def nobody_listens(place: Place) -> None:
    await place.proxy.refuse()
    await place.proxy.cut()


async def server_dies(place: Place) -> None:
    await place.broker.stop()


async def black_hole(place: Place) -> None:
    place.proxy.freeze()


async def group_rebalances(place: Place) -> None:
    """Somebody joins, and has the right to half of it."""
    async with Client(place.broker.address) as other, other.group("g", ["s"]) as group:
        assert group.consumer_id


def open_descriptors() -> int:
    folder = Path("/proc/self/fd")  # Linux shows them here
    return len(list(folder.iterdir())) if folder.exists() else 0


@pytest.mark.parametrize(
    "trouble",
    [nothing, links_break, nobody_listens, server_dies, black_hole, group_rebalances],
    ids=lambda trouble: trouble.__name__,
)
async def test_closing_is_bounded_and_clean(trouble: Trouble) -> None:
    loop = asyncio.get_running_loop()
    descriptors = open_descriptors()
    async with nothing_left_behind():  # noqa: SIM117 - the servers have ended before it looks
        async with EmbeddedBroker() as broker, FaultProxy(broker.address) as proxy:
            threads = threading.active_count()
            options = ClientOptions(
                backoff=QUICK,
                max_in_flight=20,
                close_timeout=CLOSE_TIMEOUT,
                address_map=lambda _: proxy.address,
            )
            client = Client(proxy.address, options=options)
            await client.connect()
            await client.create_stream("s", partitions=2)
            load = Load(client)
            await eventually(lambda: load.running)
            troubling = asyncio.create_task(trouble(Place(broker, proxy)))
            if trouble is not group_rebalances:
                await troubling
            began = loop.time()
            async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
                for _ in range(2):
                    group.create_task(client.aclose())
            assert loop.time() - began < 2 * CLOSE_TIMEOUT + SLACK
            assert "closed" in repr(client)
            done, hanging = await asyncio.wait(load.tasks, timeout=2 * CLOSE_TIMEOUT + SLACK)
            assert not hanging, sorted(task.get_name() for task in hanging)
            assert [task for task in done if task.cancelled() or task.exception()] == []
            await within(BOUND, troubling)
            assert threading.active_count() == threads
    await eventually(lambda: open_descriptors() == descriptors)
