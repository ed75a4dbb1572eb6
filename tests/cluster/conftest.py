"""The clusters of the matrix, healthy at the start of every test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest

from liftbridge_aio import Client, ClientOptions
from support.cluster.nodes import Nodes
from support.servers.build import pinned_version
from support.servers.cluster import Cluster, LiftbridgeCluster

EMBEDDED: Final = "embedded"
PINNED: Final = pinned_version()


@pytest.fixture
async def healthy_cluster(real_cluster: LiftbridgeCluster) -> AsyncIterator[Cluster]:
    """The three real nodes, brought back after the test whatever it did to them."""
    yield real_cluster
    await real_cluster.heal()


@pytest.fixture
async def embedded_cluster() -> AsyncIterator[Cluster]:
    """An embedded cluster of the test's own."""
    from support.servers.embedded_cluster import running_embedded_cluster  # noqa: PLC0415

    async with running_embedded_cluster() as cluster:
        yield cluster


@pytest.fixture(params=[EMBEDDED, PINNED])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Each cluster of the matrix in turn: the same test must hold on all of them."""
    fixtures = {EMBEDDED: "embedded_cluster", PINNED: "healthy_cluster"}
    chosen: Cluster = request.getfixturevalue(fixtures[request.param])
    return chosen


@pytest.fixture
async def nodes(cluster: Cluster) -> AsyncIterator[Nodes]:
    """A connection to each node."""
    nodes = Nodes(cluster.addresses)
    yield nodes
    nodes.close()


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    """A client that was told of all nodes and notices soon when one falls silent."""
    options = ClientOptions(health_interval=1.0, health_timeout=1.0, connect_timeout=2.0)
    async with Client(*cluster.addresses.values(), options=options) as client:
        yield client
