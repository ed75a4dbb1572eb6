"""Queues that more members share than there are partitions: leases over NATS, on a real server."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest

from liftbridge_aio import Client
from liftbridge_aio.queue import Delivery, Queue
from support.groups.group_watcher import EARLIEST, it_is
from support.raw import BOUND, eventually
from support.servers.node import LiftbridgeNode

DATA_PATHS: Final = ["lane"]


@pytest.fixture
async def client(real_server: LiftbridgeNode) -> AsyncIterator[Client]:
    async with Client(real_server.address) as client:
        yield client


@pytest.fixture
async def stream(client: Client, stream_name: str) -> str:
    """A stream with one partition."""
    await client.create_stream(stream_name)
    return stream_name


def member(client: Client, stream: str, node: LiftbridgeNode, **other: Any) -> Queue[Delivery]:
    settings = {"group": stream, "start": EARLIEST, "retry": 0.05, "timeout": BOUND}
    return client.queue(stream, nats=node.nats_url, **{**settings, **other})


@pytest.mark.timeout(60)
async def test_four_members_share_the_messages_of_one_partition(
    client: Client, stream: str, real_server: LiftbridgeNode
) -> None:
    total = 300
    handled: dict[int, Counter[bytes]] = defaultdict(Counter)
    for number in range(total):
        await client.publish(stream, b"%d" % number)
    async with AsyncExitStack() as stack:
        queues = []
        for number in range(4):
            queue = await stack.enter_async_context(member(client, stream, real_server))
            queues.append(queue)

            async def handle(delivery: Delivery, number: int = number) -> None:
                await asyncio.sleep(0.01)
                handled[number][delivery.value] += 1

            stack.push_async_callback(asyncio.wait, [asyncio.create_task(queue.run(handle, concurrency=2))])
        await eventually(it_is(lambda: sum(each.total() for each in handled.values()) >= total))
        for q in queues: print(q.assignment, q.statistics(), q.explain())
        for q in queues: await q.aclose()
        for q in queues: print(q.assignment, q.statistics(), q.explain())
    counts = sum(handled.values(), Counter())
    print({k: v.total() for k, v in handled.items()})
    assert set(counts.values()) == {1}
    assert len(counts) == total
    assert all(each.total() >= total / 8 for each in handled.values())
