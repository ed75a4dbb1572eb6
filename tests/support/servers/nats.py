"""A NATS server in a process of its own, for nodes that must be able to die without it."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.servers.ports import free_ports
from support.servers.process import ServerProcess

READY_TIMEOUT: Final = 10.0


class NatsDidNotStart(Exception):
    """The process ended or did not listen in time; the text has the end of its log."""


@dataclass(slots=True)
class NatsServer:
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
            NatsDidNotStart: It ended, or did not listen within 10 seconds.
        """
        address = ("--addr", self.host, "--port", str(self.port))
        command = (self.binary, *address, *self.arguments)
        self.process = ServerProcess(command, self.folder, "nats")
        self.process.start()
        deadline = time.monotonic() + READY_TIMEOUT
        while not self._listens():
            if not self.process.running or time.monotonic() > deadline:
                self.process.kill()
                message = f"NATS did not start:\n{self.process.log[-2000:]}"
                raise NatsDidNotStart(message)
            time.sleep(0.02)

    def stop(self) -> None:
        """End it."""
        if self.process is not None:
            self.process.stop()

    def _listens(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex((self.host, self.port)) == 0
