"""Nodes of the real server for these scripts: one alone, or three with NATS beside them."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from support.servers.build import build_nats, build_server
from support.servers.nats import NatsServer
from support.servers.ports import free_ports
from support.servers.process import ServerProcess

from .raw import Refused, Server

HOST: Final = "127.0.0.1"
START_TIMEOUT: Final = 40.0

# The settings of the cluster tests: failures are noticed after a second or two.
SETTINGS: Final = {
    "logging.level": "debug",
    "clustering.namespace": "faults",
    "clustering.replica.max.leader.timeout": "1s",
    "clustering.replica.max.lag.time": "1s",
    "clustering.replica.max.idle.wait": "500ms",
    "clustering.replica.fetch.timeout": "500ms",
    "cursors.stream.partitions": "1",
    "cursors.stream.auto.pause.time": "0",
    "groups.consumer.timeout": "1s",
    "groups.coordinator.timeout": "1s",
}


class NotInTime(Exception):
    """Something that a script waits for did not happen."""


@dataclass(slots=True)
class Node:
    """A node: its process, and a connection to it."""

    name: str
    process: ServerProcess
    server: Server

    def start(self) -> None:
        """Start it; it may take a while to join in."""
        self.process.start()


@dataclass(slots=True)
class Nodes:
    """Some nodes on one NATS."""

    nodes: dict[str, Node] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Server:
        return self.nodes[name].server

    @property
    def names(self) -> tuple[str, ...]:
        """All nodes, running or not."""
        return tuple(self.nodes)

    def kill(self, *names: str) -> None:
        """End them as a crash does (SIGKILL)."""
        for name in names:
            self.nodes[name].process.kill()

    def start(self, *names: str) -> None:
        """Start them on their data."""
        for name in names:
            self.nodes[name].start()

    def start_anew(self, name: str) -> None:
        """Kill a node, remove its data and its log, and start it."""
        self.kill(name)
        folder = self.nodes[name].process.folder
        shutil.rmtree(folder / "data")
        (folder / "server.log").unlink()
        self.start(name)

    def says(self, name: str, words: str) -> bool:
        """True if its log has these words."""
        return words in self.nodes[name].process.log

    def heal(self, stream: str) -> None:
        """Start who does not run, and wait until all nodes take messages for a new stream."""
        self.start(*self.names)
        self.thaw(*self.names)
        first = self[self.names[0]]
        soon("a new stream", lambda: first.create(stream, len(self.names)))
        for name in self.names:
            soon("an ack", partial(_takes, self[name], stream))

    def freeze(self, *names: str) -> None:
        """Let them do nothing (SIGSTOP)."""
        for name in names:
            self.nodes[name].process.freeze()

    def thaw(self, *names: str) -> None:
        """Let them go on (SIGCONT)."""
        for name in names:
            self.nodes[name].process.thaw()

    def ended_by_itself(self, name: str) -> bool:
        """True if the process is gone although nobody ended it."""
        return not self.nodes[name].process.running

    def last_words(self, name: str, words: tuple[str, ...]) -> str:
        """The first line of its log that begins with one of these words."""
        lines = self.nodes[name].process.log.splitlines()
        return next((line for line in lines if line.startswith(words)), "")

    def followers(self, stream: str, leader: str) -> list[str]:
        """The replicas in sync that do not lead."""
        return [each for each in self[leader].partition(stream).isr if each != leader]

    def leader(self, stream: str, witness: str, *, old: str = "", timeout: float = 20.0) -> str:
        """Wait until a witness names a leader, and not `old`."""
        found = ""

        def named() -> bool:
            nonlocal found
            found = self[witness].partition(stream).leader
            return found not in ("", old)

        soon(f"a leader of {stream}", named, timeout)
        return found


def _takes(server: Server, stream: str) -> bool:
    return server.publish(stream, b"healthy") >= 0


def soon(
    what: str, condition: Callable[[], bool], timeout: float = 20.0, *, poll: float = 0.05
) -> None:
    """Ask every `poll` seconds until it holds; refusals mean "not yet".

    Raises:
        NotInTime: It did not hold within `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        with suppress(Refused):
            if condition():
                return
        if time.monotonic() > deadline:
            raise NotInTime(what)
        time.sleep(poll)


@contextmanager
def running(
    count: int, settings: Mapping[str, str] | None = None, *, data: Path | None = None
) -> Iterator[Nodes]:
    """So many nodes that work together; they end with the block.

    Args:
        count: How many.
        settings: Keys of the servers' YAML that differ from `SETTINGS`.
        data: Where they keep their data, in a folder that is removed; None: among other files that
            do not last.

    Raises:
        NotInTime: They did not within 40 seconds.
    """
    binary, nats_binary = build_server(), build_nats()
    with tempfile.TemporaryDirectory(prefix="server-faults-", dir=data) as place:
        folder = Path(place)
        nats = NatsServer(nats_binary, folder)
        nodes = Nodes()
        try:
            nats.start()
            names = [f"n{number}" for number in range(1, count + 1)]
            for name, port in zip(names, free_ports(count), strict=True):
                all_settings = {
                    **SETTINGS,
                    "cursors.stream.replication.factor": str(count),
                    **(settings or {}),
                    "host": HOST,
                    "port": str(port),
                    "data.dir": str(folder / name / "data"),
                    "nats.servers": f'["nats://{HOST}:{nats.port}"]',
                    "clustering.server.id": name,
                    "clustering.raft.bootstrap.peers": f"[{', '.join(names)}]",
                }
                nodes.nodes[name] = _node(name, binary, folder / name, port, all_settings)
                nodes.start(name)
            soon("a cluster that works", lambda: _works(nodes), START_TIMEOUT)
            yield nodes
        finally:
            for node in nodes.nodes.values():
                node.process.kill()
                node.server.close()
            nats.stop()


def _node(name: str, binary: Path, folder: Path, port: int, settings: Mapping[str, str]) -> Node:
    folder.mkdir()
    config = folder / "liftbridge.yaml"
    config.write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
    return Node(name, ServerProcess((binary, "-c", config), folder), Server(f"{HOST}:{port}"))


def _works(nodes: Nodes) -> bool:
    """Return True if a message reaches all nodes, and a node keeps cursors."""
    probe = "probe"
    first = nodes[nodes.names[0]]
    try:
        first.create(probe, len(nodes.names))
    except Refused as refused:
        if refused.code != "ALREADY_EXISTS":
            raise
    for name in nodes.names:
        nodes[name].publish(probe, b"probe")
    return any(_keeps_cursors(nodes[name]) for name in nodes.names)


def _keeps_cursors(server: Server) -> bool:
    try:
        server.fetch_cursor("probe", "probe")
    except Refused:
        return False
    return True
