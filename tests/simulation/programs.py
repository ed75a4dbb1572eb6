"""Programs of users in a simulated world, each on hosts of its own, and what they have seen.

A program is started again after its process was killed or stopped. What it has seen outlives it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar, Final, NoReturn

import httpx2

from liftbridge_aio import (
    ALL_PARTITIONS,
    AckPolicy,
    Client,
    ClientOptions,
    ConnectionFailed,
    ConsumerGroup,
    GroupState,
    Isolation,
    LiftbridgeError,
    Message,
    NotFound,
    PublishOutcomeUnknown,
    RequestTimeout,
    StartAt,
    StreamOptions,
)
from liftbridge_aio.durable_streams import START, DurableStream, IdempotentProducer
from liftbridge_aio.durable_streams.gateway import Gateway, GatewayOptions
from liftbridge_aio.groups.core.group_plan import OnReset
from liftbridge_aio.options import OWN_STREAM
from liftbridge_aio.queue import DeadLetter, Delivery, Exponential, Order, Queue
from liftbridge_aio.testing import History
from liftbridge_aio.testing.simulation.world import PORT, World
from liftbridge_aio.transactions import (
    CheckpointStream,
    CommitInDoubt,
    TransactionAborted,
    TransactionError,
)

from .flaws import CutMessages

STREAM: Final = "orders"
PARTITIONS: Final = 2
SAFE: Final = StreamOptions(min_isr=2)
PACE: Final = 0.2
"""Seconds between two messages of a publisher."""
OUTAGE: Final = (ConnectionFailed, RequestTimeout)
"""With what a process ends that starts in an outage longer than its calls may take."""
POISON: Final = 0.03
"""The part of the messages that no handler of the queue can handle."""


def new_client(world: World) -> Client:
    """Return a client that soon sees that a broker is gone."""
    options = ClientOptions(health_interval=1.0, health_timeout=1.5, publish_timeout=5.0)
    return Client(*(f"{each}:{PORT}" for each in world.broker_ids), options=options)


class Orders:
    """What was published to the stream that all programs read.

    Args:
        world: where they are.

    Attributes:
        history: of the publishers and of who reads in order.
        acked: values that servers have stored for sure.
        log: the values of each partition by offset, read at the end.
    """

    def __init__(self, world: World) -> None:
        self.history = History(clock=lambda: world.now)
        self.acked: set[bytes] = set()
        self.log: dict[int, dict[int, bytes]] = {}
        self._world = world
        self._cut_messages = CutMessages(world)

    def excused(self, stream: str = STREAM) -> set[bytes]:
        """Return the values that readers of a stream need not see, as servers have lost them."""
        if not self._world.flaws.cuts_committed:
            return set()
        return self._cut_messages.excused(self._world.cluster, stream)

    @property
    def owed(self) -> set[bytes]:
        """The values that were acked, but for those that are excused."""
        return self.acked - self.excused()


class Program:
    """What users run.

    Args:
        world: where it runs.
        orders: what it reads.
    """

    hosts: ClassVar[tuple[str, ...]]
    """Each is a process of the program."""
    with_twins: ClassVar[tuple[str, ...]] = ()
    """Hosts whose process may run twice for a while: one is taken for dead, and is not."""
    may_end_with: ClassVar[tuple[type[Exception], ...]] = ()
    """Errors with which a process may end by the docs, to be started again."""

    def __init__(self, world: World, orders: Orders) -> None:
        self.world = world
        self.orders = orders
        self.seen: Counter[bytes] = Counter()
        self.members: dict[str, ConsumerGroup | Queue[Delivery]] = {}
        """The members that run, by their hosts."""

    async def prepare(self, client: Client) -> None:
        """Create what the program needs besides the stream of orders."""

    async def work(self, host: str) -> None:
        """Be a process, until it is cancelled or its host crashes."""
        raise NotImplementedError

    def missing(self) -> Collection[bytes]:
        """Return what it must have seen by now and has not, and hosts whose member is out."""
        out = (host for host, each in self.members.items() if each.state is not GroupState.STABLE)
        return {*(self.orders.owed - self.seen.keys()), *map(str.encode, out)}

    @property
    def on_reset(self) -> OnReset:
        """What members do if a log has lost what they had read."""
        return "start" if self.world.flaws.cuts_committed else "error"

    async def judge(self, client: Client) -> None:
        """Check what it has seen, and what it has left in the servers."""


class Publishing(Program):
    """A publisher for each partition; the first hosts of every world."""

    hosts = ("p0", "p1")

    def __init__(self, world: World, orders: Orders) -> None:
        super().__init__(world, orders)
        self.is_over = False
        """Set when no more messages are to come."""
        self._numbers: Counter[int] = Counter()
        """Of each partition: how many messages were tried."""
        self._acked: set[int] = set()
        """The partitions whose last message was acked."""
        self._done: set[int] = set()
        """The partitions whose publisher has done all."""

    async def work(self, host: str) -> None:
        """Publish one message after the other, and some by many."""
        partition = self.hosts.index(host)
        async with new_client(self.world) as client:
            while not self.is_over or partition not in self._acked:
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
        try:
            await client.publish(
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

    def missing(self) -> Collection[bytes]:
        """Return the publishers that still publish."""
        return [b"p%d" % each for each in range(PARTITIONS) if each not in self._done]


class Reading(Program):
    """A subscription that resumes by itself, from the earliest message on in each life."""

    hosts = ("reader",)

    def __init__(self, world: World, orders: Orders) -> None:
        super().__init__(world, orders)
        self._lives = 0

    async def work(self, host: str) -> None:
        """Read everything."""
        self._lives += 1
        reader = f"live {self._lives}"
        self.seen.clear()
        async with (
            new_client(self.world) as client,
            client.subscribe(
                STREAM, ALL_PARTITIONS, StartAt.earliest(), resubscribe_timeout=None
            ) as messages,
        ):
            async for message in messages:
                self.orders.history.delivered(message.value, message.partition, reader=reader)
                self.seen[message.value] += 1


class DurableReading(Program):
    """A subscription whose position is in cursors: each life goes on where the last one stopped."""

    hosts = ("durable",)

    async def work(self, host: str) -> None:
        """Read on."""
        async with (
            new_client(self.world) as client,
            client.subscribe(
                STREAM,
                ALL_PARTITIONS,
                StartAt.earliest(),
                cursor="audit",
                cursor_interval=1.0,
                resubscribe_timeout=None,
            ) as messages,
        ):
            last = dict.fromkeys(range(PARTITIONS), -1)
            async for message in messages:
                assert message.offset > last[message.partition], message
                last[message.partition] = message.offset
                await asyncio.sleep(self.world.chance.choice((0.0, 0.05, 0.2)))
                self.seen[message.value] += 1


class Grouping(Program):
    """Members of a consumer group."""

    hosts = ("g1", "g2", "g3")
    with_twins = hosts
    may_end_with = OUTAGE

    async def work(self, host: str) -> None:
        """Be a member."""

        async def handle(message: Message) -> None:
            await asyncio.sleep(self.world.chance.choice((0.0, 0.0, 0.1)))
            self.seen[message.value] += 1

        async with (
            new_client(self.world) as client,
            client.group(
                "billing", [STREAM], start=StartAt.earliest(), on_reset=self.on_reset
            ) as group,
        ):
            self.members[host] = group
            await group.run(handle, concurrency=2, stop_on_signals=False)


class Queueing(Program):
    """Members of a queue: order by key, failures, handlers that hang, dead letters.

    A reader follows the dead letters.
    """

    hosts = ("q1", "q2", "undertaker")
    with_twins = ("q1", "q2")
    may_end_with = OUTAGE

    def __init__(self, world: World, orders: Orders) -> None:
        super().__init__(world, orders)
        self._order: dict[bytes, dict[bytes, None]] = defaultdict(dict)
        """The values of each key, in the order of their first success."""
        self._letters: set[bytes] = set()
        """The values of the dead letters."""

    async def prepare(self, client: Client) -> None:
        """Create the stream of dead letters."""
        await client.create_stream("orders.dead", replication_factor=3, options=SAFE)

    async def work(self, host: str) -> None:
        """Be a member, or read dead letters."""
        async with new_client(self.world) as client:
            if host == self.hosts[-1]:
                async with client.subscribe(
                    "orders.dead", 0, StartAt.earliest(), resubscribe_timeout=None
                ) as letters:
                    async for letter in letters:
                        self._letters.add(letter.value)
            async with client.queue(
                STREAM,
                group="shipping",
                start=StartAt.earliest(),
                order=Order.KEY,
                ack_wait=5.0,
                retry=Exponential(0.1, max=2.0),
                max_attempts=0,
                dead_letter=DeadLetter("orders.dead"),
                on_reset=self.on_reset,
            ) as queue:
                self.members[host] = queue
                await queue.run(self._ship, concurrency=4, stop_on_signals=False)

    async def _ship(self, delivery: Delivery) -> None:
        assert delivery.key is not None
        chance = self.world.chance
        await asyncio.sleep(chance.uniform(0.0, 0.3))
        if self.is_poison(delivery.value):
            await delivery.reject("it cannot be shipped")
            return
        if chance.random() < 0.1:
            raise RuntimeError("refused once")
        if chance.random() < 0.01:
            await asyncio.sleep(60)  # until ack_wait is over
        self.seen[delivery.value] += 1
        self._order[delivery.key][delivery.value] = None

    @staticmethod
    def is_poison(value: bytes) -> bool:
        """Return True for a message that becomes a dead letter."""
        number = value.rpartition(b"/")[2]
        return number.isdigit() and int(number) % round(1 / POISON) == 1

    def missing(self) -> Collection[bytes]:
        """Return acked messages that were neither shipped nor dead-lettered, and hosts as usual."""
        letters = self._letters | self.orders.excused("orders.dead")
        return {
            each for each in super().missing() if not self.is_poison(each) or each not in letters
        }

    async def judge(self, client: Client) -> None:
        """Check the order of each key, and that only poisonous messages became dead letters."""
        excused = self.orders.excused()
        for partition, log in self.orders.log.items():
            offsets = {value: at for at, value in sorted(log.items(), reverse=True)}
            for key, shipped in self._order.items():
                if key.startswith(b"%d." % partition):
                    first = [offsets[value] for value in shipped if value not in excused]
                    assert first == sorted(first), (
                        f"key {key!r} was shipped in another order: {first}"
                    )
        assert all(map(self.is_poison, self._letters))


class Invoicing(Program):
    """Reads, processes and writes exactly once, with a producer and its store.

    A committed reader follows the results.
    """

    hosts: ClassVar[tuple[str, ...]] = ("invoicer", "auditor")
    with_twins: ClassVar[tuple[str, ...]] = ("invoicer",)
    may_end_with = (TransactionError, *OUTAGE)
    target = "invoices"

    async def prepare(self, client: Client) -> None:
        """Create the stream of results."""
        await client.create_stream(
            self.target, partitions=PARTITIONS, replication_factor=3, options=SAFE
        )

    async def work(self, host: str) -> None:
        """Produce, or follow."""
        async with new_client(self.world) as client:
            if host == self.hosts[-1]:
                await self._follow(client)
            else:
                await self._produce(client, host)

    async def _follow(self, client: Client) -> None:
        self.seen.clear()
        async with client.subscribe(
            self.target,
            ALL_PARTITIONS,
            StartAt.earliest(),
            isolation=Isolation.READ_COMMITTED,
            resubscribe_timeout=None,
        ) as results:
            async for result in results:
                self.seen[result.value] += 1
                assert self.seen[result.value] == 1, f"{result} was committed twice"

    async def _produce(self, client: Client, host: str) -> None:
        """Read on where the store says, and write an invoice for each order."""
        async with (
            client.producer("invoicer", store=CheckpointStream("checkpoints")) as producer,
            client.subscribe(
                STREAM,
                ALL_PARTITIONS,
                StartAt.earliest(),
                positions=producer,
                resubscribe_timeout=None,
            ) as orders,
        ):
            async for batch in orders.batches(max=100, wait=0.5):
                try:
                    async with producer.transaction(orders) as txn:
                        for order in batch:
                            await txn.publish(self.target, order.value, key=order.key)
                except TransactionAborted:
                    continue  # the same messages come again

    async def judge(self, client: Client) -> None:
        """Check that committed readers see each order once, wherever they start."""
        found = [await self._committed(client, each) for each in range(PARTITIONS)]
        values = Counter(each.value for messages in found for each in messages)
        doubled = [value for value, count in values.items() if count > 1]
        assert not doubled, f"{self.target}: committed twice: {doubled}"
        ordered = {value for log in self.orders.log.values() for value in log.values()}
        lost, invented = self.orders.acked - values.keys(), values.keys() - ordered
        assert not lost, f"{self.target}: lost: {sorted(lost)[:5]}"
        assert not invented, f"{self.target}: of no order: {sorted(invented)[:5]}"
        for partition, messages in enumerate(found):
            if not messages:
                continue
            start = self.world.chance.randrange(messages[-1].offset + 1)
            rest = await self._committed(client, partition, start)
            expected = [each.value for each in messages[len(messages) - len(rest) :]]
            assert [each.value for each in rest] == expected, f"from offset {start}"

    async def _committed(self, client: Client, partition: int, start: int = 0) -> list[Message]:
        reading = client.read(
            self.target,
            StartAt.offset(start),
            partition=partition,
            isolation=Isolation.READ_COMMITTED,
        )
        async with reading as messages:
            return [each async for each in messages]


class Receipting(Invoicing):
    """A queue whose deliveries are acked together with their results."""

    hosts = ("r1", "r2", "accountant")
    with_twins = ("r1", "r2")
    target = "receipts"

    async def _produce(self, client: Client, host: str) -> None:
        """Be a member."""
        async with (
            client.queue(
                STREAM, group="receipts", start=StartAt.earliest(), ack_wait=5.0, retry=0.2
            ) as queue,
            asyncio.TaskGroup() as tasks,
        ):
            self.members[host] = queue
            for _ in range(3):
                tasks.create_task(self._write(queue))

    async def _write(self, queue: Queue[Delivery]) -> None:
        async for delivery in queue:
            try:
                async with delivery, delivery.transaction() as transaction:
                    await transaction.publish(self.target, delivery.value, key=delivery.key)
            except CommitInDoubt:
                continue  # the queue goes on with it


class Producing(Program):
    """A producer of single messages, which are repeated until they are stored, and shown once."""

    hosts = ("producer", "counter")
    may_end_with = (LiftbridgeError,)
    target = "numbers"

    def __init__(self, world: World, orders: Orders) -> None:
        super().__init__(world, orders)
        self._stored: set[bytes] = set()
        self._tried = 0

    async def prepare(self, client: Client) -> None:
        """Create the stream of numbers."""
        await client.create_stream(self.target, replication_factor=3, options=SAFE)

    async def work(self, host: str) -> None:
        """Publish, or count."""
        async with new_client(self.world) as client:
            if host == self.hosts[0]:
                producer = client.producer()
                while True:
                    self._tried += 1
                    value = b"%d" % self._tried
                    await producer.publish(self.target, value)
                    self._stored.add(value)
                    await asyncio.sleep(PACE / 2)
            seen = self.seen = Counter()
            async with client.subscribe(
                self.target,
                0,
                StartAt.earliest(),
                isolation=Isolation.READ_COMMITTED,
                resubscribe_timeout=None,
            ) as numbers:
                async for number in numbers:
                    seen[number.value] += 1
                    assert seen[number.value] == 1, f"{number} was shown twice"

    def missing(self) -> Collection[bytes]:
        """Return what was stored and not shown."""
        return self._stored - self.seen.keys()


class Recreating(Program):
    """A group whose streams are deleted under it: one for ever, one is created again and longer."""

    hosts = ("operator", "c1", "c2")
    may_end_with = (LiftbridgeError,)
    target = "ledger"
    passing = "passing"

    def __init__(self, world: World, orders: Orders) -> None:
        super().__init__(world, orders)
        self._round = 0
        """How often the stream was created."""
        self._stored: set[bytes] = set()
        """What servers have stored in the stream that there is."""
        self._streams = [self.target, self.passing]

    async def prepare(self, client: Client) -> None:
        """Create the streams."""
        for stream in self._streams:
            await client.create_stream(stream, replication_factor=3, options=SAFE)

    async def work(self, host: str) -> None:
        """Delete, create and publish; or be a member."""
        async with new_client(self.world) as client:
            if host == self.hosts[0]:
                await self._operate(client)
            group = client.group(
                "clerks", self._streams, start=StartAt.earliest(), on_reset="start"
            )
            async with group:
                self.members[host] = group
                await group.run(self._handle, concurrency=2, stop_on_signals=False)

    async def _handle(self, message: Message) -> None:
        self.seen[message.value] += 1

    async def _operate(self, client: Client) -> NoReturn:
        while True:
            number = len(self._stored)
            if number >= 20 * (self._round + 1):
                await self._create_again(client)
                continue
            value = b"%d/%d" % (self._round, number)
            await client.publish(self.target, value, ack_policy=AckPolicy.ALL)
            self._stored.add(value)
            await asyncio.sleep(PACE)

    async def _create_again(self, client: Client) -> None:
        """Delete both streams the first time, and one from then on; it becomes longer each time."""
        self._round += 1
        self._stored = set()
        self._streams = [self.target]
        for stream in (self.target, self.passing):
            with suppress(NotFound):
                await client.delete_stream(stream)
        await client.create_stream(self.target, replication_factor=3, options=SAFE, exist_ok=True)

    def missing(self) -> Collection[bytes]:
        """Return what is stored and was not handled, and hosts whose member is out."""
        out = (host for host, each in self.members.items() if each.state is not GroupState.STABLE)
        return {*(self._stored - self.seen.keys()), *map(str.encode, out)}


class Serving(Program):
    """The gateway; a producer of it that numbers its batches, and a reader that follows."""

    hosts = ("gateway",)
    may_end_with = (LiftbridgeError,)

    def __init__(self, world: World, orders: Orders) -> None:
        super().__init__(world, orders)
        self._stored: set[int] = set()
        """Numbers whose append was answered."""
        self._followed: list[int] = []
        """What the reader of this life has seen."""
        self._tried = 0
        self._lives = 0

    async def work(self, host: str) -> None:
        """Serve, append numbers, and follow them."""
        settings = GatewayOptions(replication_factor=3, stream=replace(OWN_STREAM, min_isr=2))
        self._lives += 1
        self._followed = []
        async with new_client(self.world) as client, Gateway(client, settings) as app:
            transport = httpx2.ASGITransport(app)
            async with (
                httpx2.AsyncClient(transport=transport) as http,
                DurableStream("http://localhost/v1/stream/numbers", http=http) as stream,
            ):
                await stream.create(content_type="application/json")
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._append(stream))
                    tasks.create_task(self._follow(stream))

    async def _append(self, stream: DurableStream) -> None:
        async with IdempotentProducer(stream, "till", epoch=self._lives) as producer:
            while True:
                number, self._tried = self._tried, self._tried + 1
                await producer.append(number)
                self._stored.add(number)
                await asyncio.sleep(2 * PACE)

    async def _follow(self, stream: DurableStream) -> None:
        async for item, _ in stream.read(offset=START, live=True):
            self._followed.append(item)

    def missing(self) -> Collection[bytes]:
        """Return the numbers that were stored and not followed."""
        return [b"%d" % each for each in self._stored - set(self._followed)]

    async def judge(self, client: Client) -> None:
        """Check that each number came once, and in order."""
        assert self._followed == sorted(set(self._followed))


AT_LEAST_ONCE: Final[tuple[type[Program], ...]] = (Reading, DurableReading, Grouping, Queueing)
"""Those that go on with what there is where servers have lost messages."""
ALL: Final[tuple[type[Program], ...]] = (
    *AT_LEAST_ONCE,
    Invoicing,
    Receipting,
    Producing,
    Recreating,
    Serving,
)
