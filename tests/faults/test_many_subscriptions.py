"""More subscriptions than the usual on one client."""

from __future__ import annotations

import asyncio

import pytest

from liftbridge_aio import Client, StartAt
from liftbridge_aio.broker import EmbeddedBroker
from support.faults import eventually

pytestmark = pytest.mark.real_time

MANY = 700


async def test_hundreds_of_subscriptions_may_be_opened_at_once() -> None:
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        await client.create_stream("s")
        read: list[bytes] = []

        async def read_one() -> None:
            async with client.subscribe("s", start=StartAt.earliest()) as messages:
                read.append((await anext(messages)).value)

        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            for _ in range(MANY):
                tasks.create_task(read_one())
            await eventually(lambda: broker.statistics().subscriptions == MANY, 30)
            await client.publish("s", b"for all")
    assert read == [b"for all"] * MANY
