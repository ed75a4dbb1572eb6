"""Members of a queue that share one partition over NATS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from liftbridge_aio import Client
from liftbridge_aio._client.typed_stream import TypedStream
from liftbridge_aio.queue import Delivery, Queue
from support.queues import after, queue_arguments
from support.raw import BOUND, eventually


@asynccontextmanager
async def members(
    client: Client | TypedStream[Any, Any], stream: str, nats: str, count: int = 2, **other: Any
) -> AsyncIterator[list[Queue[Any]]]:
    """So many members of a group, the first of which owns the partition."""
    place = (stream,) if isinstance(client, Client) else ()
    settings = {"group": "g", "retry": after(0.05), "timeout": BOUND, "nats": nats}
    async with AsyncExitStack() as stack:
        queues = []
        for _ in range(count):
            queue: Queue[Any] = client.queue(*place, **queue_arguments(**{**settings, **other}))
            queues.append(await stack.enter_async_context(queue))
        await eventually(lambda: len({each._member.epoch for each in queues}) == 1)
        await eventually(lambda: sum(len(each.assignment) for each in queues) == 1)
        yield sorted(queues, key=lambda each: not each.assignment)


async def take(queue: Queue[Delivery], count: int = 1) -> list[Delivery]:
    async with asyncio.timeout(BOUND):
        return [await anext(queue) for _ in range(count)]
