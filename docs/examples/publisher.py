"""Publish orders by key, many at once, and print where each was stored.

Run it with LIFTBRIDGE_SERVERS set: python publisher.py
"""

from __future__ import annotations

import asyncio

from liftbridge_aio import Client, PublishManyFailed, Record

ORDERS = [("ann", "bread"), ("bob", "milk"), ("ann", "eggs"), ("eve", "rolls")]


async def main() -> None:
    """Create the stream if it is missing, and publish."""
    async with Client.from_env() as client:
        await client.create_stream("orders", partitions=3, exist_ok=True)
        records = [Record(item.encode(), key=customer.encode()) for customer, item in ORDERS]
        try:
            acks = await client.publish_many("orders", records)
        except PublishManyFailed as error:
            print("not all were stored:", error.outcomes)
            raise
        for (customer, item), ack in zip(ORDERS, acks, strict=True):
            print(f"{customer}: {item} at offset {ack.offset} of {ack.msg_subject}")


asyncio.run(main())
