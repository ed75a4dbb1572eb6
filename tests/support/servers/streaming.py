"""A NATS Streaming server in a process of its own, which has NATS inside or sits on one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.servers.ports import free_ports
from support.servers.process import HasProcess, ServerProcess

CLUSTER: Final = "test-cluster"
READY_TIMEOUT: Final = 15.0
_READY: Final = "STREAM: Streaming Server is ready"


@dataclass(slots=True)
class StreamingServer(HasProcess):
    """NATS Streaming on a free port of 127.0.0.1.

    Attributes:
        binary: The server's executable.
        folder: A directory for its log and its files.
        store: MEMORY or FILE.
        arguments: Further arguments on its command line.
        nats_url: The NATS server that it sits on; empty if it has its own.
        cluster: The id of its cluster.
    """

    binary: Path
    folder: Path
    store: str = "MEMORY"
    arguments: tuple[str, ...] = ()
    nats_url: str = ""
    cluster: str = CLUSTER
    host: str = "127.0.0.1"
    port: int = 0
    process: ServerProcess | None = None

    def __post_init__(self) -> None:
        if not self.port:
            [self.port] = free_ports(1)

    @property
    def url(self) -> str:
        """The address of NATS."""
        return self.nats_url or f"nats://{self.host}:{self.port}"

    def start(self) -> None:
        """Start it and wait until it is ready.

        Raises:
            DidNotStart: It ended, or was not ready in time.
        """
        where = ("-ns", self.nats_url) if self.nats_url else ("-a", self.host, "-p", str(self.port))
        store = (
            "-st",
            self.store,
            *(("--dir", str(self.folder / "store")) if self.on_disk else ()),
        )
        command = (self.binary, *where, "-cid", self.cluster, *store, *self.arguments)
        self.process = self.process or ServerProcess(command, self.folder, "streaming")
        self.process.start_until_told(_READY, READY_TIMEOUT)

    @property
    def on_disk(self) -> bool:
        """True if what it stores outlives it."""
        return self.store == "FILE"
