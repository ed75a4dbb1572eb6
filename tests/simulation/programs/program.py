"""What every program is, and the stream of orders that all of them read."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Any, ClassVar, Final, Protocol

from liftbridge_aio import (
    Client,
    ClientOptions,
    ConnectionFailed,
    ConsumerGroup,
    GroupState,
    RequestTimeout,
    StreamOptions,
)
from liftbridge_aio.groups.core.group_plan import OnReset
from liftbridge_aio.queue import Delivery, Queue
from liftbridge_aio.testing import History

STREAM: Final = "orders"
PARTITIONS: Final = 2
SAFE: Final = StreamOptions(min_isr=2)
PACE: Final = 0.2
"""Seconds between two messages of a publisher."""
OUTAGE: Final = (ConnectionFailed, RequestTimeout)
"""With what a process ends that starts in an outage longer than its calls may take."""


class Surroundings(Protocol):
    """Where programs run: a simulated world, or this machine with real nodes."""

    @property
    def chance(self) -> random.Random:
        """Decides what programs leave to chance."""

    @property
    def now(self) -> float:
        """The time in seconds."""

    @property
    def current_host(self) -> str:
        """The host of the task that asks."""

    def addresses(self, cluster: int = 0) -> list[str]:
        """Return the addresses of the brokers of a cluster."""

    def client(self, options: ClientOptions, cluster: int = 0) -> Client:
        """Return a client of a cluster."""

    def clocks_were_right(self, since: float) -> bool:
        """Return whether no clock has been wrong since a time."""


class Losses(Protocol):
    """What servers have lost of what they had stored."""

    @property
    def are_excused(self) -> bool:
        """Whether servers may lose what they had acked."""

    @property
    def places(self) -> Collection[tuple[str, int]]:
        """The partitions whose log was cut, by stream and number."""

    async def look(self) -> None:
        """Find out what they have lost by now."""

    def excused(self, stream: str) -> set[bytes]:
        """Return the values that readers of a stream need not see, as servers have lost them."""


def new_client(world: Surroundings, cluster: int = 0, **changes: Any) -> Client:
    """Return a client that soon sees that a broker is gone; of the first cluster by default."""
    options = ClientOptions(health_interval=1.0, health_timeout=1.5, publish_timeout=5.0)
    return world.client(replace(options, **changes), cluster)


class Orders:
    """What was published to the stream that all programs read.

    Args:
        world: where they are.
        losses: what servers have lost.

    Attributes:
        history: of the publishers and of who reads in order.
        acked: values that servers have stored for sure.
        log: the values of each partition by offset, read at the end.
        is_over: set after the last fault, when no more orders are to come.
        losses: what servers have lost.
    """

    def __init__(self, world: Surroundings, losses: Losses) -> None:
        self.history = History(clock=lambda: world.now)
        self.acked: set[bytes] = set()
        self.log: dict[int, dict[int, bytes]] = {}
        self.is_over = False
        self.losses = losses

    def unseen(self, seen: Collection[bytes]) -> set[bytes]:
        """Return the values that were acked and not seen, but for those that servers have lost."""
        unseen = self.acked.difference(seen)
        return unseen - self.losses.excused(STREAM) if unseen else unseen


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
    clusters: ClassVar[int] = 1
    """How many it needs; the orders are in the first."""
    may_end_with: ClassVar[tuple[type[Exception], ...]] = ()
    """Errors with which a process may end by the docs, to be started again."""

    def __init__(self, world: Surroundings, orders: Orders) -> None:
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
        return {*self.orders.unseen(self.seen), *map(str.encode, out)}

    @property
    def on_reset(self) -> OnReset:
        """What members do if a log has lost what they had read."""
        return "start" if self.orders.losses.are_excused else "error"

    async def judge(self, client: Client) -> None:
        """Check what it has seen, and what it has left in the servers."""
