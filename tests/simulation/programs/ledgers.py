"""Writers that publish at the offset that they expect."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from liftbridge_aio import (
    AckPolicy,
    Client,
    IncorrectOffset,
    LiftbridgeError,
    PublishOutcomeUnknown,
    Retry,
    StartAt,
    StreamOptions,
)

from .program import PACE, Orders, Program, Surroundings, new_client

TARGET: Final = "accounts"


class Accounting(Program):
    """Two writers that publish at the offset that they expect, with retries.

    An acked entry stands at its offset, once, however often it was sent. A refused one is not
    stored. After the faults both have written again.
    """

    hosts = ("w1", "w2")
    with_twins = hosts
    may_end_with = (LiftbridgeError,)

    def __init__(self, world: Surroundings, orders: Orders) -> None:
        super().__init__(world, orders)
        self._acked: dict[int, bytes] = {}
        """The entries by their offsets."""
        self._refused: set[bytes] = set()
        self._tried = 0
        self._done: set[str] = set()
        """The hosts that have written after the faults."""

    async def prepare(self, client: Client) -> None:
        """Create the stream."""
        options = StreamOptions(min_isr=2, optimistic_concurrency_control=True)
        await client.create_stream(TARGET, replication_factor=3, options=options)

    async def work(self, host: str) -> None:
        """Write where the log ends; where another was first, look again where that is."""
        async with new_client(self.world) as client:
            expected = await self._end(client)
            while True:
                self._tried += 1
                is_over, value = self.orders.is_over, f"{host}/{self._tried}".encode()
                try:
                    ack = await client.publish(
                        TARGET,
                        value,
                        ack_policy=AckPolicy.ALL,
                        expected_offset=expected,
                        retry=Retry(attempts=5),
                    )
                except IncorrectOffset:
                    self._refused.add(value)
                    await asyncio.sleep(PACE / 2)
                    expected = await self._end(client)
                    continue
                except PublishOutcomeUnknown:
                    expected = await self._end(client)
                    continue
                assert ack.offset == expected, (ack, expected)
                assert expected not in self._acked, (ack, self._acked[expected])
                self._acked[expected] = value
                if is_over:
                    self._done.add(host)
                expected += 1
                await asyncio.sleep(self.world.chance.uniform(0.0, 2 * PACE))

    async def _end(self, client: Client) -> int:
        """Return the offset after the newest message."""
        newest = await client.last(TARGET, n=1, partition=0)
        return newest[0].offset + 1 if newest else 0

    def missing(self) -> Collection[bytes]:
        """Return the hosts that have not written yet."""
        return [each.encode() for each in self.hosts if each not in self._done]

    async def judge(self, client: Client) -> None:
        """Check that the log has what was acked where it was, and nothing that was refused."""
        async with client.read(TARGET, start=StartAt.earliest()) as messages:
            log = {each.offset: each.value async for each in messages}
        assert self._acked.items() <= log.items(), self._acked.items() - log.items()
        values = [*log.values()]
        assert len(values) == len(set(values)), "an entry was stored twice"
        assert not self._refused & set(values), self._refused & set(values)
