"""The state that a single server keeps after a crash, and the state that it loses.

The embedded broker, which loses none, does so with the flaw `hides_committed`.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator

import pytest
from grpclib.const import Status

from liftbridge_aio.broker import EmbeddedBroker, Flaws
from liftbridge_aio.wire import proto, rpc
from support.raw import FROM_EARLIEST, End, Wire, eventually, message
from support.servers.build import pinned_version
from support.servers.node import LiftbridgeNode
from support.servers.ports import free_ports

HIDING = "hiding"
LOST = End(Status.UNAVAILABLE, "Connection lost")
CURSORS_PARTITIONS = 3

CrashingServer = LiftbridgeNode | EmbeddedBroker


@pytest.fixture(params=[HIDING, pinned_version()])
async def crashing(request: pytest.FixtureRequest) -> AsyncIterator[CrashingServer]:
    """Each kind of server in turn, running."""
    if request.param != HIDING:
        start = request.getfixturevalue("start_real_server")
        yield await asyncio.to_thread(start)
        return
    flaws = Flaws(hides_committed=True)
    async with EmbeddedBroker(
        port=free_ports(1)[0], cursors_partitions=CURSORS_PARTITIONS, flaws=flaws
    ) as broker:
        yield broker


async def crash(crashing: CrashingServer) -> None:
    if isinstance(crashing, EmbeddedBroker):
        await crashing.stop()
    else:
        await asyncio.to_thread(crashing.kill)


async def restart(crashing: CrashingServer) -> Wire:
    if isinstance(crashing, EmbeddedBroker):
        await crashing.start()
    else:
        await asyncio.to_thread(crashing.start)
    return Wire(crashing.host, crashing.port)


async def test_acked_messages_are_unseen_until_the_next_publish(crashing: CrashingServer) -> None:
    """They are kept, but the high watermark, which bounds every reader, is saved only sometimes."""
    wire = Wire(crashing.host, crashing.port)
    await wire.create("stream")
    await wire.publish("stream", b"a", b"b")
    created = (await wire.stream("stream")).creation_timestamp
    async with wire.subscribe("stream", **FROM_EARLIEST) as subscription:
        await subscription.take(2)
        await crash(crashing)
        assert await subscription.end() == LOST
    wire.close()

    wire = await restart(crashing)
    assert (await wire.stream("stream")).creation_timestamp == created
    found = await wire.partition("stream")
    assert (found.high_watermark, found.newest_offset) == (-1, 1)
    async with wire.subscribe("stream", **FROM_EARLIEST) as subscription:
        [ack] = await wire.publish("stream", b"c")
        assert ack.offset == 2
        messages = await subscription.take(3)
    assert [each.value for each in messages] == [b"a", b"b", b"c"]
    wire.close()


async def test_flags_and_options_of_streams_survive(crashing: CrashingServer) -> None:
    wire = Wire(crashing.host, crashing.port)
    for name in ("paused", "resumed", "readonly"):
        await wire.create(name)
    await wire.create("controlled", optimistic_concurrency_control=proto.NullableBool(value=True))
    await wire.publish("controlled", b"first", expected_offset=0)
    await wire.pause("paused")
    await wire.pause("resumed")
    await wire.publish("resumed", b"resumes")
    await wire.set_readonly("readonly")
    await crash(crashing)
    wire.close()

    wire = await restart(crashing)
    asked = proto.FetchPartitionMetadataRequest(stream="paused")
    end = await wire.refusal(rpc.FETCH_PARTITION_METADATA, asked)
    assert end.status is Status.FAILED_PRECONDITION
    assert (await wire.partition("resumed")).newest_offset == 0
    assert (await wire.partition("readonly")).readonly
    again = message("controlled", b"again", expected_offset=0)
    assert (await wire.refusal(rpc.PUBLISH, again)).text == "incorrect expected offset"
    wire.close()


async def test_cursors_are_gone_until_one_is_stored_and_then_at_their_highest(
    crashing: CrashingServer,
) -> None:
    def home_of(cursor_id: str) -> int:
        return zlib.crc32(f"{cursor_id},stream,0".encode()) % CURSORS_PARTITIONS

    async def store(cursor_id: str, offset: int) -> None:
        request = proto.SetCursorRequest(stream="stream", cursor_id=cursor_id, offset=offset)
        await wire.call(rpc.SET_CURSOR, request)

    async def fetch(cursor_id: str) -> int:
        request = proto.FetchCursorRequest(stream="stream", cursor_id=cursor_id)
        return (await wire.call(rpc.FETCH_CURSOR, request)).offset

    neighbours = [name for name in (f"cursor-{n}" for n in range(20)) if home_of(name) == 0]
    asked_early, asked_late, stored_after = neighbours[:3]
    wire = Wire(crashing.host, crashing.port)
    for cursor_id in (asked_early, asked_late):
        await store(cursor_id, 9)
        await store(cursor_id, 3)
        assert await fetch(cursor_id) == 3
    await crash(crashing)
    wire.close()

    wire = await restart(crashing)
    assert await fetch(asked_early) == -1
    await store(stored_after, 1)

    async def committed() -> bool:
        return (await wire.partition("__cursors")).high_watermark == 4

    await eventually(committed)
    assert await fetch(asked_late) == 9  # not 3, the latest
    assert await fetch(asked_early) == -1  # the wrong answer was remembered
    wire.close()
