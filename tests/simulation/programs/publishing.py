"""The publishers of the orders."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from typing import Final

from liftbridge_aio import AckPolicy, Client, LiftbridgeError, PublishOutcomeUnknown

from .program import PACE, PARTITIONS, STREAM, Orders, Program, Surroundings, new_client

LATE: Final = 13.0
"""Seconds after which each publish has ended: two timeouts, and a clock that may be slow."""


class Publishing(Program):
    """A publisher for each partition; the first hosts of every world."""

    hosts = ("p0", "p1")

    def __init__(self, world: Surroundings, orders: Orders) -> None:
        super().__init__(world, orders)
        self._numbers: Counter[int] = Counter()
        """Of each partition: how many messages were tried."""
        self._acked: set[int] = set()
        """The partitions whose last message was acked."""
        self.began: dict[int, float] = {}
        """Of each partition: when the newest acked message was sent."""
        self._offsets: dict[bytes, int] = {}
        """Where acked messages are."""
        self._done: set[int] = set()
        """The partitions whose publisher has done all."""

    async def work(self, host: str) -> None:
        """Publish one message after the other, and some by many."""
        partition = self.hosts.index(host)
        async with new_client(self.world) as client:
            while not self.orders.is_over or partition not in self._acked:
                count = self.world.chance.choice((1, 1, 1, 4))
                await asyncio.gather(*(self._publish(client, partition) for _ in range(count)))
                await asyncio.sleep(PACE * count)
            self._done.add(partition)
            await asyncio.Event().wait()

    async def _publish(self, client: Client, partition: int) -> None:
        number = self._numbers[partition]
        self._numbers[partition] += 1
        key = b"%d.%d" % (partition, number % 3)
        value, producer = b"%b/%d" % (key, number), f"p{partition}"
        history = self.orders.history
        history.sent(value, partition, producer=producer)
        self._acked.discard(partition)
        began = self.world.now
        try:
            ack = await client.publish(
                STREAM, value, key=key, partition=partition, ack_policy=AckPolicy.ALL
            )
        except (PublishOutcomeUnknown, asyncio.CancelledError) as error:
            history.unknown(value, partition, producer=producer)
            if isinstance(error, asyncio.CancelledError):
                raise
        except LiftbridgeError:
            history.refused(value, partition, producer=producer)
        else:
            history.acked(value, partition, producer=producer)
            self.orders.acked.add(value)
            self._acked.add(partition)
            self._offsets[value] = ack.offset
            self.began[partition] = max(began, self.began.get(partition, began))
        took = self.world.now - began
        assert took < LATE, f"a publish ended after {took:.1f} s"

    async def judge(self, client: Client) -> None:
        """Check that messages are where their acks have said."""
        excused = self.orders.losses.excused(STREAM)
        log = {value: at for each in self.orders.log.values() for at, value in each.items()}
        wrong = [
            (value, at, log[value])
            for value, at in self._offsets.items()
            if value not in excused and log[value] != at
        ]
        assert not wrong, f"acks named other offsets than the log has: {wrong[:5]}"

    def missing(self) -> Collection[bytes]:
        """Return the publishers that still publish."""
        return [b"p%d" % each for each in range(PARTITIONS) if each not in self._done]
