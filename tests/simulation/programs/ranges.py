"""A publisher of batches, and readings of it with every start and every stop."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from liftbridge_aio import (
    Ack,
    AckPolicy,
    Client,
    LiftbridgeError,
    Message,
    PublishManyFailed,
    PublishOutcomeUnknown,
    Record,
    StartAt,
    StopAt,
)
from liftbridge_aio.testing import History, check_history

from .program import PACE, PARTITIONS, SAFE, Orders, Program, Surroundings, new_client

TARGET: Final = "batches"
STARTS: Final = ("earliest", "latest", "new_only", "offset", "time", "ago")
STOPS: Final = ("latest", "offset", "time", "none")
BEYOND: Final = 5
"""By how many offsets a stop is beyond what is stored when the reading begins."""


class Place(NamedTuple):
    """Where a message is stored, and when it was received, in Unix nanoseconds."""

    offset: int
    time: int

    @classmethod
    def of(cls, ack: Ack) -> Place:
        """Return where an acked message is."""
        return cls(ack.offset, ack.reception_timestamp)


class Range(NamedTuple):
    """What to read: `since` and `newest` are for the starts and stops that need a place."""

    start: str
    stop: str
    since: Place
    newest: Place
    ago: timedelta

    @property
    def start_at(self) -> StartAt:
        """The start."""
        return {
            "earliest": StartAt.earliest(),
            "latest": StartAt.latest(),
            "new_only": StartAt.new_only(),
            "offset": StartAt.offset(self.since.offset),
            "time": StartAt.time(self.since.time),
            "ago": StartAt.ago(self.ago),
        }[self.start]

    @property
    def stop_at(self) -> StopAt | None:
        """The stop; None: the reading is left after the newest."""
        return {
            "latest": StopAt.latest(),
            "offset": StopAt.offset(self.newest.offset + BEYOND),
            "time": StopAt.time(self.newest.time),
        }.get(self.stop)

    @property
    def may_be_empty(self) -> bool:
        """True if it may begin behind where it stops."""
        return self.start in {"new_only", "latest", "ago"} and self.stop in {"latest", "time"}

    def check(self, found: Sequence[Message]) -> None:
        """Check that what was found begins and ends where it should."""
        offsets = [each.offset for each in found]
        begins_right = {
            "earliest": offsets[:1] in ([], [0]),
            "offset": offsets[:1] in ([], [self.since.offset]),
            # Of messages of one instant, servers may find the first in the next segment.
            "time": not found
            or found[0].timestamp == self.since.time
            or (offsets[0] <= self.since.offset and found[0].timestamp > self.since.time),
        }
        ends_right = {
            "offset": offsets[-1:] == [self.newest.offset + BEYOND],
            "time": not found or found[-1].timestamp <= self.newest.time,
        }
        assert begins_right.get(self.start, True), f"{self}: {offsets}"
        assert ends_right.get(self.stop, True), f"{self}: {offsets}"


class Batching(Program):
    """A publisher of batches, and a reader that combines every start with every stop.

    A reading has the messages from its start to its stop, in order, none left out, whatever
    happens meanwhile. After the faults each combination reaches the newest message that was acked
    before.
    """

    hosts = ("batcher", "browser")
    may_end_with = (LiftbridgeError,)

    def __init__(self, world: Surroundings, orders: Orders) -> None:
        super().__init__(world, orders)
        self._history = History(clock=lambda: world.now)
        self._tried = 0
        self._acked: defaultdict[int, list[Place]] = defaultdict(list)
        """The places of each partition that were acked, in their order."""
        self._values: dict[tuple[int, int], bytes] = {}
        """What readers found, by partition and offset."""
        self._left = [*itertools.product(STARTS, STOPS)]
        """The combinations that have not reached the end yet."""

    async def prepare(self, client: Client) -> None:
        """Create the stream."""
        await client.create_stream(
            TARGET, partitions=PARTITIONS, replication_factor=3, options=SAFE
        )

    async def work(self, host: str) -> None:
        """Publish, or read."""
        async with new_client(self.world) as client:
            if host == "batcher":
                while True:
                    await self._publish(client)
                    await asyncio.sleep(2 * PACE)
            while True:
                await self._read(client)
                await asyncio.sleep(0.05)

    async def _publish(self, client: Client) -> None:
        """Publish a batch, whose outcome is known for each message, or unknown."""
        partition = self.world.chance.randrange(PARTITIONS)
        count = self.world.chance.randint(1, 8)
        values = [b"%d" % (self._tried + each) for each in range(count)]
        self._tried += count
        records = [Record(each, partition=partition) for each in values]
        for value in values:
            self._history.sent(value, partition, producer="batcher")
        outcomes: Sequence[object]
        try:
            outcomes = await client.publish_many(TARGET, records, ack_policy=AckPolicy.ALL)
        except PublishManyFailed as failed:
            outcomes = failed.outcomes
        except asyncio.CancelledError:
            for value in values:
                self._history.unknown(value, partition, producer="batcher")
            raise
        assert len(outcomes) == count, outcomes
        for value, outcome in zip(values, outcomes, strict=True):
            if isinstance(outcome, Ack):
                self._history.acked(value, partition, producer="batcher")
                self._values.setdefault((partition, outcome.offset), value)
                self._acked[partition].append(Place.of(outcome))
            elif isinstance(outcome, PublishOutcomeUnknown):
                self._history.unknown(value, partition, producer="batcher")
            else:
                self._history.refused(value, partition, producer="batcher")

    async def _read(self, client: Client) -> None:
        """Read with one start and one stop, and compare."""
        chance = self.world.chance
        partition = chance.randrange(PARTITIONS)
        acked = self._acked[partition]
        if not acked:
            return
        start, stop = chance.choice(self._left or [(STARTS[0], STOPS[0])])
        is_over, began, now = self.orders.is_over, self.world.now, time.time_ns()
        ago = timedelta(seconds=chance.uniform(0.0, 20.0))
        wanted = Range(start, stop, chance.choice(acked), acked[-1], ago)
        found = []
        reading = client.subscribe(
            TARGET, partition=partition, start=wanted.start_at, stop=wanted.stop_at
        )
        async with reading as messages:
            async for message in messages:
                found.append(message)
                if stop == "none" and message.offset >= wanted.newest.offset:
                    break
        wanted.check(found)
        if start == "ago" and found and self.world.clocks_were_right(began):
            assert found[0].timestamp >= now - ago // timedelta(microseconds=1) * 1000
        self._compare(partition, found)
        self._compare(partition, await client.last(TARGET, n=10, partition=partition))
        reached = found[-1].offset >= wanted.newest.offset if found else wanted.may_be_empty
        if is_over and reached:
            self._left = [each for each in self._left if each != (start, stop)]

    def _compare(self, partition: int, found: Sequence[Message]) -> None:
        """Check that none is left out, and that each is what it was before."""
        for before, after in itertools.pairwise(found):
            assert after.offset == before.offset + 1, (before, after)
            assert after.timestamp >= before.timestamp, (before, after)
        for each in found:
            known = self._values.setdefault((partition, each.offset), each.value)
            assert known == each.value, f"{each} was {known!r}"

    def missing(self) -> Collection[bytes]:
        """Return the combinations that have not reached the end."""
        return [f"{start} to {stop}".encode() for start, stop in self._left]

    async def judge(self, client: Client) -> None:
        """Check the history of the batches against all that is stored."""
        for partition in range(PARTITIONS):
            async with client.read(
                TARGET, start=StartAt.earliest(), partition=partition
            ) as messages:
                found = [each async for each in messages]
            self._compare(partition, found)
            for each in found:
                self._history.delivered(each.value, partition, reader="at the end")
            self._history.finished(partition, reader="at the end")
        check_history(self._history).raise_for_defects(allow_unread=True)
