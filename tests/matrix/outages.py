"""States that come of what happens to servers; further rows of the matrix."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from liftbridge_aio import ClientOptions, LiftbridgeError
from matrix.cells import PARTITIONS, On, Place, Stage
from matrix.states import Servers, State, add, log_of, numbered, publish
from matrix.worlds import VICTIM, ClusterWorld, LoneWorld
from support.lone_servers import LoneServer
from support.raw import eventually

# One server


def lone(stage: Stage) -> LoneServer:
    """The server that is there alone."""
    assert isinstance(stage.world, LoneWorld)
    return stage.world.server


AWAY: Final = 0.5
"""Seconds for which a server is away."""
UP: Final = 1.5
"""Seconds between two crashes: too few for v1.9.0 to know its streams again."""
CRASHES: Final = 4


async def bounced(stage: Stage, _: Sequence[Place]) -> None:
    """Stop the server; it comes back while everything waits for it."""
    await lone(stage).checkpoint()
    await lone(stage).stop()

    async def come_back() -> None:
        await asyncio.sleep(AWAY)
        await lone(stage).launch()

    stage.meanwhile(come_back())


async def bounced_again_and_again(stage: Stage, _: Sequence[Place]) -> None:
    """Stop the server; it comes back and crashes, several times."""
    await lone(stage).checkpoint()
    await lone(stage).stop()

    async def crash() -> None:
        await asyncio.sleep(AWAY)
        for _ in range(CRASHES - 1):
            await lone(stage).launch()
            await asyncio.sleep(UP)
            await lone(stage).crash()
        await lone(stage).launch()

    stage.meanwhile(crash())


async def watermark_lost(stage: Stage, places: Sequence[Place]) -> None:
    """Kill the server before it has noted what is committed, and wait until it is back."""
    await lone(stage).crash()
    await lone(stage).lose_watermarks()
    await lone(stage).launch()

    async def ready() -> bool:
        try:
            found = await stage.director.fetch_metadata()
        except LiftbridgeError:
            return False
        return {place.stream for place in places} <= set(found.streams)

    await eventually(ready)


async def forgotten(stage: Stage, places: Sequence[Place]) -> None:
    """Start the server again with an empty disk, and wait until it takes streams."""
    await lone(stage).stop()
    await lone(stage).lose_disk()
    await lone(stage).launch()

    async def ready() -> bool:
        try:
            await stage.director.create_stream(f"{places[0].stream}-after")
        except LiftbridgeError:
            return False
        return True

    await eventually(ready)
    for place in places:
        place.holds({})


add(State("server bounced once", bounced, servers=Servers.LONE, options=ClientOptions()))
add(
    State(
        "server bounced in a loop",
        bounced_again_and_again,
        servers=Servers.LONE,
        options=ClientOptions(call_timeout=25),
    )
)
add(State("high watermark lost", watermark_lost, servers=Servers.LONE))
add(State("server back with an empty disk", forgotten, servers=Servers.LONE))


# Clusters

MOST_TRIES: Final = 20
LEADERLESS: Final = 9.0
SHORT: Final = ClientOptions(
    call_timeout=4, publish_timeout=4, ack_timeout=2, resubscribe_timeout=4, not_found_timeout=2
)
"""For what lasts."""


def cluster(stage: Stage) -> ClusterWorld:
    """The servers that are a cluster."""
    assert isinstance(stage.world, ClusterWorld)
    return stage.world


class Led(State):
    """A state of streams that one node leads, or does not lead."""

    async def create(self, stage: Stage, place: Place) -> None:
        """Create streams until there is one that the victim leads as is wanted."""
        name = place.stream
        for number in range(MOST_TRIES):
            place.stream = f"{name}-{number}"
            await State.create(self, stage, place)
            led = {await _leader(stage, place, partition) == VICTIM for partition in PARTITIONS}
            if led == {self.led_by_victim}:
                return
        raise AssertionError(f"of {MOST_TRIES} streams none was led as is wanted")


async def _leader(stage: Stage, place: Place, partition: int) -> str:
    leader = ""

    async def known() -> bool:
        nonlocal leader
        metadata = await stage.director.fetch_metadata([place.stream])
        if place.stream not in metadata.streams:
            return False
        leader = metadata.streams[place.stream].partitions[partition].leader
        return bool(leader)

    await eventually(known)
    return leader


async def leader_moved(stage: Stage, places: Sequence[Place]) -> None:
    """Kill the leader of all streams and wait until others lead them."""
    await cluster(stage).cluster.stop_node(VICTIM)

    async def moved(place: Place) -> None:
        async def led_by_another() -> bool:
            view = await stage.wire.stream(place.stream)
            return all(one.leader not in {"", VICTIM} for one in view.partitions.values())

        await eventually(led_by_another)

    await asyncio.gather(*map(moved, places))


async def leader_unknown(stage: Stage, _: Sequence[Place]) -> None:
    """Kill the only replica of all streams; it comes back when most have given up."""
    await cluster(stage).cluster.stop_node(VICTIM)

    async def come_back() -> None:
        await asyncio.sleep(LEADERLESS)
        await cluster(stage).cluster.start_node(VICTIM)

    stage.meanwhile(come_back())


async def watermark_behind(stage: Stage, places: Sequence[Place]) -> None:
    """Kill a follower that is needed for commits, and publish what waits for it until it is back.

    Who begins at once reads what is committed; who waits for more reads the rest as well.
    """
    await cluster(stage).cluster.stop_node(VICTIM)

    async def shrunk(place: Place) -> None:
        async def out_of_sync() -> bool:
            view = await stage.wire.stream(place.stream)
            return all(VICTIM not in one.isr for one in view.partitions.values())

        await eventually(out_of_sync)
        await publish(stage, place, UNCOMMITTED)
        if place.on is On.OWN:
            place.holds({partition: log_of((*COMMITTED, *UNCOMMITTED)) for partition in PARTITIONS})

    await asyncio.gather(*map(shrunk, places))

    async def come_back() -> None:
        await stage.looked.wait()
        await cluster(stage).cluster.start_node(VICTIM)

    stage.meanwhile(come_back())


COMMITTED: Final = numbered(6)
UNCOMMITTED: Final = numbered(2, "uncommitted")

add(
    Led(
        "leader just moved",
        leader_moved,
        servers=Servers.CLUSTER,
        replication_factor=3,
        led_by_victim=True,
    )
)
add(
    Led(
        "leader unknown",
        leader_unknown,
        servers=Servers.CLUSTER,
        led_by_victim=True,
        options=SHORT,
    )
)
add(
    Led(
        "high watermark behind",
        watermark_behind,
        servers=Servers.CLUSTER,
        replication_factor=3,
        led_by_victim=False,
        settings={"min_isr": 3},
    )
)
