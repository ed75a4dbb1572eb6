"""Handle orders from a queue; stop in order on SIGTERM and Ctrl-C.

Start it several times: the members share the partitions. An order that fails is tried again, and
becomes a dead letter after three attempts.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from liftbridge_aio import Client
from liftbridge_aio.queue import DeadLetter, Delivery, Exponential, QueueOptions


async def handle(order: Delivery) -> None:
    """Handle one order; it is acked once this has returned."""
    print("handled", order.value.decode(), flush=True)


async def main() -> None:
    """Run the handler for up to eight orders at once."""
    async with Client.from_env() as client:
        await client.create_stream("orders", partitions=3, exist_ok=True)
        await client.create_stream("orders.dead", exist_ok=True)
        async with client.queue(
            "orders",
            group="billing",
            options=QueueOptions(
                max_attempts=3, retry=Exponential(1, max=60), dead_letter=DeadLetter("orders.dead")
            ),
        ) as queue:
            await queue.run(handle, concurrency=8)
    print("stopped in order")


logging.basicConfig(level=logging.INFO)
with suppress(KeyboardInterrupt):
    asyncio.run(main())
