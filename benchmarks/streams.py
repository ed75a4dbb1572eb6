"""The streams that clients are measured on: made, found and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from liftbridge_aio import Client, ClientOptions

LEADER_TIMEOUT: Final = 20.0
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


async def _create(
    addresses: Sequence[str], name: str, partitions: int, replication_factor: int
) -> str:
    async with Client(*addresses, options=_OPTIONS) as client, asyncio.timeout(LEADER_TIMEOUT):
        await client.create_stream(
            name, partitions=partitions, replication_factor=replication_factor
        )
        for partition in range(partitions):
            while True:
                state = await client.fetch_partition_metadata(name, partition)
                if state.leader and len(state.isr) == replication_factor:
                    break
                await asyncio.sleep(0.02)
        metadata = await client.fetch_metadata([name])
        first = metadata.partition(name, 0)
        return addresses[0] if first is None else metadata.brokers[first.leader].address


async def _delete(addresses: Sequence[str], name: str) -> None:
    async with Client(*addresses, options=_OPTIONS) as client:
        await client.delete_stream(name)
