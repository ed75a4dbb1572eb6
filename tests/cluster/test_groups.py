"""What members of a group hold on to when members or nodes die, sleep or come back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import pytest

from cluster.group_members import Group
from cluster.group_scene import at_work
from cluster.support import Nodes
from contract.group_calls import group_metadata
from liftbridge_aio import Client
from servers.build import pinned_version
from servers.cluster import Cluster

pytestmark = pytest.mark.timeout(120)  # nodes are brought back in that time too

EMBEDDED: Final = "embedded"
PINNED: Final = pinned_version()


@dataclass(frozen=True, slots=True)
class Timed:
    """A cluster and how long its members and coordinators may be silent, in seconds."""

    cluster: Cluster
    timeout: float


@pytest.fixture
async def quick_embedded_cluster() -> AsyncIterator[Timed]:
    """An embedded cluster of the test's own that notices soon."""
    from servers.embedded_cluster import running_embedded_cluster  # noqa: PLC0415

    async with running_embedded_cluster(group_timeout=2.0) as cluster:
        yield Timed(cluster, 2.0)


@pytest.fixture
def real_timed_cluster(healthy_cluster: Cluster) -> Timed:
    """The three real nodes."""
    return Timed(healthy_cluster, 3.0)


@pytest.fixture(params=[EMBEDDED, PINNED])
def timed(request: pytest.FixtureRequest) -> Timed:
    """Each cluster of the matrix in turn."""
    fixtures = {EMBEDDED: "quick_embedded_cluster", PINNED: "real_timed_cluster"}
    chosen: Timed = request.getfixturevalue(fixtures[request.param])
    return chosen


@pytest.fixture
def cluster(timed: Timed) -> Cluster:
    """The same cluster, for those that do not ask for its timeouts."""
    return timed.cluster


@pytest.fixture
def group(cluster: Cluster, stream_name: str) -> Group:
    """A group of two streams that nobody else uses."""
    streams = (f"{stream_name}-orders", f"{stream_name}-refunds")
    return Group(f"group-{stream_name}", streams, tuple(cluster.addresses.values()))


async def coordinator_of(nodes: Nodes, group: Group) -> str:
    """The node that coordinates a group."""
    [metadata] = await group_metadata(nodes[nodes.ids[0]], group.name)
    return metadata.coordinator


async def test_six_members_go_on_when_the_coordinator_is_killed(
    timed: Timed, client: Client, nodes: Nodes, group: Group
) -> None:
    members = [group.in_python(f"member-{number}") for number in range(6)]
    async with at_work(client, group, members, partitions=3) as scene:
        await scene.settled()
        await scene.served()
        epoch = scene.epoch
        await timed.cluster.kill(await coordinator_of(nodes, group))

        seconds = await scene.settled(after=epoch, within=2 * timed.timeout)
        await scene.served(within=2 * timed.timeout - seconds)
        await scene.drained()
        scene.check()
        scene.check_commits()


async def test_partitions_of_a_member_that_was_killed_are_taken_over(
    timed: Timed, client: Client, group: Group
) -> None:
    killed = group.in_python_apart("killed")
    others = [group.in_python(f"member-{number}") for number in range(2)]
    async with at_work(client, group, [killed, *others], partitions=3) as scene:
        await scene.settled()
        await scene.served()
        epoch = scene.epoch
        await killed.end()
        scene.members.remove(killed)

        seconds = await scene.settled(after=epoch, within=2 * timed.timeout)
        await scene.served(within=2 * timed.timeout - seconds)
        await scene.drained()
        scene.check()
        scene.check_commits()


async def test_a_member_that_slept_for_too_long_joins_again_and_moves_nothing_back(
    client: Client, group: Group
) -> None:
    sleeper = group.in_python_apart("sleeper")
    others = [group.in_python(f"member-{number}") for number in range(2)]
    async with at_work(client, group, [sleeper, *others], partitions=3) as scene:
        await scene.settled()
        await scene.served()
        epoch = scene.epoch
        sleeper.freeze()
        scene.members.remove(sleeper)
        await scene.settled(after=epoch)
        await scene.served()
        epoch = scene.epoch

        sleeper.thaw()
        scene.members.append(sleeper)
        await scene.settled(after=epoch)
        await scene.served()
        await scene.drained()
        scene.check()
        scene.check_commits()


async def test_members_go_on_when_the_coordinator_is_restarted(
    timed: Timed, client: Client, nodes: Nodes, group: Group
) -> None:
    members = [group.in_python(f"member-{number}") for number in range(3)]
    async with at_work(client, group, members, partitions=3) as scene:
        await scene.settled()
        await scene.served()
        coordinator = await coordinator_of(nodes, group)
        await timed.cluster.kill(coordinator)
        await timed.cluster.start(coordinator)
        await scene.served()
        await scene.settled()
        await scene.served()
        await scene.drained()
        scene.check()
        scene.check_commits()


@pytest.mark.parametrize("timed", [EMBEDDED], indirect=True)
async def test_members_go_on_when_all_nodes_are_restarted_one_after_the_other(
    timed: Timed, client: Client, group: Group
) -> None:
    members = [group.in_python(f"member-{number}") for number in range(3)]
    async with at_work(client, group, members, partitions=3) as scene:
        await scene.settled()
        for node_id in timed.cluster.addresses:
            await scene.served()
            await timed.cluster.kill(node_id)
            await scene.served()
            await timed.cluster.start(node_id)
        await scene.settled()
        await scene.served()
        await scene.drained()
        scene.check()
        scene.check_commits()
