"""Partitions that pause by themselves when nothing comes."""

from __future__ import annotations

import asyncio

from grpclib.const import Status
from grpclib.exceptions import GRPCError

from liftbridge_aio.wire import proto
from support.raw import BOUND, End, Wire, eventually

IDLE_TIME = 300
"""Milliseconds without messages after which a partition pauses."""

CLOSED = End(Status.FAILED_PRECONDITION, "commit log was closed")


async def create(wire: Wire, stream: str, partitions: int, *, spare_readers: bool = False) -> None:
    await wire.create(
        stream,
        partitions=partitions,
        auto_pause_time=proto.NullableInt64(value=IDLE_TIME),
        auto_pause_disable_if_subscribers=proto.NullableBool(value=spare_readers),
    )


async def is_paused(wire: Wire, stream: str, partition: int) -> bool:
    """True if the partition has no leader now."""
    try:
        await wire.partition(stream, partition)
    except GRPCError as error:
        if error.status is not Status.FAILED_PRECONDITION:
            raise
        return True
    return False


async def pauses(wire: Wire, stream: str, partition: int) -> None:
    """Wait until a partition has paused."""

    async def has_paused() -> bool:
        return await is_paused(wire, stream, partition)

    await eventually(has_paused)


async def test_an_idle_partition_pauses_until_something_comes(wire: Wire, stream_name: str) -> None:
    await create(wire, stream_name, partitions=1)
    await wire.publish(stream_name, b"0")
    await pauses(wire, stream_name, 0)

    [ack] = await wire.publish(stream_name, b"1")

    assert ack.offset == 1
    assert not await is_paused(wire, stream_name, 0)
    await pauses(wire, stream_name, 0)


async def test_a_partition_that_messages_come_to_stays_awake(wire: Wire, stream_name: str) -> None:
    await create(wire, stream_name, partitions=2)
    async with asyncio.timeout(BOUND):
        while not await is_paused(wire, stream_name, 1):
            await wire.publish(stream_name, b"", partition=0)

    assert not await is_paused(wire, stream_name, 0)


async def test_readers_keep_a_partition_awake_if_that_is_wanted(
    wire: Wire, stream_name: str
) -> None:
    await create(wire, stream_name, partitions=2, spare_readers=True)
    async with wire.subscribe(stream_name, partition=0):
        for _ in range(2):
            await pauses(wire, stream_name, 1)
            assert not await is_paused(wire, stream_name, 0)
            await wire.publish(stream_name, b"", partition=1)

    await pauses(wire, stream_name, 0)


async def test_readers_are_sent_away_if_not(wire: Wire, stream_name: str) -> None:
    await create(wire, stream_name, partitions=1)
    async with wire.subscribe(stream_name) as subscription:
        assert await subscription.end() == CLOSED
