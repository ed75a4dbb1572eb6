"""The faults of a simulated world, by chance: each begins, lasts, and is undone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from .world import World

PAUSE: Final = (1.0, 5.0)
"""Seconds between two faults, least and most."""
LASTS: Final = (0.2, 8.0)
"""Seconds that a fault lasts, least and most."""


class Fault(NamedTuple):
    """What was done to the world, for the report of a failure."""

    at: float
    kind: str
    lasted: float


async def stop_broker(world: World, seconds: float) -> None:
    """Crash a broker and start it again with its data."""
    broker = world.chance.choice(world.broker_ids)
    await world.cluster.stop_node(broker)
    await asyncio.sleep(seconds)
    await world.cluster.start_node(broker)


async def freeze_broker(world: World, seconds: float) -> None:
    """Suspend a broker, while its connections stay open and silent."""
    broker = world.chance.choice(world.broker_ids)
    world.cluster.freeze(broker)
    await asyncio.sleep(seconds)
    world.cluster.thaw(broker)


async def hold_replication(world: World, seconds: float) -> None:
    """Let a broker fall behind, or look dead to its followers."""
    broker = world.chance.choice(world.broker_ids)
    world.cluster.hold_replication(broker)
    await asyncio.sleep(seconds)
    world.cluster.release_replication(broker)


async def hold_metadata(world: World, seconds: float) -> None:
    """Keep the changes of streams, leaders and groups from a broker."""
    broker = world.chance.choice(world.broker_ids)
    world.cluster.hold_metadata(broker)
    await asyncio.sleep(seconds)
    world.cluster.release_metadata(broker)


async def move_leader(world: World, seconds: float) -> None:
    """Restart all brokers but one, one after the other, which moves the leaders."""
    for broker in world.chance.sample(world.broker_ids, 2):
        await world.cluster.stop_node(broker)
        await asyncio.sleep(seconds / 2)
        await world.cluster.start_node(broker)


def cutting(clients: Sequence[str]) -> Callable[[World, float], Awaitable[None]]:
    """Return a fault that cuts a client from one broker, or from all."""

    async def cut_client(world: World, seconds: float) -> None:
        client = world.chance.choice(clients)
        brokers = world.broker_ids
        world.net.partition({client}, set(world.chance.sample(brokers, world.chance.randint(1, 3))))
        await asyncio.sleep(seconds)
        world.net.heal()

    return cut_client


async def inflict(world: World, seconds: float, clients: Sequence[str]) -> list[Fault]:
    """Inflict one fault after the other for so many seconds, and undo the last one."""
    kinds = [stop_broker, freeze_broker, hold_replication, hold_metadata, move_leader]
    choices: list[Callable[[World, float], Awaitable[None]]] = [*kinds, cutting(clients)]
    done = []
    end = world.now + seconds
    while world.now < end:
        await asyncio.sleep(world.chance.uniform(*PAUSE))
        fault, began = world.chance.choice(choices), world.now
        await fault(world, world.chance.uniform(*LASTS))
        done.append(Fault(began, getattr(fault, "__name__", "fault"), world.now - began))
    return done
