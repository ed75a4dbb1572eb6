"""Processes that are killed and started again: the servers, the worker and the driver."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final, Protocol

from liftbridge_aio import Client
from scenario.orders import INVOICES
from support.servers.cluster import LiftbridgeCluster
from support.servers.ports import free_ports

_CHECK_INTERVAL: Final = 0.2


class Child:
    """A process that is started again whenever it ends, as a supervisor does.

    Args:
        words: the module and its arguments.
        folder: for its output.
    """

    def __init__(self, words: tuple[str, ...], folder: Path) -> None:
        self._command = (sys.executable, "-m", *words)
        self._log = folder / f"{words[0]}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def start(self) -> None:
        root = Path(__file__).parent.parent
        path = os.pathsep.join([str(root), str(root.parent), os.environ.get("PYTHONPATH", "")])
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )
        self.starts += 1

    async def watch(self) -> None:
        """Start it, and again when it has ended, until cancelled; then it is killed."""
        try:
            while True:
                if self._process is None or self._process.poll() is not None:
                    self.start()
                await asyncio.sleep(_CHECK_INTERVAL)
        finally:
            self.kill()

    def kill(self) -> None:
        """End it and its own processes at once, with kill -9."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")[-3000:] if self._log.exists() else ""


class Servers(Protocol):
    """Servers of which one can be killed."""

    addresses: tuple[str, ...]

    async def start(self) -> None:
        """Start them, and wait until they serve."""

    async def kill_leader(self, client: Client) -> None:
        """Kill the leader of a partition with kill -9, and start it again."""

    def stop(self) -> None:
        """End them."""


class Embedded:
    """The embedded broker in a process of its own, with its data on disk."""

    def __init__(self, folder: Path) -> None:
        [port] = free_ports(1)
        self.addresses: tuple[str, ...] = (f"127.0.0.1:{port}",)
        words = ("liftbridge_aio", "broker", "--port", str(port), "--data-dir", str(folder / "log"))
        self._child = Child(words, folder)

    async def start(self) -> None:
        self._child.start()
        [address] = self.addresses
        while f"{address}\n" not in self._child.output:  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(_CHECK_INTERVAL)

    async def kill_leader(self, client: Client) -> None:  # noqa: ARG002 - there is only one
        self._child.kill()
        self._child.start()

    def stop(self) -> None:
        self._child.kill()


class Real:
    """Three real nodes."""

    def __init__(self, cluster: LiftbridgeCluster) -> None:
        self._cluster = cluster
        self.addresses: tuple[str, ...] = ()

    async def start(self) -> None:
        await asyncio.to_thread(self._cluster.open)
        self.addresses = tuple(self._cluster.addresses.values())

    async def kill_leader(self, client: Client) -> None:
        metadata = await client.fetch_metadata()
        leader = metadata.streams[INVOICES].partitions[0].leader
        await self._cluster.stop_node(leader)
        await asyncio.sleep(3)
        await self._cluster.start_node(leader)

    def stop(self) -> None:
        self._cluster.close()
