"""Programs for real nodes only, besides those of the simulation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection
from typing import Final, cast

from chaos.world import RealWorld
from liftbridge_aio import Ack, AckPolicy, Client, LiftbridgeError, PublishOutcomeUnknown, StartAt
from liftbridge_aio.queue import Delivery
from simulation.programs.gateway import Serving
from simulation.programs.program import SAFE, STREAM, Orders, Program, Surroundings, new_client
from simulation.programs.queues import Queueing
from simulation.programs.retries import Retrying

TARGET: Final = "readings"
RATE: Final = 30.0
"""Messages a second that are published without waiting for acks."""
BUFFER: Final = 32 * 1024
"""Bytes that the slow reader may hold."""
SIZE: Final = 500
IDLE: Final = (1.0, 20.0)
"""Seconds for which the slow reader takes nothing, least and most."""
ENOUGH: Final = 100
"""Messages of which some must have been leased."""
CALL_BOUND: Final = 11.0
"""Seconds after which a call has ended: its timeout, and one more."""


class Leasing(Queueing):
    """Three members of a queue that share two partitions over NATS."""

    hosts = ("l1", "l2", "l3", "gravedigger")
    with_twins = ()
    group = "leasing"
    letters = "orders.leased.dead"
    concurrency = 1  # an owner alone is too slow at times

    def __init__(self, world: Surroundings, orders: Orders) -> None:
        super().__init__(world, orders)
        self._leased = 0

    @property
    def nats(self) -> str:
        """The NATS server of the nodes."""
        return cast("RealWorld", self.world).nats_url

    async def ship(self, delivery: Delivery) -> None:
        """Handle a message, and count it if another member owns its partition."""
        self._leased += delivery.answers.is_remote
        await super().ship(delivery)

    async def judge(self, client: Client) -> None:
        """Check that messages were leased, besides what holds for each queue."""
        await super().judge(client)
        assert self._leased or len(self.seen) < ENOUGH, "no message was leased"


class Relaying(Serving):
    """Two gateways, each of which can crash alone."""

    hosts = ("west", "east")


class Postponing(Retrying):
    """Members of a queue with retry streams that nobody deletes."""

    hosts = ("k1", "k2", "collector")


class Measuring(Program):
    """A publisher that waits for no ack, and a reader that is slow: both with AckPolicy.LEADER.

    Servers may lose what only the leader has acked. What the log has in the end is delivered once
    and in order, however far the reader was behind; it holds no more than it may.
    """

    hosts = ("meter", "plotter")
    may_end_with = (LiftbridgeError,)

    def __init__(self, world: Surroundings, orders: Orders) -> None:
        super().__init__(world, orders)
        self._tried = 0
        self._acked: dict[bytes, int] = {}
        """Offsets by value."""
        self._refused: set[bytes] = set()
        self._unsettled: set[asyncio.Future[Ack]] = set()
        self._given: dict[int, bytes] = {}
        """What the reader of this life was given, by offset."""
        self.lost = 0
        """How many acked messages the servers have lost."""

    async def prepare(self, client: Client) -> None:
        """Create the stream."""
        await client.create_stream(TARGET, replication_factor=3, options=SAFE)

    async def work(self, host: str) -> None:
        """Publish, or read."""
        async with new_client(self.world, max_buffered_bytes=BUFFER) as client:
            if host == self.hosts[0]:
                while True:
                    await self._publish(client)
                    await asyncio.sleep(1 / RATE)
            await self._read(client)

    async def _publish(self, client: Client) -> None:
        self._tried += 1
        value = b"%d".ljust(SIZE, b".") % self._tried
        try:
            future = await client.publish_async(TARGET, value, ack_policy=AckPolicy.LEADER)
        except PublishOutcomeUnknown:
            return
        except LiftbridgeError:
            self._refused.add(value)
            return
        self._unsettled.add(future)
        future.add_done_callback(lambda done: self._settle(value, done))

    def _settle(self, value: bytes, done: asyncio.Future[Ack]) -> None:
        self._unsettled.discard(done)
        if done.cancelled() or isinstance(error := done.exception(), PublishOutcomeUnknown):
            return
        if error is not None:
            self._refused.add(value)
        else:
            self._acked[value] = done.result().offset

    async def _read(self, client: Client) -> None:
        self._given = {}
        async with client.subscribe(
            TARGET, partition=0, start=StartAt.earliest(), resubscribe_timeout=None
        ) as messages:
            async for message in messages:
                assert message.offset == max(self._given, default=-1) + 1, message
                self._given[message.offset] = message.value
                if not self.orders.is_over and message.offset % 100 == 99:
                    await asyncio.sleep(self.world.chance.uniform(*IDLE))
                    held = messages.statistics().buffered_bytes
                    assert held <= BUFFER, f"the reader holds {held} bytes of {BUFFER}"

    def missing(self) -> Collection[bytes]:
        """Return the newest acked message until it was read."""
        newest = max(self._acked.values(), default=-1)
        return [] if max(self._given, default=-1) >= newest else [b"%d" % newest]

    async def judge(self, client: Client) -> None:
        """Check that what the log has was delivered, unless its offset had another message."""
        assert not self._unsettled, f"{len(self._unsettled)} publishes never ended"
        async with client.read(TARGET, partition=0, start=StartAt.earliest()) as messages:
            log = {each.offset: each.value async for each in messages}
        stored = {value: at for at, value in log.items()}
        assert len(stored) == len(log), "a message is stored twice"
        assert not self._refused & stored.keys(), "what was refused is stored"
        self.lost = len(self._acked.keys() - stored.keys())
        if not self.lost:
            assert self._acked.items() <= stored.items(), "acks named other offsets"
            assert self._given.items() <= log.items(), "the reader was given something else"


class Asking(Program):
    """Asks for metadata, as programs do that show figures: each call ends within its timeout."""

    hosts = ("board",)

    def __init__(self, world: Surroundings, orders: Orders) -> None:
        super().__init__(world, orders)
        self._answered: set[str] = set()
        """The calls that were answered after the faults."""

    async def work(self, host: str) -> None:  # noqa: ARG002 - there is one
        """Ask again and again; no call waits for another one."""
        async with new_client(self.world) as client, asyncio.TaskGroup() as asked:
            while True:
                asked.create_task(self._ask("metadata", client.fetch_metadata([STREAM])))
                asked.create_task(self._ask("state", client.fetch_partition_metadata(STREAM, 0)))
                asked.create_task(self._ask("ping", client.ping()))
                await asyncio.sleep(0.5)

    async def _ask(self, what: str, call: Awaitable[object]) -> None:
        is_over, began = self.orders.is_over, self.world.now
        try:
            await call
        except LiftbridgeError:
            is_over = False
        took = self.world.now - began
        assert took < CALL_BOUND, f"{what} took {took:.1f} s"
        if is_over:
            self._answered.add(what)

    def missing(self) -> Collection[bytes]:
        """Return the calls that were not answered yet."""
        return [
            each.encode() for each in ("metadata", "state", "ping") if each not in self._answered
        ]
