"""Follow all partitions of a stream, with a note on each lost and regained connection."""

from __future__ import annotations

import asyncio
import sys

from liftbridge_aio import Client, ClientOptions, Hook, StartAt
from liftbridge_aio.telemetry import Lost, Resubscribed


class Notes(Hook):
    """Writes what happens to the connection to stderr."""

    def lost(self, event: Lost) -> None:
        """Report a lost connection."""
        print(f"lost {event.address}: {event.reason}", file=sys.stderr)

    def resubscribed(self, event: Resubscribed) -> None:
        """Report that a partition is followed again."""
        print(f"back after {event.seconds:.1f} s", file=sys.stderr)


async def main() -> None:
    """Print messages until interrupted."""
    async with Client.from_env(options=ClientOptions(hook=Notes())) as client:
        await client.create_stream("orders", partitions=3, exist_ok=True)
        orders = client.subscribe("orders", start=StartAt.earliest())
        async for order in orders:
            print(order.partition, order.offset, order.value.decode(), flush=True)


try:
    asyncio.run(main())
except KeyboardInterrupt:
    sys.exit(130)
