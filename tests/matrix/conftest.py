"""The servers of the matrix."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

import pytest

from conftest import EMBEDDED, OTHER, PINNED, SERVERS
from matrix import outages  # noqa: F401 - further states
from matrix.states import STATES, Servers, State
from matrix.worlds import (
    ClusterWorld,
    LoneWorld,
    World,
    running_embedded_cluster,
    running_embedded_world,
)
from support.lone_servers import LoneNode
from support.servers.build import nats_path, server_path
from support.servers.cluster import LiftbridgeCluster
from support.servers.node import LiftbridgeNode, Setting

LABELS: Final = {EMBEDDED: EMBEDDED, PINNED: PINNED, OTHER: "HEAD"}
SETTINGS: Final[dict[str, dict[str, Setting]]] = {PINNED: {}, OTHER: {"telemetry.enabled": False}}
PATIENT: Final = {"groups.consumer.timeout": "20s", "groups.coordinator.timeout": "10s"}
"""All operations of a state begin at once, on a machine that may be busy. v1.9.0 ends by a panic
where a member expires whose group is just being deleted (server/groups.go, consumerExpired)."""


EVERYTHING: Final = os.environ.get("LIFTBRIDGE_MATRIX") == "all"
"""True to run slow cells, too: real servers that are harmed, and Spark."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each state on each server on which it is tried."""
    if "state" in metafunc.fixturenames:
        pairs = [
            pytest.param(kind, state, id=f"{LABELS[kind]}-{state.name}")
            for kind in SERVERS
            for state in STATES.values()
            if EVERYTHING or kind == EMBEDDED or state.servers is Servers.SHARED
        ]
        metafunc.parametrize(("kind", "state"), pairs)


@pytest.fixture
async def world(request: pytest.FixtureRequest, kind: str, state: State) -> AsyncIterator[World]:
    """Servers of a kind on which a state can be brought about."""
    if kind == EMBEDDED:
        running: AbstractAsyncContextManager[World] = (
            running_embedded_cluster()
            if state.servers is Servers.CLUSTER
            else running_embedded_world()
        )
        async with running as embedded:
            yield embedded
    elif state.servers is Servers.SHARED:
        shared = request.getfixturevalue("shared_server_of")[kind]
        yield LoneWorld(LoneNode(shared, LABELS[kind]))
    elif state.servers is Servers.LONE:
        yield LoneWorld(LoneNode(request.getfixturevalue("lone_server"), LABELS[kind]))
    else:
        cluster: LiftbridgeCluster = request.getfixturevalue("cluster_of")[kind]
        yield ClusterWorld(cluster, LABELS[kind])
        await cluster.heal()


def _binary(kind: str) -> Path:
    return server_path() if kind == PINNED else Path(os.environ[OTHER]).resolve()


@pytest.fixture
def lone_server(kind: str, tmp_path: Path) -> Iterator[LiftbridgeNode]:
    """A server of the test's own."""
    node = LiftbridgeNode(_binary(kind), tmp_path, kind, SETTINGS[kind])
    try:
        node.start()
        yield node
    finally:
        node.stop()


class SharedServers(dict[str, LiftbridgeNode]):
    """Servers by kind, each started when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __missing__(self, kind: str) -> LiftbridgeNode:
        folder = self._folder / LABELS[kind]
        folder.mkdir()
        node = LiftbridgeNode(_binary(kind), folder, kind, {**SETTINGS[kind], **PATIENT})
        self[kind] = node
        node.start()
        return node


@pytest.fixture(scope="session")
def shared_server_of(
    server_binary: Path,  # noqa: ARG001 - it is built for this
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SharedServers]:
    """A server of each kind for all states that harm none."""
    servers = SharedServers(tmp_path_factory.mktemp("shared"))
    try:
        yield servers
    finally:
        for node in servers.values():
            node.stop()


class Clusters(dict[str, LiftbridgeCluster]):
    """Clusters by kind, each started when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __missing__(self, kind: str) -> LiftbridgeCluster:
        folder = self._folder / LABELS[kind]
        folder.mkdir()
        cluster = LiftbridgeCluster(_binary(kind), nats_path(), folder, kind, SETTINGS[kind])
        self[kind] = cluster
        cluster.open()
        return cluster


@pytest.fixture(scope="session")
def cluster_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    """Three nodes of each kind of real server."""
    clusters = Clusters(tmp_path_factory.mktemp("clusters"))
    try:
        yield clusters
    finally:
        for cluster in clusters.values():
            cluster.close()
