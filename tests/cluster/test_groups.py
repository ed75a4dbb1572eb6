"""The assignments and positions of members that die, sleep or come back, on real nodes.

Nodes whose coordinator is killed: `test_groups_with_go.py`; that are restarted: the chaos run,
which tells positions that a restarted node stores late from those of a member. Embedded nodes: the
simulation.
"""

from __future__ import annotations

from typing import Final

import pytest

from liftbridge_aio import Client
from support.groups.group_members import Group
from support.groups.group_scene import at_work
from support.servers.build import pinned_version
from support.servers.cluster import Cluster

pytestmark = pytest.mark.timeout(120)  # nodes are brought back in that time too

EMBEDDED: Final = "embedded"
PINNED: Final = pinned_version()
TIMEOUT: Final = 3.0
"""Seconds that members and coordinators may be silent: the clusters are set up so."""


@pytest.fixture
def group(cluster: Cluster, stream_name: str) -> Group:
    """A group of two streams that nobody else uses."""
    streams = (f"{stream_name}-orders", f"{stream_name}-refunds")
    return Group(f"group-{stream_name}", streams, tuple(cluster.addresses.values()))


@pytest.mark.parametrize("cluster", [PINNED], indirect=True)
async def test_partitions_of_killed_and_sleeping_members_are_taken_over(
    client: Client, group: Group
) -> None:
    killed, sleeper = group.in_python_apart("killed"), group.in_python_apart("sleeper")
    others = [group.in_python(f"member-{number}") for number in range(2)]
    members = [*others, killed, sleeper]
    async with at_work(client, group, members, partitions=3) as scene:
        await scene.settled()
        await scene.served()
        epoch = scene.epoch
        sleeper.freeze()
        await killed.end()
        scene.members[:] = others
        seconds = await scene.settled(after=epoch, within=2 * TIMEOUT)
        await scene.served(within=2 * TIMEOUT - seconds)
        epoch = scene.epoch

        sleeper.thaw()  # and it has messages in hand, of which others have stored the positions
        scene.members.append(sleeper)
        await scene.settled(after=epoch)
        await scene.served()
        await scene.drained()
        scene.check()
        scene.check_commits()
