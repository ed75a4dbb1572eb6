"""The servers that clients are measured on, each in processes of its own."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from liftbridge_aio import Client
from support.servers.build import build_nats, build_server, pinned_version
from support.servers.cluster import LiftbridgeCluster
from support.servers.node import LiftbridgeNode
from support.servers.ports import free_ports
from support.servers.process import ServerProcess

from .own_programs import environment, module

REAL: Final = "real"
EMBEDDED: Final = "embedded"
READY_TIMEOUT: Final = 20.0


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that takes calls.

    Attributes:
        addresses: `host:port` of each node.
        pids: All its processes, NATS included.
        nats_url: Of its NATS; None if it has none.
    """

    addresses: tuple[str, ...]
    pids: tuple[int, ...]
    nats_url: str | None


def server_version(server: str) -> str:
    """Return the name of a server in result files; of a path only the last part."""
    if server == REAL:
        return pinned_version()
    return EMBEDDED if server == EMBEDDED else Path(server).name


@contextmanager
def running(server: str, nodes: int) -> Iterator[RunningServer]:
    """Run a server until the block is left.

    Args:
        server: `real` for the version pinned by the tests, `embedded`, or the path of a binary.
        nodes: How many.

    Raises:
        ServerUnavailable: It cannot be built.
        ServerDidNotStart: It was not ready in time.
        ClusterNotHealthy: The nodes did not come to work together in time.
        LiftbridgeError: The embedded broker was not ready in time.
    """
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        folder = Path(name).resolve()
        if server == EMBEDDED:
            opened = _embedded(folder, nodes)
        else:
            binary = build_server() if server == REAL else Path(server).resolve()
            opened = _cluster(binary, folder) if nodes > 1 else _single(binary, folder)
        with opened as (addresses, nats_url):
            yield RunningServer(addresses, processes_in(folder), nats_url)


@contextmanager
def _single(binary: Path, folder: Path) -> Iterator[tuple[tuple[str, ...], str | None]]:
    node = LiftbridgeNode(binary, folder, "benchmarks")
    node.start()
    try:
        yield (node.address,), node.nats_url
    finally:
        node.kill()


@contextmanager
def _cluster(binary: Path, folder: Path) -> Iterator[tuple[tuple[str, ...], str | None]]:
    cluster = LiftbridgeCluster(binary, build_nats(), folder, "benchmarks")
    cluster.open()
    try:
        [nats_url] = {node.nats_url for node in cluster.nodes.values()}
        yield tuple(cluster.addresses.values()), nats_url
    finally:
        cluster.close()


@contextmanager
def _embedded(folder: Path, nodes: int) -> Iterator[tuple[tuple[str, ...], str | None]]:
    ports = free_ports(nodes)
    words = (*module("benchmarks.embedded_nodes"), *map(str, ports))
    process = ServerProcess(words, folder, environment=environment())
    process.start()
    try:
        addresses = tuple(f"127.0.0.1:{port}" for port in ports)
        asyncio.run(_wait_until_ready(addresses))
        yield addresses, None
    finally:
        process.kill()


async def _wait_until_ready(addresses: tuple[str, ...]) -> None:
    for address in addresses:
        client = Client(address)
        try:
            await client.wait_ready(timeout=READY_TIMEOUT)
        finally:
            await client.aclose()


def processes_in(folder: Path) -> tuple[int, ...]:
    """The processes that run in a folder: servers do, and whoever guards them does not."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append(int(process.name))
    return tuple(sorted(found))
