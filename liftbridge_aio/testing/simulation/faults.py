"""The catalogue of faults, and the plan of a seed: each begins, lasts, and is undone.

Those in `ON_REAL_NODES` use `Place` only, so they work on real nodes, too.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, cast

from liftbridge_aio.broker.faults.fault_plan import RpcName

from .processes import Processes

if TYPE_CHECKING:
    from liftbridge_aio.broker import EmbeddedCluster

    from .world import World

PAUSE: Final = (1.0, 5.0)
"""Seconds between two faults, least and most."""
LASTS: Final = (0.2, 8.0)
"""Seconds that a fault lasts, least and most."""
LONG: Final = (8.0, 30.0)
"""The same of long ones, after which members have been expelled."""
LONG_PART: Final = 0.15
AFTERWARDS: Final = 5.0
"""Seconds for which both processes run after `start_twin`, least."""
ANSWERS: Final[tuple[RpcName, ...]] = (
    "FetchMetadata",
    "FetchPartitionMetadata",
    "PublishAsync",
    "SetCursor",
    "FetchCursor",
    "JoinConsumerGroup",
    "LeaveConsumerGroup",
    "FetchConsumerGroupAssignments",
)
"""Procedures whose answers may be lost."""
JUMP: Final = 3600.0
"""Seconds by which a clock jumps at most."""
DRIFT: Final = 0.1
"""The part by which a clock runs too fast or too slowly at most."""


class Fault(NamedTuple):
    """One that a seed has planned. What it does is drawn from its number, whatever else happens."""

    number: int
    at: float
    """Seconds after the first when it begins, unless the one before has not ended."""
    kind: str
    lasts: float

    def __str__(self) -> str:
        return f"{self.number}: {self.kind} at {self.at:.1f} s for {self.lasts:.1f} s"


class Brokers(Protocol):
    """A cluster whose brokers can fail: embedded ones, or real nodes."""

    @property
    def nodes(self) -> Mapping[str, object]:
        """The brokers by their ids."""

    async def stop_node(self, server_id: str) -> None:
        """Stop a broker, as a crash does."""

    async def start_node(self, server_id: str) -> None:
        """Start a stopped broker again, with its data."""

    def freeze(self, server_id: str) -> None:
        """Suspend a broker, while its connections stay open and silent."""

    def thaw(self, server_id: str) -> None:
        """Undo `freeze`."""


class Place(Protocol):
    """Where faults are inflicted: a simulated world, or real nodes and their links."""

    @property
    def clusters(self) -> Sequence[Brokers]:
        """The clusters."""

    @property
    def broker_ids(self) -> Sequence[str]:
        """The ids of all brokers, which are the names of their hosts, too."""

    async def let_last(self, seconds: float) -> None:
        """Let the outage of a broker last."""

    def cut(
        self, host: str, others: Sequence[str], direction: Literal["both", "to", "from"]
    ) -> None:
        """Let nothing pass between a host and others: to them, from them, or in both directions."""

    def heal(self) -> None:
        """Let everything pass, and what was held meanwhile."""

    def slow_down(self, seconds: float) -> None:
        """Let each packet take up to so many seconds longer."""

    async def crash(self, host: str) -> None:
        """Crash a host: it sends nothing any more, and its tasks end."""

    def restart(self, host: str) -> None:
        """Start a host that has crashed."""


class Target(NamedTuple):
    """What a fault is inflicted on."""

    world: Place
    processes: Processes
    chance: random.Random
    """The fault's own."""

    @property
    def cluster(self) -> Brokers:
        """A cluster, by chance."""
        clusters = self.world.clusters
        return self.chance.choice(clusters) if len(clusters) > 1 else clusters[0]

    @property
    def broker(self) -> tuple[Brokers, str]:
        """A broker, by chance, and its cluster."""
        cluster = self.cluster
        return cluster, self.chance.choice(sorted(cluster.nodes))

    @property
    def embedded(self) -> tuple[EmbeddedCluster, str]:
        """The same of a simulated world."""
        return cast("tuple[EmbeddedCluster, str]", self.broker)

    @property
    def simulated(self) -> World:
        """The world, for faults that are inflicted on simulated ones only."""
        return cast("World", self.world)


async def stop_broker(target: Target, seconds: float) -> None:
    """Crash a broker and start it again with its data."""
    cluster, broker = target.broker
    await cluster.stop_node(broker)
    await target.world.let_last(seconds)
    await cluster.start_node(broker)


async def freeze_broker(target: Target, seconds: float) -> None:
    """Suspend a broker, while its connections stay open and silent."""
    cluster, broker = target.broker
    cluster.freeze(broker)
    await target.world.let_last(seconds)
    cluster.thaw(broker)


async def hold_replication(target: Target, seconds: float) -> None:
    """Let a broker fall behind, or look dead to its followers."""
    cluster, broker = target.embedded
    cluster.hold_replication(broker)
    await asyncio.sleep(seconds)
    cluster.release_replication(broker)


async def hold_metadata(target: Target, seconds: float) -> None:
    """Keep the changes of streams, leaders and groups from a broker."""
    cluster, broker = target.embedded
    cluster.hold_metadata(broker)
    await asyncio.sleep(seconds)
    cluster.release_metadata(broker)


async def move_leader(target: Target, seconds: float) -> None:
    """Restart all brokers but one, one after the other, which moves the leaders."""
    cluster = target.cluster
    for broker in target.chance.sample(sorted(cluster.nodes), 2):
        await cluster.stop_node(broker)
        await target.world.let_last(seconds / 2)
        await cluster.start_node(broker)


async def stop_two_brokers(target: Target, seconds: float) -> None:
    """Crash two brokers at once, and start one after the other with their data.

    Without a majority calls fail in the end, so one is back before that.
    """
    cluster, seconds = target.cluster, min(seconds, LASTS[1])
    brokers = target.chance.sample(sorted(cluster.nodes), 2)
    for broker in brokers:
        await cluster.stop_node(broker)
    for broker in reversed(brokers):
        await target.world.let_last(seconds / 2)
        await cluster.start_node(broker)


async def cut(target: Target, seconds: float) -> None:
    """Cut a process from one broker, or from all, in both directions or in one."""
    world, chance = target.world, target.chance
    brokers = chance.sample(world.broker_ids, chance.randint(1, len(world.broker_ids)))
    world.cut(chance.choice(target.processes.hosts), brokers, chance.choice(("both", "to", "from")))
    await asyncio.sleep(seconds)
    world.heal()


async def kill_process(target: Target, seconds: float) -> None:
    """Crash the host of a process, which says nothing any more; it starts again later."""
    host = target.chance.choice(target.processes.hosts)
    await target.world.crash(host)
    await asyncio.sleep(seconds)
    target.world.restart(host)


async def kill_at_commit(target: Target, seconds: float) -> None:
    """Crash a process when a commit record was stored and its ack has not arrived.

    In the second cluster each message counts, as only bridges write there.
    """
    world, hosts = target.simulated, target.processes.with_twins or target.processes.hosts
    stalls = [
        node.faults.stall("PublishAsync", at="reply", when_reply=is_wanted)
        for cluster, is_wanted in zip(world.clusters, (_is_commit, _is_copy), strict=False)
        for node in cluster.nodes.values()
    ]
    deadline = world.now + seconds
    while world.now < deadline and not any(each.applied for each in stalls):  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(0.01)
    host = target.chance.choice(hosts)
    await world.crash(host)
    for each in stalls:
        each.release()
    await asyncio.sleep(seconds)
    world.restart(host)


def _is_commit(reply: Any) -> bool:
    return str(reply.ack.stream).startswith(("__acks.", "checkpoints."))


def _is_copy(reply: Any) -> bool:
    return not str(reply.ack.stream).startswith("__")


async def slow_network(target: Target, seconds: float) -> None:
    """Let every packet take long, and crash a process meanwhile: between two calls, most likely."""
    world, host = target.world, target.chance.choice(target.processes.hosts)
    world.slow_down(target.chance.uniform(0.1, 0.5))
    await asyncio.sleep(seconds / 2)
    await world.crash(host)
    world.slow_down(0.0)
    await asyncio.sleep(seconds / 2)
    world.restart(host)


async def stop_process(target: Target, seconds: float) -> None:
    """Tell a process to end, as for a deployment; it starts again."""
    target.processes.stop(target.chance.choice(target.processes.hosts))
    await asyncio.sleep(seconds)


async def start_twin(target: Target, seconds: float) -> None:
    """Start a process again whose first one is only cut off, and comes back."""
    world = target.world
    if not target.processes.with_twins:
        return
    host = target.chance.choice(target.processes.with_twins)
    world.cut(host, world.broker_ids, "both")
    twin = target.processes.start_twin(host)
    await asyncio.sleep(seconds)
    world.heal()
    await asyncio.sleep(AFTERWARDS)
    await world.crash(twin)


async def crash_broker(target: Target, seconds: float) -> None:
    """Crash the host of a broker: its connections stay open, and nobody answers there."""
    world, (cluster, broker) = target.world, target.broker
    await world.crash(broker)
    await cluster.stop_node(broker)
    await world.let_last(seconds)
    world.restart(broker)
    await cluster.start_node(broker)


async def lose_answers(target: Target, seconds: float) -> None:
    """Let a broker do what it is asked for, and answer nothing or an error for a while."""
    (cluster, broker), chance = target.embedded, target.chance
    faults = cluster.nodes[broker].faults
    rpcs = chance.sample(ANSWERS, 3)
    injected = [
        chance.choice((faults.drop, faults.fail))(rpc, at="reply", times=chance.randint(1, 20))
        for rpc in rpcs
    ]
    await asyncio.sleep(seconds)
    for each in injected:
        each.cancel()


async def repeat_messages(target: Target, seconds: float) -> None:
    """Let a broker send messages twice to subscribers."""
    (cluster, broker), chance = target.embedded, target.chance
    faults = cluster.nodes[broker].faults
    repeated = faults.duplicate("Subscribe", at="reply", times=chance.randint(1, 50))
    await asyncio.sleep(seconds)
    repeated.cancel()


async def set_clock(target: Target, seconds: float) -> None:
    """Let the time of day of a host jump, and jump back."""
    host = target.chance.choice(target.processes.hosts)
    target.simulated.set_clock(host, target.chance.uniform(-JUMP, JUMP))
    await asyncio.sleep(seconds)
    target.simulated.set_clock(host, 0.0)


async def drift_clock(target: Target, seconds: float) -> None:
    """Let the clocks of a host, of a process or a broker, run too fast or too slowly."""
    world = target.simulated
    host = target.chance.choice([*target.processes.hosts, *world.broker_ids])
    world.set_rate(host, target.chance.uniform(1 - DRIFT, 1 + DRIFT))
    await asyncio.sleep(seconds)
    world.set_rate(host, 1.0)


Inflict = Callable[[Target, float], Awaitable[None]]

KINDS: Final[dict[str, Inflict]] = {
    each.__name__: each
    for each in (
        *(stop_broker, freeze_broker, hold_replication, hold_metadata, move_leader),
        *(
            crash_broker,
            stop_two_brokers,
            lose_answers,
            repeat_messages,
            cut,
            slow_network,
            kill_process,
            kill_at_commit,
            stop_process,
            start_twin,
            set_clock,
            drift_clock,
        ),
    )
}

ON_REAL_NODES: Final[tuple[Inflict, ...]] = (
    *(stop_broker, stop_two_brokers, move_leader, freeze_broker, crash_broker),
    *(cut, slow_network, kill_process, stop_process, start_twin),
)


def plan(seed: int, seconds: float) -> list[Fault]:
    """Return the faults of a seed, for so many seconds."""
    chance = random.Random(f"{seed}:faults")
    faults: list[Fault] = []
    at = chance.uniform(*PAUSE)
    while at < seconds:
        lasts = LONG if chance.random() < LONG_PART else LASTS
        fault = Fault(len(faults), at, chance.choice([*KINDS]), chance.uniform(*lasts))
        faults.append(fault)
        at += fault.lasts + chance.uniform(*PAUSE)
    return faults


async def inflict(world: World, faults: Sequence[Fault], processes: Processes) -> None:
    """Inflict one fault after the other, and undo the last one."""
    began = world.now
    for fault in faults:
        await asyncio.sleep(max(0.0, began + fault.at - world.now))
        chance = random.Random(f"{world.seed}:fault:{fault.number}")
        await KINDS[fault.kind](Target(world, processes, chance), fault.lasts)
