"""A paused partition has an end: its leader knows it, whichever node a client was told of.

All others answer -1 for a log that they have no replica of, which looks like an empty one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest

from liftbridge_aio import Client, NotFound, StartAt, StreamReset
from liftbridge_aio.integrations.event_stream import EventStream, Write
from liftbridge_aio.integrations.service import Service
from support.cluster.nodes import BOUND, EARLIEST, Nodes, soon
from support.groups.group_watcher import take
from support.servers.cluster import Cluster

pytestmark = pytest.mark.timeout(120)  # nodes are brought back in that time too

STORED = 5
NEWEST = STORED - 1


@pytest.fixture
async def leader(cluster: Cluster, nodes: Nodes, stream_name: str) -> str:
    """The node that leads a stream of `STORED` messages."""
    async with Client(*cluster.addresses.values()) as client:
        await client.create_stream(stream_name)
        await client.publish_many(stream_name, [b"%d" % number for number in range(STORED)])
    for node_id in nodes.ids:
        await nodes.view(node_id, stream_name)  # which waits until it has heard of it
    return (await nodes.roles(stream_name)).leader


@pytest.fixture
async def client(cluster: Cluster, leader: str, stream_name: str) -> AsyncIterator[Client]:
    """Told of a node that does not lead the stream, which is paused."""
    [*_, address] = [address for node_id, address in cluster.addresses.items() if node_id != leader]
    async with Client(address) as client:
        await pause(client, stream_name)
        yield client
        # v1.9.0 counts it down twice where it is paused and then deleted, and has one node lead all
        # that comes after it.
        await client.resume_stream(stream_name)


async def pause(client: Client, stream: str) -> None:
    """Pause it, and wait until its leader has."""

    async def is_paused() -> bool:
        return (await client.fetch_partition_metadata(stream, 0)).paused

    await client.pause_stream(stream)
    await soon(is_paused)


async def test_its_offsets_are_those_of_the_leader(client: Client, stream_name: str) -> None:
    state = await client.fetch_partition_metadata(stream_name, 0)
    assert (state.paused, state.newest_offset, state.high_watermark) == (True, NEWEST, NEWEST)
    assert await client.subscribe(stream_name, partition=0, start=EARLIEST).lag() == STORED


async def test_its_offsets_outlive_a_restart_of_the_leader(
    cluster: Cluster, client: Client, leader: str, stream_name: str
) -> None:
    await cluster.stop_node(leader)
    await cluster.start_node(leader)

    async def is_back() -> bool:
        try:
            state = await client.fetch_partition_metadata(stream_name, 0)
        except NotFound:  # for a while it knows nothing of the stream
            return False
        assert (state.paused, state.newest_offset) == (True, NEWEST)
        return True

    await soon(is_back)


@pytest.mark.parametrize("partition", [0, None], ids=["one", "all"])
async def test_a_bounded_reading_that_resumes_it_is_whole(
    client: Client, stream_name: str, partition: int | None
) -> None:
    async with asyncio.timeout(BOUND):
        reading = client.read(stream_name, partition=partition, unpause=True)
        assert [message.offset async for message in reading] == list(range(STORED))
        await pause(client, stream_name)
        reading = client.read(
            stream_name, start=StartAt.latest(), partition=partition, unpause=True
        )
        assert [message.offset async for message in reading] == [NEWEST]


async def test_new_messages_only_are_those_behind_its_end(client: Client, stream_name: str) -> None:
    async with (
        asyncio.timeout(BOUND),
        client.subscribe(stream_name, unpause=True, cursor="reader") as messages,
    ):
        assert await client.fetch_cursor("reader", stream_name, 0) == NEWEST
        await client.publish(stream_name, b"new")
        assert (await anext(messages)).offset == STORED


@pytest.mark.parametrize(
    ("start", "first"), [(StartAt.new_only(), STORED), (StartAt.latest(), NEWEST)]
)
async def test_a_group_without_positions_begins_at_its_end(
    client: Client, stream_name: str, start: StartAt, first: int
) -> None:
    async with client.group(f"group-{stream_name}", [stream_name], start=start) as group:
        await client.publish(stream_name, b"resumes it")
        [message] = await take(group, 1)
    assert message.offset == first


async def test_a_browser_that_comes_back_goes_on(client: Client, stream_name: str) -> None:
    written: list[bytes] = []
    whole = asyncio.Event()

    async def write(data: bytes) -> None:
        written.append(data)
        if b"data: 4\n" in data:
            whole.set()

    async def begin(status: int) -> Write:
        assert status == HTTPStatus.OK
        return write

    async with asyncio.timeout(BOUND):
        events = EventStream(stream_name, "2", unpause=True)
        await events.serve(Service(client), begin, whole.wait)
    text = b"".join(written).decode()
    assert [line for line in text.splitlines() if line.startswith("data")] == ["data: 3", "data: 4"]
    assert StreamReset.__name__ not in text
