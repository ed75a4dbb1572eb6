"""Handlers of members that come, go, are expelled, and whose server dies: nothing is lost."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from liftbridge_aio import Client, ClientOptions, ConsumerGroup, Message, NotGroupMember, Retry
from liftbridge_aio.broker import EmbeddedBroker
from support.faults import QUICK
from support.groups.group_calls import Group
from support.groups.group_watcher import (
    EARLIEST,
    GroupWatcher,
    cursor,
    holds,
    it_is,
    publish,
    shared,
)
from support.marks import ON_ONE_PATH
from support.raw import BOUND, Wire, eventually
from support.servers.node import LiftbridgeNode

pytestmark = ON_ONE_PATH

COUNT = 40
PARTITIONS = 4


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker(
        cursors_partitions=3, consumer_timeout=2, coordinator_timeout=1
    ) as broker:
        yield broker


@pytest.fixture
async def client(broker: EmbeddedBroker) -> AsyncIterator[Client]:
    """A client, and a stream "s" with messages in all partitions."""
    options = ClientOptions(backoff=QUICK)
    async with Client(broker.address, options=options) as client:
        await client.create_stream("s", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            await publish(client, "s", partition, COUNT)
        yield client


class Log:
    """The handler runs of all members, in the order of their ends."""

    def __init__(self) -> None:
        self.handled: dict[int, list[tuple[str, int]]] = defaultdict(list)
        self.running: set[tuple[str, int]] = set()

    async def handle(self, member: str, message: Message, seconds: float) -> None:
        place = member, message.partition
        assert place not in self.running, "two calls for one partition in a member"
        self.running.add(place)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.running.remove(place)
        self.handled[message.partition].append((member, message.offset))

    @property
    def members(self) -> set[str]:
        return {member for handled in self.handled.values() for member, _ in handled}

    def has_all(self, count: int = COUNT) -> bool:
        return all(
            {offset for _, offset in self.handled[partition]} == set(range(count))
            for partition in range(PARTITIONS)
        )

    def repeats(self) -> int:
        """Count the messages that were handled more than once."""
        return sum(
            len(handled) - len({offset for _, offset in handled})
            for handled in self.handled.values()
        )

    def check_order(self) -> None:
        """Each member handles a partition in order; it may begin anew when it gets it back."""
        for handled in self.handled.values():
            for member in {member for member, _ in handled}:
                offsets = [offset for one, offset in handled if one == member]
                assert offsets == sorted(offsets), (member, offsets)


@asynccontextmanager
async def working(group: ConsumerGroup, log: Log, name: str, seconds: float) -> AsyncIterator[None]:
    """Run a handler that takes so many seconds."""
    task = asyncio.create_task(
        group.run(lambda message: log.handle(name, message, seconds), concurrency=PARTITIONS)
    )
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_slow_handlers_while_a_member_joins_and_leaves(client: Client) -> None:
    log = Log()
    async with client.group("g", ["s"], start=EARLIEST, commit_interval=60) as first:
        await holds(first, PARTITIONS)
        async with working(first, log, "first", 0.03):
            await eventually(it_is(lambda: len(log.handled) == PARTITIONS))
            async with (
                client.group("g", ["s"], start=EARLIEST, commit_interval=60) as second,
                working(second, log, "second", 0.03),
            ):
                await shared([first, second], {2})
                await eventually(it_is(lambda: log.members == {"first", "second"}))
            await holds(first, PARTITIONS)
            await eventually(it_is(log.has_all))
    log.check_order()
    # Of each partition that moved, the message in hand at most.
    assert log.repeats() <= 2 * PARTITIONS
    assert [await cursor(client, "g", "s", one) for one in range(PARTITIONS)] == [COUNT - 1] * 4


async def test_a_revoked_partition_waits_for_its_handler(client: Client) -> None:
    """It is committed behind it; `on_revoked` is called after it."""
    log, told, ends = Log(), list[object](), asyncio.Event()

    async def hang(message: Message) -> None:
        await ends.wait()
        await log.handle("first", message, 0)

    def on_revoked(partitions: frozenset[object]) -> None:
        told.append((set(partitions), sum(map(len, log.handled.values()))))

    group = client.group("g", ["s"], start=EARLIEST, commit_interval=60, on_revoked=on_revoked)
    async with group:
        task = asyncio.create_task(group.run(hang, concurrency=PARTITIONS))
        await eventually(it_is(lambda: len(group._readers._turns) == PARTITIONS))
        closing = asyncio.create_task(group.aclose())
        await eventually(it_is(lambda: not group._readers.merge.readers))
        assert not told
        ends.set()
        async with asyncio.timeout(BOUND):
            await closing
            await task
    assert told == [({("s", one) for one in range(PARTITIONS)}, PARTITIONS)]
    assert [await cursor(client, "g", "s", one) for one in range(PARTITIONS)] == [0] * PARTITIONS


async def test_closing_does_not_wait_for_ever_for_a_handler(broker: EmbeddedBroker) -> None:
    async with Client(broker.address, options=ClientOptions(close_timeout=0.8)) as client:
        await client.create_stream("s", partitions=2)
        await publish(client, "s", 0)
        await publish(client, "s", 1, 2)
        ends, done = asyncio.Event(), list[int]()

        async def handle(message: Message) -> None:
            if message.partition == 0:
                await ends.wait()
            done.append(message.partition)

        group = client.group("g", ["s"], start=EARLIEST, commit_interval=60)
        await group.__aenter__()
        task = asyncio.create_task(group.run(handle, concurrency=2))
        await eventually(it_is(lambda: done == [1, 1]))
        async with asyncio.timeout(5):
            await group.aclose()
        assert not task.done()
        ends.set()
        async with asyncio.timeout(BOUND):
            await task
        assert [await cursor(client, "g", "s", one) for one in range(2)] == [None, 1]


async def test_an_expelled_member_handles_nothing_more_until_it_is_back(
    broker: EmbeddedBroker,
) -> None:
    log, watcher = Log(), GroupWatcher()
    async with Client(broker.address, options=ClientOptions(backoff=QUICK, hook=watcher)) as client:
        await client.create_stream("s", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            await publish(client, "s", partition, COUNT)
        async with (
            client.group("g", ["s"], start=EARLIEST, commit_interval=0.1) as group,
            working(group, log, "first", 0.02),
        ):
            await eventually(it_is(lambda: len(log.handled) == PARTITIONS))
            wire = Wire(broker.host, broker.port)
            await Group(wire, "g").leave(group.consumer_id)
            wire.close()
            await eventually(
                it_is(lambda: any(each.state == "rejoining" for each in watcher.changes))
            )
            await eventually(it_is(log.has_all))
    for handled in log.handled.values():
        offsets = [offset for _, offset in handled]
        # It may step back once, to what was committed.
        assert sum(b <= a for a, b in itertools.pairwise(offsets)) <= 1


async def test_a_server_that_is_killed_loses_nothing(
    start_real_server: Callable[[], LiftbridgeNode],
) -> None:
    node = await asyncio.to_thread(start_real_server)
    log = Log()
    async with Client(node.address, options=ClientOptions(backoff=QUICK)) as client:
        await client.create_stream("s", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            await publish(client, "s", partition, COUNT)
        # When the block ends, the member may still wait to hear that it is one.
        with suppress(NotGroupMember):
            await _kill_under_a_member(client, node, log)


async def _kill_under_a_member(client: Client, node: LiftbridgeNode, log: Log) -> None:
    async with (
        client.group("g", ["s"], start=EARLIEST, commit_interval=0.1) as group,
        working(group, log, "first", 0.02),
    ):
        await eventually(it_is(lambda: len(log.handled) == PARTITIONS))
        node.kill()
        await asyncio.to_thread(node.start)
        await eventually(it_is(log.has_all))
        for partition in range(PARTITIONS):
            await client.publish("s", b"", partition=partition, retry=Retry(attempts=50))
        await eventually(it_is(lambda: log.has_all(COUNT + 1)))
