"""What readers of many partitions cost: fetches of metadata, whose answers list all of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest
from h2.stream import H2Stream

from liftbridge_aio import Client, ClientOptions, Hook, StartAt
from liftbridge_aio._runtime.supervisor import Child
from liftbridge_aio._subscribe.cursor_committer import CursorCommitter
from liftbridge_aio.broker import EmbeddedBroker, EmbeddedCluster
from liftbridge_aio.telemetry import MetadataRefreshed, Resubscribed, Subscribed
from support.faults import eventually
from support.virtual_time import IS_POSSIBLE

pytestmark = [
    pytest.mark.virtual_time,
    pytest.mark.skipif(not IS_POSSIBLE, reason="on a slow machine calls are repeated in real time"),
]

DATA_PATHS: Final = ["lane"]
PARTITIONS: Final = 160
STREAMS: Final = 12


class Fetches(Hook):
    """Counts the answers with metadata, and subscriptions."""

    def __init__(self) -> None:
        self.count = 0
        self.subscribed_to = 0
        self.resubscribed_to: set[int] = set()

    def metadata_refreshed(self, event: MetadataRefreshed) -> None:
        """See `Hook`."""
        del event
        self.count += 1

    def subscribed(self, event: Subscribed) -> None:
        """See `Hook`."""
        del event
        self.subscribed_to += 1

    def resubscribed(self, event: Resubscribed) -> None:
        """See `Hook`."""
        self.resubscribed_to.add(event.partition)


async def test_fetches_of_a_member_do_not_grow_with_its_partitions() -> None:
    fetches = Fetches()
    async with (
        EmbeddedBroker(cursors_partitions=1) as broker,
        Client(broker.address, options=ClientOptions(hook=fetches)) as client,
    ):
        await client.create_stream("s", partitions=PARTITIONS)
        fetches.count = 0
        async with asyncio.timeout(20), client.group("g", ["s"]):
            await eventually(lambda: fetches.subscribed_to == PARTITIONS, 30)
    assert fetches.count <= 8


async def test_a_durable_reader_fetches_metadata_once_for_all_positions() -> None:
    fetches = Fetches()
    async with (
        EmbeddedBroker(cursors_partitions=1) as broker,
        Client(broker.address, options=ClientOptions(hook=fetches)) as client,
    ):
        await client.create_stream("s", partitions=PARTITIONS)
        fetches.count = 0
        async with (
            asyncio.timeout(20),
            client.subscribe("s", start=StartAt.earliest(), cursor="c"),
        ):
            assert fetches.count <= 8


async def test_fetches_of_a_member_do_not_grow_with_its_streams() -> None:
    fetches = Fetches()
    async with (
        EmbeddedBroker(cursors_partitions=1) as broker,
        Client(broker.address, options=ClientOptions(hook=fetches)) as client,
    ):
        names = [f"s{number}" for number in range(STREAMS)]
        for name in names:
            await client.create_stream(name)
        await client.fetch_metadata()
        fetches.count = 0
        async with asyncio.timeout(20), client.group("g", names):
            await eventually(lambda: fetches.subscribed_to == STREAMS, 30)
    assert fetches.count <= 8


async def test_readers_that_lost_their_leader_look_for_it_together() -> None:
    fetches = Fetches()
    async with (
        EmbeddedCluster(3) as cluster,
        Client(*cluster.addresses, options=ClientOptions(hook=fetches)) as client,
    ):
        await client.create_stream("s", partitions=PARTITIONS, replication_factor=3)
        async with (
            asyncio.timeout(20),
            client.subscribe("s", start=StartAt.new_only()),
        ):
            fetches.count = 0
            await cluster.stop_node(cluster.leader_of("s"))

            await eventually(lambda: len(fetches.resubscribed_to) == PARTITIONS, 30)
            assert fetches.count <= 100


async def test_work_of_a_hand_over_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: Counter[str] = Counter()
    done, stored = Child.done.fget, CursorCommitter.stored.fget  # type: ignore[attr-defined]

    def look(name: str, get: Callable[[Any], object]) -> property:
        def count(owner: object) -> object:
            looks[name] += 1
            return get(owner)

        return property(count)

    monkeypatch.setattr(Child, "done", look("tasks", done))
    monkeypatch.setattr(CursorCommitter, "stored", look("all positions", stored))
    async with (
        EmbeddedBroker(cursors_partitions=1) as broker,
        Client(broker.address) as client,
        Client(broker.address) as other,
    ):
        await client.create_stream("s", partitions=PARTITIONS)
        async with (
            asyncio.timeout(40),
            client.group("g", ["s"]) as first,
            other.group("g", ["s"]) as second,
        ):
            await eventually(lambda: len(second.assignment) == PARTITIONS // 2, 30)
            await eventually(lambda: len(first.assignment) == PARTITIONS // 2, 30)
    assert looks["tasks"] <= 3 * PARTITIONS
    assert looks["all positions"] == 0


async def test_clients_that_started_together_refresh_apart() -> None:
    loop = asyncio.get_running_loop()
    times: list[float] = []

    class Times(Hook):
        def metadata_refreshed(self, event: MetadataRefreshed) -> None:
            """See `Hook`."""
            del event
            times.append(loop.time())

    async with EmbeddedBroker() as broker, AsyncExitStack() as stack:
        for _ in range(20):
            options = ClientOptions(hook=Times())
            await stack.enter_async_context(Client(broker.address, options=options))
        times.clear()
        await asyncio.sleep(300.0)
    assert len(times) >= 20
    assert max(times[:20]) - min(times[:20]) > 60.0


async def test_opening_a_call_does_not_go_through_all_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0
    is_open = H2Stream.open.fget  # type: ignore[attr-defined]

    def look(stream: H2Stream) -> bool:
        nonlocal looks
        looks += 1
        return bool(is_open(stream))

    monkeypatch.setattr(H2Stream, "open", property(look))
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        await client.create_stream("s", partitions=3 * PARTITIONS)
        async with (
            asyncio.timeout(40),
            client.subscribe("s", start=StartAt.earliest()),
        ):
            pass
    # Until the broker has announced its limit, h2 knows one of 100 and counts up to it.
    assert looks <= 100 * 3 * PARTITIONS
