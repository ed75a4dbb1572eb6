"""The faults of real nodes and their links, and the plan of a seed.

Those of `ON_REAL_NODES` are the simulation's own. The others are here: the simulation has no NATS,
no TCP and no HTTP/2 frames of which an end could be missing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Final, cast

from chaos.goaway import GoawayProxy
from chaos.world import RealWorld
from liftbridge_aio.testing import Direction, FaultProxy
from liftbridge_aio.testing.simulation.faults import ON_REAL_NODES, Fault, Inflict, Target

LASTS: Final = (0.3, 5.0)
"""Seconds that a fault lasts, least and most. A silent link is noticed after 2.5."""
WAYS: Final = (Direction.TO_TARGET, Direction.TO_CLIENTS, Direction.BOTH)


def _world(target: Target) -> RealWorld:
    return cast("RealWorld", target.world)


# Nodes


async def restart_in_turn(target: Target, seconds: float) -> None:
    """Stop each node in order (SIGINT), and start it at once."""
    del seconds
    world = _world(target)
    for node in target.chance.sample(sorted(world.nodes), len(world.nodes)):
        world.witness.down.add(node)
        await world.cluster.stop(node)
        await world.start_node(node)
        await world.works()


async def restart_nats(target: Target, seconds: float) -> None:
    """Stop NATS, which all nodes need, and start it again."""
    cluster = _world(target).cluster
    await cluster.stop_nats()
    await asyncio.sleep(seconds)
    await cluster.start_nats()


async def move_broker(target: Target, seconds: float) -> None:
    """Kill a node; it comes back and tells clients another address."""
    world, (_, node) = _world(target), target.broker
    await world.stop_node(node)
    await world.let_last(seconds)
    await world.move(node)
    await world.start_node(node)


# Links


async def _on_links(
    target: Target,
    seconds: float,
    begin: Callable[[GoawayProxy], Awaitable[None] | None],
) -> None:
    """Let the links of all processes to one node go wrong, or those to all nodes."""
    world = _world(target)
    is_one = target.chance.random() < 0.7
    nodes = [target.broker[1]] if is_one else sorted(world.nodes)
    async with AsyncExitStack() as stack:
        for proxy in [each for node in nodes for each in world.links_to(node)]:
            stack.push_async_callback(proxy.heal)
            if (begun := begin(proxy)) is not None:
                await begun
        await asyncio.sleep(seconds)


async def drop_connections(target: Target, seconds: float) -> None:
    """Close connections (FIN)."""
    del seconds
    await _on_links(target, 0.0, FaultProxy.cut)


async def reset_connections(target: Target, seconds: float) -> None:
    """Reset connections (RST)."""
    del seconds
    await _on_links(target, 0.0, FaultProxy.reset)


async def refuse_connections(target: Target, seconds: float) -> None:
    """Close connections, and refuse new ones."""

    async def begin(proxy: GoawayProxy) -> None:
        await proxy.refuse()
        await proxy.cut()

    await _on_links(target, seconds, begin)


async def swallow_bytes(target: Target, seconds: float) -> None:
    """Leave connections half-open: bytes are lost in one direction or both, nobody is told."""
    way = target.chance.choice(WAYS)
    await _on_links(target, seconds, lambda proxy: proxy.swallow(way))


async def freeze_links(target: Target, seconds: float) -> None:
    """Hold all bytes in one direction or both, and let them pass later."""
    way = target.chance.choice(WAYS)
    await _on_links(target, seconds, lambda proxy: proxy.freeze(way))


async def answer_nothing(target: Target, seconds: float) -> None:
    """Close connections; new ones are accepted, and nothing is answered."""

    async def begin(proxy: GoawayProxy) -> None:
        proxy.freeze()
        await proxy.cut()

    await _on_links(target, seconds, begin)


async def throttle_links(target: Target, seconds: float) -> None:
    """Let 1 to 30 kB/s pass."""
    way, limit = target.chance.choice(WAYS), 1000 * 30 ** target.chance.random()
    await _on_links(target, seconds, lambda proxy: proxy.throttle(limit, way))


async def truncate_frames(target: Target, seconds: float) -> None:
    """Close connections within a frame."""
    way = target.chance.choice(WAYS[:2])
    await _on_links(target, seconds, lambda proxy: proxy.truncate(way, times=3))


async def send_goaway(target: Target, seconds: float) -> None:
    """Tell clients to leave (GOAWAY), as balancers do."""
    del seconds
    await _on_links(target, 0.0, GoawayProxy.send_goaway)


OUTAGES: Final[dict[str, Inflict]] = {
    each.__name__: each
    for each in (
        *ON_REAL_NODES,
        *(restart_in_turn, restart_nats, move_broker),
        *(drop_connections, reset_connections, refuse_connections, swallow_bytes, freeze_links),
        *(answer_nothing, throttle_links, truncate_frames, send_goaway),
    )
}
USUAL: Final = {
    **dict.fromkeys(("stop_broker", "freeze_broker", "crash_broker", "restart_nats"), 14.0),
    **dict.fromkeys(("stop_two_brokers", "move_leader", "restart_in_turn", "move_broker"), 30.0),
    "start_twin": 14.0,
}
"""Seconds that faults of nodes usually take, until all replicas are in sync again."""
SHORT: Final = 6.0
"""The same of all others."""


def plan(seed: int) -> Iterator[Fault]:
    """Make the plan of a seed: rounds with each kind once, and few short ones between long ones."""
    chance = random.Random(f"{seed}:outages")
    number = 0
    while True:
        for kind in _round(chance):
            lasts = chance.uniform(*LASTS)
            yield Fault(number, 0.0, kind, lasts)
            number += 1


def _round(chance: random.Random) -> list[str]:
    long = chance.sample([*USUAL], len(USUAL))
    short = chance.sample(
        [each for each in OUTAGES if each not in USUAL], len(OUTAGES) - len(USUAL)
    )
    share = len(short) / len(long)
    return [
        kind
        for at, each in enumerate(long)
        for kind in (each, *short[round(at * share) : round((at + 1) * share)])
    ]
