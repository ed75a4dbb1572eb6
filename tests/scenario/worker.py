"""The worker, from orders to invoices, as a process: `python -m scenario.worker SERVERS`.

It makes each invoice twice: in transactions, and plainly, with a cursor that it commits behind what
it has published. It ends by an error where it cannot go on; whoever started it starts it again.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from liftbridge_aio import Client, Record, StartAt
from liftbridge_aio.transactions import CheckpointStream
from scenario.orders import INVOICES, ORDERS, PARTITIONS, PLAIN_CURSOR, PLAIN_INVOICES

_AT_A_TIME: Final = 200
_PLAIN_AT_A_TIME: Final = 1000
"""Orders whose invoices are published before the cursor is committed."""


async def invoice(client: Client) -> None:
    """Make invoices in transactions, with the positions that were read."""
    async with (
        client.producer("invoicer", store=CheckpointStream("checkpoints")) as producer,
        client.subscribe(
            ORDERS,
            start=StartAt.earliest(),
            positions=producer,
            committed=True,
        ) as orders,
    ):
        async for batch in orders.batches(max_size=_AT_A_TIME, wait=0.1):
            async with producer.transaction(orders) as txn:
                for order in batch:
                    await txn.publish(INVOICES, order.value, partition=order.partition)


async def invoice_plainly(client: Client, partition: int) -> None:
    """Make the invoices of a partition at least once."""
    position = await client.fetch_cursor(PLAIN_CURSOR, ORDERS, partition)
    start = StartAt.earliest() if position is None else StartAt.offset(position + 1)
    count = 0
    orders = client.subscribe(ORDERS, partition=partition, start=start, committed=True)
    async for batch in orders.batches(max_size=_AT_A_TIME, wait=0.1):
        records = [Record(order.value, partition=partition) for order in batch]
        await client.publish_many(PLAIN_INVOICES, records)
        count += len(batch)
        if count >= _PLAIN_AT_A_TIME:
            await client.set_cursor(PLAIN_CURSOR, ORDERS, partition, batch[-1].offset)
            count = 0


async def main(servers: str) -> None:
    """Work until something fails, or until the process is ended."""
    async with Client(*servers.split(",")) as client, asyncio.TaskGroup() as group:
        group.create_task(invoice(client))
        for partition in range(PARTITIONS):
            group.create_task(invoice_plainly(client, partition))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
