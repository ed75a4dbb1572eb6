"""Numbered messages to every partition, without pause, whatever happens to the servers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from liftbridge_aio import AckPolicy, Client, LiftbridgeError
from support.groups.group_history import Place

PAUSE: Final = 0.1
"""Seconds from an ack to the next message: work for the readers, and time for everybody else."""


@dataclass(slots=True)
class Publishing:
    """The messages that were published and acked by all replicas.

    Attributes:
        ends: The last offset of each partition that was acked.
        acked: The value of each acked offset.
        stopping: Set when there is to be nothing more.
        sent: The number of the latest message; values are numbers from 0 up.
    """

    ends: dict[Place, int] = field(default_factory=dict)
    acked: dict[tuple[Place, int], str] = field(default_factory=dict)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    sent: int = -1

    def stop(self) -> None:
        """Publish nothing more."""
        self.stopping.set()


@asynccontextmanager
async def publishing(client: Client, places: Iterable[Place]) -> AsyncIterator[Publishing]:
    """Publish to all these partitions at once until `stop` is called or the context ends."""
    state = Publishing()
    numbers = itertools.count()

    async def publish(place: Place) -> None:
        while not state.stopping.is_set():
            state.sent = next(numbers)
            value = str(state.sent)
            with suppress(LiftbridgeError):
                ack = await client.publish(
                    place.stream,
                    value.encode(),
                    partition=place.partition,
                    ack_policy=AckPolicy.ALL,
                    ack_timeout=1.0,
                    timeout=3.0,
                )
                assert ack is not None
                state.ends[place] = max(ack.offset, state.ends.get(place, -1))
                state.acked[place, ack.offset] = value
            with suppress(TimeoutError):
                await asyncio.wait_for(state.stopping.wait(), PAUSE)

    async with asyncio.TaskGroup() as tasks:
        for place in places:
            tasks.create_task(publish(place))
        try:
            yield state
        finally:
            state.stopping.set()
