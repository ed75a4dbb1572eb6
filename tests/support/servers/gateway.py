"""Gateways of Durable Streams, each in a process of its own."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.servers.ports import free_ports
from support.servers.process import HasProcess, ServerProcess

READY_TIMEOUT: Final = 30.0


@dataclass(slots=True, eq=False)
class GatewayProcess(HasProcess):
    """`liftbridge-aio gateway` on a free port of 127.0.0.1, the same one over all its starts.

    Its long-polls end after half a second.

    Attributes:
        servers: The addresses of Liftbridge.
        folder: A directory for its log.
        port: Where it listens.
        flags: More arguments.
    """

    servers: str
    folder: Path
    port: int = 0
    flags: tuple[str, ...] = ()
    process: ServerProcess | None = None

    def __post_init__(self) -> None:
        if not self.port:
            [self.port] = free_ports(1)

    @property
    def url(self) -> str:
        """The URL below which all its streams are."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it listens; call it in a thread where the broker's loop runs.

        Raises:
            DidNotStart: It ended, or did not listen within 30 seconds.
        """
        self._made().start_until_told(json.dumps({"url": self.url}), READY_TIMEOUT)

    @property
    def log(self) -> str:
        """All that it has printed."""
        return "" if self.process is None else self.process.log

    def launch(self) -> ServerProcess:
        """Start it, and wait for nothing."""
        process = self._made()
        process.start()
        return process

    def _made(self) -> ServerProcess:
        if self.process is None:
            program = (sys.executable, "-m", "liftbridge_aio", "gateway", *self.flags)
            flags = ("--port", str(self.port), "--servers", self.servers, "--json")
            command = (*program, *flags, "--webhooks", "--long-poll-timeout", "500ms")
            self.process = ServerProcess(command, self.folder, f"gateway-{self.port}")
        return self.process
