"""Positions that a policy forbids to store: readers are told, and not left to read on for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from liftbridge_aio import Client, PermissionDenied, StartAt
from liftbridge_aio.broker import EmbeddedBroker

SOON = 5.0
OFTEN = 0.02


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A client that may read two partitions of a stream, and store no position."""
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        await client.create_stream("s", partitions=2)
        for partition in (0, 1, 0, 1):
            await client.publish("s", b"v", partition=partition)
        broker.faults.fail("SetCursor", code="PERMISSION_DENIED", text="not authorized", times=None)
        yield client


async def test_a_subscription_ends(client: Client) -> None:
    async def read() -> None:
        async with client.subscribe(
            "s", partition=0, start=StartAt.earliest(), cursor="c", cursor_interval=OFTEN
        ) as reading:
            async for _ in reading:
                pass

    async with asyncio.timeout(SOON):
        with pytest.raises(PermissionDenied, match="not authorized") as caught:
            await read()
    assert (caught.value.stream, caught.value.partition) == ("s", 0)


async def test_each_partition_of_a_subscription_ends(client: Client) -> None:
    async def read() -> None:
        errors = 0
        async with client.subscribe(
            "s", partition=[0, 1], start=StartAt.earliest(), cursor="c", cursor_interval=OFTEN
        ) as reading:
            while True:
                try:
                    await anext(reading)
                except PermissionDenied:
                    errors += 1
                    if errors == 2:
                        assert reading.errors.keys() == {0, 1}
                        raise

    async with asyncio.timeout(SOON):
        with pytest.raises(PermissionDenied):
            await read()


async def test_a_member_of_a_group_ends(client: Client) -> None:
    async def read() -> None:
        async with client.group(
            "g", ["s"], start=StartAt.earliest(), commit_interval=OFTEN
        ) as group:
            async for _ in group:
                pass

    async with asyncio.timeout(SOON):
        with pytest.raises(PermissionDenied, match="not authorized"):
            await read()
