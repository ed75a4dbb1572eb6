"""Gateways of Durable Streams, each in a process of its own."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.servers.ports import free_ports
from support.servers.process import ServerProcess

READY_TIMEOUT: Final = 30.0


class GatewayDidNotStart(Exception):
    """The process ended or did not listen in time; the text has the end of its log."""


@dataclass(slots=True)
class GatewayProcess:
    """`liftbridge-aio gateway` on a free port of 127.0.0.1, the same one over all its starts.

    Its long-polls end after half a second.

    Attributes:
        servers: The addresses of Liftbridge.
        folder: A directory for its log.
        port: Where it listens.
    """

    servers: str
    folder: Path
    port: int = 0
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
            GatewayDidNotStart: It ended, or did not listen within 30 seconds.
        """
        if self.process is None:
            program = (sys.executable, "-m", "liftbridge_aio", "gateway")
            flags = ("--port", str(self.port), "--servers", self.servers, "--json")
            command = (*program, *flags, "--webhooks", "--long-poll-timeout", "500ms")
            self.process = ServerProcess(command, self.folder, f"gateway-{self.port}")
        ready = json.dumps({"url": self.url})
        seen = self.process.log.count(ready)
        self.process.start()
        deadline = time.monotonic() + READY_TIMEOUT
        while self.process.log.count(ready) == seen:
            if not self.process.running or time.monotonic() > deadline:
                self.process.kill()
                message = f"the gateway did not start:\n{self.process.log[-2000:]}"
                raise GatewayDidNotStart(message)
            time.sleep(0.02)

    def stop(self) -> None:
        """End it in order."""
        if self.process is not None:
            self.process.stop()

    def kill(self) -> None:
        """End it at once, as a crash does."""
        assert self.process is not None
        self.process.kill()
