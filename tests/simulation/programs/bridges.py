"""A mirror of the orders in another cluster."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Final

from liftbridge_aio import Client, Message, StartAt
from liftbridge_aio.bridge import MARKER_HEADER, Bridge

from .program import (
    OUTAGE,
    PARTITIONS,
    SAFE,
    STREAM,
    Program,
    new_client,
)

LATE: Final = 8.0
"""Seconds after which a bridge may start, so that many messages wait, and many go at once."""
MIRROR: Final = replace(SAFE, optimistic_concurrency_control=True)


class Mirroring(Program):
    """A bridge that copies the orders to the other cluster, and a reader there."""

    hosts = ("bridge", "visitor")
    with_twins = ("bridge",)
    may_end_with = OUTAGE
    clusters = 2

    async def prepare(self, client: Client) -> None:
        """Create the target: one that the bridge created would have one replica."""
        async with new_client(self.world, 1) as there:
            await there.create_stream(
                STREAM, partitions=PARTITIONS, replication_factor=3, options=MIRROR
            )

    async def work(self, host: str) -> None:
        """Copy, or read the copies."""
        if host != self.hosts[-1]:
            await asyncio.sleep(self.world.chance.choice((0.0, 0.0, LATE)))
            urls = (
                f"liftbridge://{','.join(self.world.addresses(each))}/{STREAM}"
                for each in range(self.clusters)
            )
            await Bridge(*urls).run()
            return
        seen = self.seen = Counter()
        async with (
            new_client(self.world, 1) as client,
            client.subscribe(
                STREAM, start=StartAt.earliest(), resubscribe_timeout=None
            ) as messages,
        ):
            async for message in messages:
                if is_copy(message):
                    seen[message.value] += 1
                    assert seen[message.value] == 1, f"{message} was copied twice"

    async def judge(self, client: Client) -> None:
        """Check that each partition has what the source has, in that order."""
        async with new_client(self.world, 1) as there:
            for partition, log in self.orders.log.items():
                async with there.read(STREAM, partition=partition) as messages:
                    copied = [each.value async for each in messages if is_copy(each)]
                assert copied == [value for _, value in sorted(log.items())], (
                    f"partition {partition} was copied in another way"
                )


def is_copy(message: Message) -> bool:
    """Return True for a message that is no marker."""
    return MARKER_HEADER not in message.headers
