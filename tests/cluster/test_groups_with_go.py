"""Members in Go and in Python are one group, also when the node that coordinates it is killed.

go-liftbridge v2.4.0 subscribes anew to all its partitions at each change of its group, and stores
positions of partitions that it has lost until it learns of that, up to seconds later. So messages
come twice, and a position may step back by what a member in Go stores, or below what it stored too
late; nothing on the server prevents that. It is told apart by the log of the calls that the members
in Go made.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from liftbridge_aio import Client, ClientOptions
from support.groups.group_history import StepBack
from support.groups.group_members import Group, MemberProcess
from support.groups.group_scene import Scene, at_work
from support.servers.build import nats_path, pinned_version
from support.servers.cluster import LiftbridgeCluster
from support.servers.node import Setting

pytestmark = pytest.mark.timeout(120)

COORDINATOR_TIMEOUT: Final = 7.0
"""In seconds. A member in Go takes up to six more to learn of the next coordinator: it sleeps for
two after whatever fails."""
GO_HEARTBEAT: Final = 1.0


@pytest.fixture
async def cluster(server_binary: Path, tmp_path: Path) -> AsyncIterator[LiftbridgeCluster]:
    """Three real nodes of the test's own, with timeouts that a member in Go can keep."""
    timeout = f"{COORDINATOR_TIMEOUT:g}s"
    settings: dict[str, Setting] = {
        "groups.consumer.timeout": timeout,
        "groups.coordinator.timeout": timeout,
        "clustering.min.insync.replicas": 2,  # no position is to be lost with a node
    }
    cluster = LiftbridgeCluster(server_binary, nats_path(), tmp_path, pinned_version(), settings)
    await asyncio.to_thread(cluster.open)
    yield cluster
    await asyncio.to_thread(cluster.close)


@pytest.fixture
async def client(cluster: LiftbridgeCluster) -> AsyncIterator[Client]:
    """A client that was told of all nodes and notices soon when one falls silent."""
    options = ClientOptions(health_interval=1.0, health_timeout=1.0, connect_timeout=2.0)
    async with Client(*cluster.addresses.values(), options=options) as client:
        yield client


async def test_members_in_go_and_python_go_on_when_the_coordinator_is_killed(
    cluster: LiftbridgeCluster, client: Client, go_client_program: Path
) -> None:
    group = Group("billing", ("orders", "refunds"), tuple(cluster.addresses.values()))
    in_go = [group.in_go(f"go-{number}", go_client_program, GO_HEARTBEAT) for number in range(3)]
    in_python = [group.in_python(f"python-{number}") for number in range(3)]
    async with at_work(client, group, [*in_go, *in_python], partitions=6) as scene:
        await scene.settled()
        await scene.served()
        await scene.in_sync(client)
        epoch, last = scene.epoch, scene.publishing.sent

        await cluster.stop_node(coordinator_of(in_go[0]))
        killed_at = time.time_ns()
        await scene.settled(after=epoch, within=2 * COORDINATOR_TIMEOUT)
        await scene.served(within=2 * COORDINATOR_TIMEOUT)
        served = [scene.served_since(place, last) for place in scene.places]
        seconds = max((at - killed_at) / 1e9 for at in served if at is not None)
        assert seconds < 2 * COORDINATOR_TIMEOUT

        await scene.drained()
        scene.check()
        assert all_in_python_never_failed(scene)
    steps_back = [step for step in group.history.steps_back() if not is_of_go(step, scene)]
    assert steps_back == [], scene.describe()


def coordinator_of(member: MemberProcess) -> str:
    """The node that coordinates the group, as it told a member that joined."""
    [joined] = [told for told in member.told if told["event"] == "joined"]
    coordinator: str = joined["coordinator"]
    return coordinator


def all_in_python_never_failed(scene: Scene) -> bool:
    """True if no member in Python reported a failure."""
    return not any(
        member.failures for member in scene.members if not isinstance(member, MemberProcess)
    )


def is_of_go(step: StepBack, scene: Scene) -> bool:
    """True if a member in Go caused a step back.

    It is, if that stored the lesser position. Or it stored the greater one for a partition that was
    not its own any more: a member in Python had it by then, and goes by what was stored when that
    began.
    """
    history = scene.history
    if history.sender(step.then) is not None:
        return True
    in_python = [each.name for each in scene.members if not isinstance(each, MemberProcess)]
    owner = history.owner_at(step.highest.place, step.highest.at, in_python)
    return history.sender(step.highest) is not None and owner is not None
