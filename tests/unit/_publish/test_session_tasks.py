from __future__ import annotations

import asyncio

from liftbridge_aio import Client
from liftbridge_aio.broker import EmbeddedBroker


def tasks_of_publishing() -> list[str]:
    names = (task.get_name() for task in asyncio.all_tasks())
    return sorted(name.partition(":publish-")[2] for name in names if ":publish-" in name)


async def test_partitions_of_a_broker_share_one_task() -> None:
    """The task of the session; another checks the deadlines of the whole client."""
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        await client.create_stream("orders", partitions=20)
        for _ in range(3):
            acks = [await client.publish_async("orders", b"", partition=n) for n in range(20)]
            await asyncio.gather(*acks)
        assert tasks_of_publishing() == [f"session:{broker.address}", "sweep"]
