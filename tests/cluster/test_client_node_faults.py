"""Nodes fall silent, die and come back under load: what was acked is read once, nothing hangs."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from liftbridge_aio import (
    Client,
    LiftbridgeError,
    NoMetadataLeader,
    RequestTimeout,
    StreamOptions,
)
from liftbridge_aio.wire import proto
from support.cluster.client_load import LOAD, OPTIONS, refused, timed
from support.cluster.nodes import BOUND, CURSORS, CURSORS_PARTITIONS, EARLIEST, Nodes
from support.faults import eventually
from support.servers.cluster import Cluster
from support.traffic import flowing

pytestmark = pytest.mark.timeout(120)  # nodes are brought back in that time too

SAFE = StreamOptions(min_isr=2)


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    async with Client(*cluster.addresses.values(), options=OPTIONS) as client:
        yield client


async def test_a_leader_that_is_silent_beyond_its_lease_and_comes_back(
    cluster: Cluster, client: Client, nodes: Nodes, stream_name: str
) -> None:
    """Somebody who connects meanwhile, to the silent one first, works too."""
    other = f"{stream_name}-late"
    for name in (stream_name, other):
        await client.create_stream(name, replication_factor=3, options=SAFE)
    roles = await nodes.roles(stream_name)
    async with flowing(client, stream_name, **LOAD) as flow:
        await flow.more()
        cluster.freeze(roles.leader)
        silent = cluster.addresses[roles.leader]
        others = [cluster.addresses[each] for each in roles.followers]
        await nodes.new_leader(roles.followers, stream_name, roles.leader)
        async with Client(silent, *others, options=OPTIONS) as late:
            assert stream_name in (await timed(late.fetch_metadata())).streams
            async with flowing(late, other, **LOAD) as of_late:
                await of_late.more()
        await flow.more()
        cluster.thaw(roles.leader)
        # Its acks of what it took before are late, and count for nothing.
        await nodes.in_sync(nodes.ids, stream_name, nodes.ids)
        await flow.more()
    assert not flow.lost


class CursorWriter:
    """Stores ever higher positions of one cursor, and counts those that came through."""

    def __init__(self, client: Client, cursor_id: str, stream: str) -> None:
        self.stored = 0
        self._client = client
        self._place = (cursor_id, stream, 0)

    async def run(self) -> None:
        position = 0
        while True:
            position += 1
            with suppress(LiftbridgeError):
                await timed(self._client.set_cursor(*self._place, position))
                self.stored += 1
                # Somebody who asks now is told so, unless a leader dies between the two.
                with suppress(LiftbridgeError):
                    await timed(self._client.fetch_cursor(*self._place))
            await asyncio.sleep(0.005)

    async def more(self, count: int = 5) -> None:
        enough = self.stored + count
        await eventually(lambda: self.stored >= enough, BOUND)


async def positions_in_log(client: Client, cursor_id: str, stream: str, last: int) -> list[int]:
    """Return the positions stored for a cursor, in the order of the cursor log."""
    key = f"{cursor_id},{stream},0".encode()
    number = zlib.crc32(key) % CURSORS_PARTITIONS
    found = [0]
    async with (
        asyncio.timeout(BOUND),
        client.subscribe(CURSORS, partition=number, start=EARLIEST) as messages,
    ):
        while found[-1] < last:
            message = await anext(messages)
            if message.key == key:
                found.append(proto.Cursor.parse(message.value).offset)
    return found


async def test_cursors_never_step_back_while_their_leader_dies_and_comes_back(
    cluster: Cluster, client: Client, nodes: Nodes, stream_name: str
) -> None:
    await client.create_stream(stream_name, replication_factor=3, options=SAFE)
    number = zlib.crc32(f"mine,{stream_name},0".encode()) % CURSORS_PARTITIONS
    roles = await nodes.roles(CURSORS, number)
    writer = CursorWriter(client, "mine", stream_name)
    task = asyncio.create_task(writer.run())
    await writer.more()
    await cluster.stop_node(roles.leader)
    await timed(client.fetch_metadata(), 4.5)
    await writer.more()
    await cluster.start_node(roles.leader)
    await nodes.in_sync(nodes.ids, CURSORS, nodes.ids)
    await writer.more()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await client.set_cursor("mine", stream_name, 0, 10_000)
    assert await client.fetch_cursor("mine", stream_name, 0) == 10_000
    positions = await positions_in_log(client, "mine", stream_name, 10_000)
    assert positions == sorted(positions)


async def test_two_of_three_are_killed_and_come_back(
    cluster: Cluster, client: Client, nodes: Nodes, stream_name: str
) -> None:
    """Those without the lead: if the leader dies too, v1.9.0 loses what all replicas had acked."""
    await client.create_stream(stream_name, replication_factor=3, options=SAFE)
    roles = await nodes.roles(stream_name)
    async with flowing(client, stream_name, **LOAD) as flow:
        await flow.more()
        for node_id in roles.followers:
            await cluster.stop_node(node_id)
        await eventually(lambda: len(flow.unknown) >= 8, BOUND)  # what was on its way, and more

        created, opened, *asked = await asyncio.gather(
            refused(client.create_stream(f"{stream_name}-new")),
            refused(client.set_stream_readonly(stream_name, readonly=False)),
            timed(client.fetch_metadata()),
            timed(client.fetch_cursor("mine", stream_name, 0)),
            return_exceptions=True,
        )
        for error in (created, opened):
            assert isinstance(error, NoMetadataLeader | RequestTimeout)
        # Some of these still know.
        assert all(
            isinstance(each, LiftbridgeError) or not isinstance(each, BaseException)
            for each in asked
        )

        for node_id in roles.followers:
            await cluster.start_node(node_id)
    assert not flow.lost
