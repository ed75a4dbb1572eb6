"""Handle orders as a member of a group; stop in order on SIGTERM and Ctrl-C.

Start it several times: the members share the partitions, and take over from each other.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from liftbridge_aio import Client, Message, StartAt


async def handle(order: Message) -> None:
    """Handle one order; its position is committed once this has returned."""
    print("handled", order.value.decode(), flush=True)


async def main() -> None:
    """Run the handler for up to eight partitions at once."""
    async with Client.from_env() as client:
        await client.create_stream("orders", partitions=3, exist_ok=True)
        async with client.group("billing", ["orders"], start=StartAt.earliest()) as group:
            await group.run(handle, concurrency=8)
    print("stopped in order")


logging.basicConfig(level=logging.INFO)
with suppress(KeyboardInterrupt):
    asyncio.run(main())
