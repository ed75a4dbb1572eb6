"""A real Liftbridge server of our own: configured, started, polled until ready, ended by pid."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import time
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypeVar

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError, StreamTerminatedError

from liftbridge_aio.wire import proto, rpc
from support.servers.ports import free_ports
from support.servers.process import ServerProcess

READY_TIMEOUT: Final = 30.0
STARTS: Final = 3
"""The maximum number of attempts to start it, see `LiftbridgeNode.wait_ready`."""
LOG_END: Final = 4000
CURSOR_PARTITIONS: Final = 3
CONSUMER_TIMEOUT: Final = "4s"
COORDINATOR_TIMEOUT: Final = "1s"
ENCRYPTION_KEY_VARIABLE: Final = "LIFTBRIDGE_ENCRYPTION_KEY"

_RAFT_WAS_SLOW: Final = "raft operation timed out"

ResultT = TypeVar("ResultT")
Setting = str | int | bool | tuple[str, ...]


class ServerDidNotStart(Exception):
    """The process ended or was not ready in time; the text has the end of its log."""


class Server(Protocol):
    """The interface of the server under test, real or embedded."""

    @property
    def kind(self) -> str:
        """The name in the test matrix: ``embedded``, ``v1.9.0``, …."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def address(self) -> str:
        """As a client takes it: ``host:port``."""


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """The address of an embedded broker."""

    host: str
    port: int
    kind: str = "embedded"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(slots=True)
class LiftbridgeNode:
    """A server on its own ports and data directory: single with NATS inside, or one of a cluster.

    All methods block and work with or without a running event loop; in a coroutine that has to
    keep running meanwhile, use ``await asyncio.to_thread(node.start)``. Ports and data stay the
    same from one start to the next.

    Attributes:
        binary: The server's executable.
        folder: An empty directory for configuration, data and log.
        kind: Its name in the test matrix.
        settings: Keys of the server's YAML that differ from the usual ones.
        environment: Variables added to those of this process.
        server_id: Its name in the cluster.
        peers: The ids of all nodes of its cluster, if it is to be one of several.
        nats_port: Where NATS listens, if that runs in another process.
        advertised_port: What it tells clients to connect to, if that is another port of this
            machine: a proxy's.
    """

    binary: Path
    folder: Path
    kind: str
    settings: Mapping[str, Setting] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    server_id: str = "a"
    peers: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = 0
    nats_port: int = 0
    advertised_port: int = 0
    _process: ServerProcess | None = None

    def __post_init__(self) -> None:
        self.port, *rest = free_ports(1 if self.nats_port else 2)
        if rest:
            [self.nats_port] = rest

    @property
    def address(self) -> str:
        """Address for clients, ``host:port``."""
        return f"{self.host}:{self.port}"

    @property
    def nats_url(self) -> str:
        """Address of the NATS server."""
        return f"nats://{self.host}:{self.nats_port}"

    @property
    def running(self) -> bool:
        """True if the process is alive, frozen or not."""
        return self._process is not None and self._process.running

    @property
    def log(self) -> str:
        """All that the server has printed, over all its starts."""
        return self._process.log if self._process is not None else ""

    def start(self) -> None:
        """Start the process and wait as `wait_ready` does.

        Raises:
            ServerDidNotStart: It ended, or was not ready within 30 seconds.
        """
        if self.running:
            return
        try:
            self.launch()
            self.wait_ready()
        except BaseException:
            self.kill()
            raise

    def launch(self) -> None:
        """Start the process without waiting for anything, as the nodes of a cluster must be."""
        if self._process is None:
            self._write_configuration()
            environment = {k: v for k, v in os.environ.items() if k != ENCRYPTION_KEY_VARIABLE}
            self._process = ServerProcess(
                (self.binary, "-c", self.folder / "liftbridge.yaml"),
                self.folder,
                environment=environment | dict(self.environment),
            )
        self._process.start()

    def wait_open(self) -> None:
        """Wait until the port is open, once it was launched: v1.9.0 knows no streams yet then.

        Raises:
            ServerDidNotStart: It ended, or did not listen within 30 seconds.
        """
        deadline = time.monotonic() + READY_TIMEOUT
        while True:
            with socket.socket() as probe:
                if probe.connect_ex((self.host, self.port)) == 0:
                    return
            if not self.running or time.monotonic() > deadline:
                raise ServerDidNotStart(
                    f"{self.binary.name} does not listen:\n{self.log[-LOG_END:]}"
                )
            time.sleep(0.01)

    def advertise(self, port: int) -> None:
        """Tell clients another port from the next start on."""
        self.advertised_port = port
        self._write_configuration()

    def stop(self) -> None:
        """End the process in order (SIGINT), or by force if that takes over 8 seconds."""
        if self._process is not None:
            self._process.stop()

    def start_anew(self) -> None:
        """Start without any data, on the same ports; see `start`."""
        self.stop()
        self.lose_disk()
        self.start()

    def lose_disk(self) -> None:
        """Remove all data; for a server that does not run."""
        shutil.rmtree(self.folder / "data")

    def kill(self) -> None:
        """End the process at once, as a crash does (SIGKILL)."""
        if self._process is not None:
            self._process.kill()

    def freeze(self) -> None:
        """Stop the process from running (SIGSTOP): its connections stay open and silent."""
        if self._process is not None:
            self._process.freeze()

    def thaw(self) -> None:
        """Let the process run again (SIGCONT)."""
        if self._process is not None:
            self._process.thaw()

    def _write_configuration(self) -> None:
        settings: dict[str, Setting] = {
            "host": self.host,
            "port": self.port,
            "data.dir": str(self.folder / "data"),
            "logging.level": "info",
            "nats.servers": (self.nats_url,),
            "clustering.server.id": self.server_id,
            "clustering.namespace": "tests",
            "metadata.cache.max.age": "100ms",
            "cursors.stream.partitions": CURSOR_PARTITIONS,
            "cursors.stream.replication.factor": max(1, len(self.peers)),
            # Otherwise cursors stall each time their stream has paused.
            "cursors.stream.auto.pause.time": 0,
            "groups.consumer.timeout": CONSUMER_TIMEOUT,
            "groups.coordinator.timeout": COORDINATOR_TIMEOUT,
            "activity.stream.enabled": True,
            **(self._in_cluster() if self.peers else self._alone()),
            **self._behind_proxy(),
            **self.settings,
        }
        lines = [f"{key}: {_yaml(value)}\n" for key, value in settings.items()]
        (self.folder / "liftbridge.yaml").write_text("".join(lines))

    def _alone(self) -> dict[str, Setting]:
        nats = self.folder / "nats.conf"
        nats.write_text(f'listen: "{self.host}:{self.nats_port}"\n')
        return {"nats.embedded.config": str(nats), "clustering.raft.bootstrap.seed": True}

    def _in_cluster(self) -> dict[str, Setting]:
        # A seed would make __cursors while it is alone, with a single replica.
        return {"clustering.raft.bootstrap.peers": self.peers}

    def _behind_proxy(self) -> dict[str, Setting]:
        if not self.advertised_port:
            return {}
        return {"listen": self.address, "port": self.advertised_port}

    def wait_ready(self) -> None:
        """Wait until it creates streams and leads ``__cursors``, once it was launched.

        v1.9.0 ends by a panic where the first entries of its Raft log are held up for seconds; it
        is started again then.

        Raises:
            ServerDidNotStart: It ended, or was not ready within 30 seconds.
        """
        for starts_left in reversed(range(STARTS)):
            try:
                self._wait_ready_once()
            except ServerDidNotStart:
                if not starts_left or _RAFT_WAS_SLOW not in self.log[-LOG_END:]:
                    raise
                self.kill()
                self.launch()
            else:
                return

    def _wait_ready_once(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT
        cursors = self.settings.get("cursors.stream.partitions", CURSOR_PARTITIONS) != 0
        while not in_own_loop(_is_ready(self.host, self.port, cursors=cursors)):
            if not self.running:
                raise ServerDidNotStart(
                    f"{self.binary.name} ended while starting:\n{self.log[-LOG_END:]}"
                )
            if time.monotonic() > deadline:
                raise ServerDidNotStart(
                    f"{self.binary.name} was not ready in time:\n{self.log[-LOG_END:]}"
                )
            time.sleep(0.05)


def _yaml(value: Setting) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return f'"{value}"'
    return f"[{', '.join(map(_yaml, value))}]"


def in_own_loop(coroutine: Coroutine[None, None, ResultT]) -> ResultT:
    """Run it to its end in a thread, since the caller's thread may be running a loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


async def _is_ready(host: str, port: int, *, cursors: bool) -> bool:
    """Return True if the server leads: it creates and deletes streams and has made its cursors.

    The port opens and metadata is answered long before that.
    """
    create = proto.CreateStreamRequest(name="readiness", subject="readiness", partitions=1)
    channel = Channel(host, port)
    try:
        try:
            await _call(channel, rpc.CREATE_STREAM, create)
        except GRPCError as error:
            # Left by an attempt that got no further.
            if error.status is not Status.ALREADY_EXISTS:
                raise
        await _call(channel, rpc.DELETE_STREAM, proto.DeleteStreamRequest(name="readiness"))
        if cursors:
            cursor = proto.FetchCursorRequest(stream="readiness", cursor_id="readiness")
            await _call(channel, rpc.FETCH_CURSOR, cursor)
    except (GRPCError, StreamTerminatedError, OSError):
        return False
    finally:
        channel.close()
    return True


async def _call(
    channel: Channel,
    procedure: rpc.Rpc[rpc.RequestT, rpc.ReplyT],
    request: rpc.RequestT,
) -> rpc.ReplyT:
    method = UnaryUnaryMethod[rpc.RequestT, rpc.ReplyT](
        channel, procedure.path, procedure.request, procedure.reply
    )
    return await method(request, timeout=5)
