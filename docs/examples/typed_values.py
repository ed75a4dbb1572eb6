"""Publish and read objects instead of bytes: JSON, compressed, with a key."""

from __future__ import annotations

import asyncio

from liftbridge_aio import Client
from liftbridge_aio.compression import Gzip
from liftbridge_aio.serializers import JSON


async def main() -> None:
    """Publish two invoices and add up what is there."""
    async with Client.from_env() as client:
        await client.create_stream("invoices", exist_ok=True)
        invoices = client.values("invoices", JSON, compression=Gzip())
        for customer, total in (("ann", 3), ("bob", 4)):
            await invoices.publish({"customer": customer, "total": total}, key=customer.encode())
        totals = [
            invoice.value["total"] async for invoice in invoices.read(client.read("invoices"))
        ]
        print(len(totals), "invoices, in all", sum(totals))


asyncio.run(main())
