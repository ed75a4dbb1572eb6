"""Replicated streams are paused, closed to writers and deleted while the client uses them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from liftbridge_aio import (
    AckPolicy,
    Client,
    EndReason,
    LiftbridgeError,
    PartitionPaused,
    PartitionReadonly,
    StreamDeleted,
    StreamNotFound,
    StreamOptions,
    StreamReset,
)
from support.cluster.client_load import LOAD, OPTIONS, timed
from support.cluster.nodes import BOUND, EARLIEST
from support.faults import eventually
from support.servers.cluster import Cluster
from support.traffic import Traffic, flowing

pytestmark = pytest.mark.timeout(120)  # nodes are brought back in that time too

SAFE = StreamOptions(min_isr=2)
LONG = 500
"""Messages of an old stream: more than its successor gets."""


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    async with Client(*cluster.addresses.values(), options=OPTIONS) as client:
        yield client


async def test_a_partition_paused_again_and_again_is_resumed_by_publishing(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name, replication_factor=3, options=SAFE)
    async with flowing(client, stream_name, **LOAD) as flow:
        for _ in range(3):
            await flow.more()
            await timed(client.pause_stream(stream_name))
        await eventually(lambda: flow.lost, BOUND)
    assert not flow.refused
    assert {type(error) for error in flow.lost} == {PartitionPaused}


async def test_read_only_under_load_fails_publishers_and_readers_reach_the_end(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name, replication_factor=3, options=SAFE)
    async with flowing(client, stream_name, **LOAD) as flow:
        async with client.subscribe(stream_name, partition=0, start=EARLIEST) as messages:
            await flow.more()
            await timed(client.set_stream_readonly(stream_name))
            received = [message.offset async for message in messages]
        assert messages.end_reason is EndReason.READONLY
        assert received == list(range(len(received)))

        await eventually(lambda: flow.refused, BOUND)
        assert set(map(type, flow.refused.values())) == {PartitionReadonly}
        await timed(client.set_stream_readonly(stream_name, readonly=False))


def acked_by_the_new(load: Traffic) -> dict[bytes, int]:
    """Return messages that the new stream acked at offsets of the old one."""
    return {value: offset for value, offset in load.acked.items() if offset < LONG}


async def test_a_stream_that_was_made_anew_is_taken_for_the_old_one_by_nobody(
    client: Client, stream_name: str
) -> None:
    await client.create_stream(stream_name, replication_factor=3, options=SAFE)
    await client.publish_many(stream_name, [b"old"] * LONG)

    last: dict[str | None, int] = {None: -1, "mine": -1}

    async def until_it_ends(cursor: str | None) -> LiftbridgeError:
        try:
            async with client.subscribe(stream_name, start=EARLIEST, cursor=cursor) as messages:
                async for message in messages:
                    assert message.offset == last[cursor] + 1
                    last[cursor] = message.offset
        except LiftbridgeError as error:
            return error
        pytest.fail("it ended without an error")

    async with asyncio.timeout(BOUND), asyncio.TaskGroup() as tasks:
        readers = [tasks.create_task(until_it_ends(cursor)) for cursor in last]
        load = Traffic(client, stream_name, policy=AckPolicy.ALL, bound=BOUND)
        tasks.create_task(load.publish())
        await eventually(lambda: min(last.values()) >= LONG - 1, BOUND)
        await load.more()
        await timed(client.delete_stream(stream_name))
        await timed(client.create_stream(stream_name, replication_factor=3, options=SAFE))
        await eventually(lambda: len(acked_by_the_new(load)) >= 20, BOUND)
        load.stop()
    assert set(map(type, load.refused.values())) <= {StreamNotFound}

    for reader in readers:
        assert isinstance(reader.result(), StreamDeleted | StreamReset)
    acked = acked_by_the_new(load)
    found = {message.value: message.offset async for message in client.read(stream_name)}
    assert {value: found.get(value) for value in acked} == acked
    assert b"old" not in found

    assert (await client.fetch_cursor("mine", stream_name, 0) or 0) >= LONG - 1
    with pytest.raises(StreamReset, match="deleted and created again"):
        async with client.subscribe(stream_name, start=EARLIEST, cursor="mine"):
            pass
