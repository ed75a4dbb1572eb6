"""Several partitions read as one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from contract.clients import EARLIEST, LATEST
from contract.raw import BOUND, eventually
from liftbridge_aio import (
    ALL_PARTITIONS,
    Client,
    EndReason,
    InvalidRequest,
    MergedSubscription,
    Message,
    PartitionNotFound,
    PartitionPaused,
    RawMessage,
    Record,
    StartAt,
    StreamDeleted,
    StreamNotFound,
)

PARTITIONS = 4
COUNT = 40
PER_PARTITION = COUNT // PARTITIONS


@pytest.fixture
async def numbers(client: Client, stream_name: str) -> str:
    """A stream of some partitions; each holds its share of the numbers."""
    await client.create_stream(stream_name, partitions=PARTITIONS)
    await client.publish_many(
        stream_name, [Record(b"%d" % n, partition=n % PARTITIONS) for n in range(COUNT)]
    )
    return stream_name


async def take(subscription: MergedSubscription, count: int) -> list[Message]:
    async with asyncio.timeout(BOUND):
        return [await anext(subscription) for _ in range(count)]


async def rest(subscription: MergedSubscription) -> list[Message]:
    async with asyncio.timeout(BOUND):
        return [message async for message in subscription]


def offsets(messages: Sequence[Message | RawMessage]) -> dict[int, list[int]]:
    """What was read of each partition, in the order in which it came."""
    found: dict[int, list[int]] = {}
    for message in messages:
        found.setdefault(message.partition, []).append(message.offset)
    return found


EVERYTHING = {partition: list(range(PER_PARTITION)) for partition in range(PARTITIONS)}


async def test_all_partitions_are_read_each_in_order(client: Client, numbers: str) -> None:
    subscription = client.subscribe(numbers, ALL_PARTITIONS, EARLIEST, LATEST)
    messages = await rest(subscription)
    assert offsets(messages) == EVERYTHING
    assert sorted(int(message.value) for message in messages) == list(range(COUNT))
    assert {message.stream for message in messages} == {numbers}
    assert subscription.end_reasons == dict.fromkeys(range(PARTITIONS), EndReason.STOP_REACHED)
    assert subscription.statistics().delivered == COUNT
    assert client.statistics().subscriptions == 0
