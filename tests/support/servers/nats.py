"""A NATS server in a process of its own, for nodes that must be able to die without it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.servers.ports import free_ports, listens
from support.servers.process import HasProcess, ServerProcess

READY_TIMEOUT: Final = 10.0


@dataclass(slots=True)
class NatsServer(HasProcess):
    """NATS on a free port of 127.0.0.1, without any state on disk.

    Attributes:
        binary: The server's executable.
        folder: A directory for its log.
        arguments: Further arguments on its command line.
    """

    binary: Path
    folder: Path
    host: str = "127.0.0.1"
    port: int = 0
    arguments: tuple[str | Path, ...] = ()
    process: ServerProcess | None = None

    def __post_init__(self) -> None:
        if not self.port:
            [self.port] = free_ports(1)

    def start(self) -> None:
        """Start it and wait until it listens.

        Raises:
            DidNotStart: It ended, or did not listen within 10 seconds.
        """
        address = ("--addr", self.host, "--port", str(self.port))
        command = (self.binary, *address, *self.arguments)
        self.process = ServerProcess(command, self.folder, "nats")
        self.process.start_until(lambda: listens(self.port, self.host), READY_TIMEOUT)
