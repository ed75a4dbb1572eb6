"""One real Liftbridge server of our own: configured, started, polled until ready, ended by pid."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
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

READY_TIMEOUT: Final = 30.0
STOP_TIMEOUT: Final = 8.0
CURSOR_PARTITIONS: Final = 3
ENCRYPTION_KEY_VARIABLE: Final = "LIFTBRIDGE_ENCRYPTION_KEY"

ResultT = TypeVar("ResultT")
Setting = str | int | bool


class ServerDidNotStart(Exception):
    """The process ended or was not ready in time; the text has the end of its log."""


class Server(Protocol):
    """What a test knows of the server it talks to, whichever it is."""

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


def free_ports(count: int) -> list[int]:
    """So many different ports of 127.0.0.1 that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@dataclass(slots=True)
class LiftbridgeNode:
    """A single-node server with NATS inside, on its own ports and data directory.

    All methods block and work with or without a running event loop; in a coroutine that has to
    keep running meanwhile, use ``await asyncio.to_thread(node.start)``. Ports and data stay the
    same from one start to the next.

    Attributes:
        binary: The server's executable.
        folder: An empty directory for configuration, data and log.
        kind: Its name in the test matrix.
        settings: Keys of the server's YAML that differ from the usual ones.
        environment: Variables added to those of this process.
    """

    binary: Path
    folder: Path
    kind: str
    settings: Mapping[str, Setting] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 0
    nats_port: int = 0
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        if not self.port:
            self.port, self.nats_port = free_ports(2)

    @property
    def address(self) -> str:
        """Where clients connect: ``host:port``."""
        return f"{self.host}:{self.port}"

    @property
    def nats_url(self) -> str:
        """Where the NATS server inside listens."""
        return f"nats://{self.host}:{self.nats_port}"

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self.process is not None and self.process.poll() is None

    @property
    def log(self) -> str:
        """All that the server has printed, over all its starts."""
        path = self.folder / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Start the process and wait until it creates streams and leads ``__cursors``.

        Raises:
            ServerDidNotStart: It ended, or was not ready within 30 seconds.
        """
        if self.running:
            return
        self._write_configuration()
        environment = {k: v for k, v in os.environ.items() if k != ENCRYPTION_KEY_VARIABLE}
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.binary, "-c", self.folder / "liftbridge.yaml"],
                cwd=self.folder,
                env=environment | dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_ready()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End the process in order (SIGINT), or by force if that takes over 8 seconds."""
        if self.process is None:
            return
        if self.running:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
        self.process = None

    def kill(self) -> None:
        """End the process at once, as a crash does (SIGKILL)."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _write_configuration(self) -> None:
        nats = self.folder / "nats.conf"
        nats.write_text(f'listen: "{self.host}:{self.nats_port}"\n')
        settings: dict[str, Setting] = {
            "host": self.host,
            "port": self.port,
            "data.dir": str(self.folder / "data"),
            "logging.level": "info",
            "nats.embedded.config": str(nats),
            "clustering.server.id": "a",
            "clustering.namespace": "tests",
            "clustering.raft.bootstrap.seed": True,
            "metadata.cache.max.age": "100ms",
            "cursors.stream.partitions": CURSOR_PARTITIONS,
            "cursors.stream.replication.factor": 1,
            # Otherwise cursors stall each time their stream has paused.
            "cursors.stream.auto.pause.time": 0,
            **self.settings,
        }
        lines = [f"{key}: {_yaml(value)}" for key, value in settings.items()]
        lines.append(f'nats.servers: ["{self.nats_url}"]')
        (self.folder / "liftbridge.yaml").write_text("\n".join(lines) + "\n")

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT
        cursors = self.settings.get("cursors.stream.partitions", CURSOR_PARTITIONS) != 0
        while not _in_own_loop(_is_ready(self.host, self.port, cursors=cursors)):
            if not self.running:
                message = f"{self.binary.name} ended while starting:\n{self.log[-2000:]}"
                raise ServerDidNotStart(message)
            if time.monotonic() > deadline:
                message = f"{self.binary.name} was not ready in time:\n{self.log[-2000:]}"
                raise ServerDidNotStart(message)
            time.sleep(0.05)


def _yaml(value: Setting) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else f'"{value}"'


def _in_own_loop(coroutine: Coroutine[None, None, ResultT]) -> ResultT:
    """Run it to its end in a thread, since the caller's thread may be running a loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


async def _is_ready(host: str, port: int, *, cursors: bool) -> bool:
    """Whether the server leads: it creates and deletes streams and has made its cursors.

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
