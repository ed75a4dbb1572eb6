"""Cost of publishing in calls of functions and in tasks, which do not depend on the machine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from types import FrameType

import pytest

from liftbridge_aio import Client
from liftbridge_aio.broker import EmbeddedBroker


async def calls_of(client: Client, key: bytes | None, headers: Mapping[str, bytes] | None) -> int:
    """Publish and count the calls until the message is registered: the least of three times.

    The garbage collector may call functions meanwhile.
    """
    return min([await _calls_once(client, key, headers) for _ in range(3)])


async def _calls_once(
    client: Client, key: bytes | None, headers: Mapping[str, bytes] | None
) -> int:
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        acked = await client.publish_async("orders", b"value", key, headers)
    finally:
        sys.setprofile(before)
    await acked
    return calls


@pytest.mark.parametrize("key", [None, b"key"])
async def test_a_message_with_headers_takes_the_same_way_as_one_without(key: bytes | None) -> None:
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        await client.create_stream("orders")
        one = {"trace": bytes(16)}
        two = {**one, "tenant": b"7"}
        for headers in (None, None, one, two):  # the first ones are looked at more closely
            await client.publish("orders", b"value", key, headers)
        without = await calls_of(client, key, None)
        assert await calls_of(client, key, one) <= without
        assert await calls_of(client, key, two) <= without


async def test_partitions_of_a_broker_share_one_task() -> None:
    """The task of the session; another checks the deadlines of the whole client."""
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        await client.create_stream("orders", partitions=20)
        for _ in range(3):
            acks = [await client.publish_async("orders", b"", partition=n) for n in range(20)]
            await asyncio.gather(*acks)
        names = [task.get_name() for task in asyncio.all_tasks()]
        of_publishing = sorted(name.partition(":publish-")[2] for name in names)
        assert of_publishing[-2:] == [f"session:{broker.address}", "sweep"]
        assert not any(of_publishing[:-2])
