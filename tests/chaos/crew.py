"""The clients of a run and all that they do at once."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final, TypeAlias

from chaos.http_load import HttpLoad
from chaos.journal import Place
from chaos.load import Load
from chaos.queues import LEASED_STREAM, Queues
from chaos.queues import STREAM as QUEUE_STREAM
from chaos.readers import Member, Reader
from chaos.stage import Stage
from chaos.transactions import STREAM as TRANSACTION_STREAM
from chaos.transactions import Transactions
from chaos.watch import KEPT, Told, Watch
from liftbridge_aio import AckPolicy, Client, ClientOptions, StreamOptions
from liftbridge_aio.testing import EventKind

ALL_STREAMS: Final = ("all-a", "all-b", "all-c")
LEADER_STREAM: Final = "leader"
FLIPPED_STREAM: Final = "damaged"
STREAMS: Final = (
    *(*ALL_STREAMS, LEADER_STREAM, FLIPPED_STREAM),
    *(TRANSACTION_STREAM, QUEUE_STREAM, LEASED_STREAM),
)
PARTITIONS: Final = 2
RATE: Final = 20.0
"""Messages a second to each partition."""
MEMBERS: Final = 3
GROUP: Final = "members"
OPTIONS: Final = ClientOptions(
    # The defaults find a half-open link within 14 seconds, which is for quiet networks.
    health_interval=1.0,
    health_timeout=1.5,
    connect_timeout=2.0,
    publish_timeout=5.0,
    ack_timeout=5.0,
)
SLOW_OPTIONS: Final = dataclasses.replace(OPTIONS, max_buffered_bytes=32 * 1024)
CLOSE_WITHIN: Final = 6.0
"""Seconds: `close_timeout`, and one that tasks always get to end."""
SETTLE_WITHIN: Final = 12.0
SLOW_FOR: Final = 120.0
"""Seconds that the slow reader takes nothing."""
SURELY_STOPPED: Final = 60.0
"""Seconds after which far more was published than the slow reader may hold."""
READING_FOR: Final = 1.0
LAG_POLL: Final = 0.05

Part: TypeAlias = Transactions | Queues | HttpLoad
"""A part of the load that has a judge of its own."""


class Crew:
    """Clients, and those who publish, read and store with them.

    Attributes:
        clients: Those that write, read, and read beside the first reader.
        readers: Subscriptions.
        members: Members of the group.
        parts: What else goes on, by name, each with a judge of its own.
        told: What clients told of themselves, and when.
        longest_lag: How late the event loop itself was, in seconds.
        most_held: Of the slow reader while it took nothing: messages and bytes that the client
            held, and messages that were published meanwhile.
    """

    def __init__(
        self,
        stage: Stage,
        load: Load,
        guard: Callable[[], Coroutine[Any, Any, None]],
        *,
        http: bool,
    ) -> None:
        """Make a crew that is not at work yet.

        Args:
            stage: the servers.
            load: what is noted.
            guard: what else goes on while the load does.
            http: whether there is load over HTTP.
        """
        self.clients: list[Client] = []
        self.readers: list[Reader] = []
        self.members: list[Member] = []
        self.parts: dict[str, Part] = {}
        self.told: deque[tuple[float, str, Told]] = deque(maxlen=KEPT)
        self.longest_lag = 0.0
        self.most_held = (0, 0, 0)
        self._stage = stage
        self._load = load
        self._guard = guard
        self._has_http = http

    @property
    def places(self) -> list[tuple[str, int]]:
        """The partitions that nothing of may be lost."""
        return [(stream, number) for stream in ALL_STREAMS for number in range(PARTITIONS)]

    @asynccontextmanager
    async def at_work(self, whole: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
        """Clients at work, until the context is left.

        Args:
            whole: waits until the streams that were just created have all replicas.
        """
        load = self._load
        async with AsyncExitStack() as stack:
            seeds = list(self._stage.advertised.values())
            clients = [
                Client(*seeds, options=dataclasses.replace(options, hook=self.watch(name)))
                for name, options in (
                    *((each, OPTIONS) for each in ("writer", "reader", "second")),
                    ("slow", SLOW_OPTIONS),
                )
            ]
            # In the addresses that it learns, and in those that it is told of.
            flipping = Client(
                *(each.address for each in self._stage.flipping.values()),
                options=dataclasses.replace(OPTIONS, address_map=self._stage.flip_address),
            )
            for client in (*clients, flipping):
                stack.push_async_callback(self._close, client)
                await client.connect()
            await _create_streams(clients[0])
            await whole()
            self.clients = clients[:3]
            work = self._work(clients, flipping)
            if self._has_http:
                http = self.parts["over HTTP"] = HttpLoad(load, seeds, self._stage.cluster.folder)
                await stack.enter_async_context(http.running())
                work = [*work, *http.work()]
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            running = [tasks.create_task(each) for each in work]
            for task in running:
                task.add_done_callback(load.judge_end)
            try:
                yield
            finally:
                load.stop()
                for reader in self.readers:
                    reader.stop()
                for member in self.members:
                    member.stop()
                for part in self.parts.values():
                    part.stop()
                await asyncio.wait(running, timeout=SETTLE_WITHIN)
                for task in running:
                    if not task.done():
                        load.find(f"did not end: {task!r}", excusable=False)
                        task.cancel()

    def watch(self, client: str) -> Watch:
        """A hook that notes what a client tells of itself."""
        return Watch(client, self.told)

    def dismiss(self) -> None:
        """Keep nothing of the clients, so that what they left can be seen."""
        for kept in (self.clients, self.readers, self.members, self.told, self.parts):
            kept.clear()

    async def _close(self, client: Client) -> None:
        await self._load.timed("aclose", CLOSE_WITHIN, client.aclose())

    def _work(self, clients: Sequence[Client], flipping: Client) -> list[Coroutine[Any, Any, None]]:
        load = self._load
        writer, reader, second, slowed = clients
        places = [Place(s, n, AckPolicy.ALL) for s, n in self.places]
        others = [Place(LEADER_STREAM, n, AckPolicy.LEADER) for n in range(PARTITIONS)]
        flipped = Place(FLIPPED_STREAM, 0, AckPolicy.LEADER)
        self.readers = [Reader(load, reader, place, "plain") for place in (*places, *others)]
        self.readers += [
            Reader(load, second, place, "durable", cursor="durable") for place in places
        ]
        self.readers.append(Reader(load, flipping, flipped, "damaged", fragile=True))
        slow = Reader(load, slowed, places[0], "slow", slow=True)
        self.readers.append(slow)
        self.members = [
            Member(load, client, f"member {number}", GROUP, list(ALL_STREAMS))
            for number, client in zip(range(MEMBERS), (reader, second, reader), strict=True)
        ]
        nats = next(iter(self._stage.cluster.nodes.values())).nats_url
        self.parts = {
            "transactions": Transactions(load, writer, [reader, second]),
            "queue": Queues(load, writer, [reader, second]),
            "leases": Queues(load, writer, [reader, second, reader], nats),
        }
        for stream, number in self.places:
            load.lane(f"group on {stream}/{number}", (stream, number))
        return [
            *(load.publish_steadily(writer, place, RATE) for place in (*places, *others)),
            load.publish_steadily(flipping, flipped, RATE / 2),
            load.administer(second, places[0]),
            *(each.run() for each in self.readers),
            *(each.run() for each in self.members),
            *(each for part in self.parts.values() for each in part.work()),
            self._slow_down(slow),
            self._guard(),
            self._watch_loop(),
        ]

    async def _slow_down(self, reader: Reader) -> None:
        """Let a reader fall behind for long, then read for a moment, again and again."""
        sent = self._load.journal.sent_to(reader.place.stream).events
        while self._load.publishing:
            began, before = time.monotonic(), len(sent)
            reader.may_go_on.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._load.all_sent.wait(), SLOW_FOR)
            published = sum(
                event.kind is EventKind.SENT and event.partition == reader.place.partition
                for event in sent[before:]
            )
            self._judge_slowness(reader, published, time.monotonic() - began)
            reader.may_go_on.set()
            await asyncio.sleep(READING_FOR)

    def _judge_slowness(self, reader: Reader, published: int, seconds: float) -> None:
        """Note how much the client holds of what was published; most must wait at the server."""
        if reader.subscription is None:
            return
        figures = reader.subscription.statistics()
        held = (figures.buffered, figures.buffered_bytes, published)
        self.most_held = max(self.most_held, held, key=lambda each: each[2])
        limit = SLOW_OPTIONS.max_buffered_bytes
        if figures.buffered_bytes > limit:
            text = f"the slow reader holds {figures.buffered_bytes} bytes of {limit}"
            self._load.find(text, excusable=False)
        if seconds > SURELY_STOPPED and figures.buffered >= published:
            text = f"the slow reader stopped nobody: {published} messages, all of them held"
            self._load.find(text, excusable=False)

    async def _watch_loop(self) -> None:
        """Delay of the event loop itself: time that no client can be blamed for."""
        while self._load.running:
            began = time.monotonic()
            await asyncio.sleep(LAG_POLL)
            self.longest_lag = max(self.longest_lag, time.monotonic() - began - LAG_POLL)


async def _create_streams(client: Client) -> None:
    await client.wait_ready()
    for stream in STREAMS:
        await client.create_stream(
            stream,
            f"chaos.{stream}",
            partitions=partitions_of(stream),
            replication_factor=3,
            options=StreamOptions(min_isr=2),
        )


def partitions_of(stream: str) -> int:
    """Return the number of partitions of a stream of a run."""
    return 1 if stream in {FLIPPED_STREAM, LEASED_STREAM} else PARTITIONS
