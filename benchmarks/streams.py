"""The streams that clients are measured on: made, found and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from liftbridge_aio import Client, ClientOptions, PartitionNotFound, StreamNotFound

LEADER_TIMEOUT: Final = 20.0
_PAUSE: Final = 0.02
_OPTIONS: Final = ClientOptions(call_timeout=LEADER_TIMEOUT)


def create_stream(
    addresses: Sequence[str], name: str, partitions: int, replication_factor: int
) -> str:
    """Make a stream and wait until its partitions have leaders with all replicas in sync.

    Returns:
        The address of the leader of partition 0: not every client finds it by itself.
    """
    return asyncio.run(_create(addresses, name, partitions, replication_factor))


def delete_stream(addresses: Sequence[str], name: str) -> None:
    """Delete a stream with all that is in it."""
    asyncio.run(_delete(addresses, name))


def fill_stream(
    addresses: Sequence[str], name: str, partitions: int, messages: int, size: int
) -> None:
    """Publish messages to all partitions in turn, neither more nor less."""
    asyncio.run(_fill(addresses, name, partitions, messages, bytes(size)))


def count_messages(addresses: Sequence[str], name: str, partitions: int) -> int:
    """Count the messages of a stream that has lost none."""
    return asyncio.run(_count(addresses, name, partitions))


async def _fill(
    addresses: Sequence[str], name: str, partitions: int, messages: int, value: bytes
) -> None:
    async with Client(*addresses, options=_OPTIONS) as client:
        for number in range(messages):
            await client.publish_async(name, value, partition=number % partitions)
        await client.flush()


async def _count(addresses: Sequence[str], name: str, partitions: int) -> int:
    async with Client(*addresses, options=_OPTIONS) as client:
        states = [
            await client.fetch_partition_metadata(name, number) for number in range(partitions)
        ]
    return sum(state.newest_offset + 1 for state in states)


async def _create(
    addresses: Sequence[str], name: str, partitions: int, replication_factor: int
) -> str:
    async with Client(*addresses, options=_OPTIONS) as client, asyncio.timeout(LEADER_TIMEOUT):
        await client.create_stream(
            name, partitions=partitions, replication_factor=replication_factor
        )
        for partition in range(partitions):
            while True:
                if await _has_all_replicas(client, name, partition, replication_factor):
                    break
                await asyncio.sleep(_PAUSE)
        while True:
            leader = (await client.fetch_metadata([name])).leader(name, 0)
            if leader is not None:
                return leader.address
            await asyncio.sleep(_PAUSE)


async def _has_all_replicas(client: Client, name: str, partition: int, count: int) -> bool:
    try:
        state = await client.fetch_partition_metadata(name, partition)
    except (StreamNotFound, PartitionNotFound):
        return False  # The node that was asked has not heard of it yet.
    return bool(state.leader) and len(state.isr) == count


async def _delete(addresses: Sequence[str], name: str) -> None:
    async with Client(*addresses, options=_OPTIONS) as client:
        await client.delete_stream(name)
