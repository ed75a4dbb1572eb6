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


@dataclass(slots=True, eq=False)
class GatewayProcess:
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
            GatewayDidNotStart: It ended, or did not listen within 30 seconds.
        """
        ready = json.dumps({"url": self.url})
        seen = self.log.count(ready)
        process = self.launch()
        deadline = time.monotonic() + READY_TIMEOUT
        while process.log.count(ready) == seen:
            if not process.running or time.monotonic() > deadline:
                process.kill()
                message = f"the gateway did not start:\n{process.log[-2000:]}"
                raise GatewayDidNotStart(message)
            time.sleep(0.02)

    @property
    def running(self) -> bool:
        """True while its process runs."""
        return self.process is not None and self.process.running

    @property
    def log(self) -> str:
        """All that it has printed."""
        return "" if self.process is None else self.process.log

    def launch(self) -> ServerProcess:
        """Start it, and wait for nothing."""
        if self.process is None:
            program = (sys.executable, "-m", "liftbridge_aio", "gateway", *self.flags)
            flags = ("--port", str(self.port), "--servers", self.servers, "--json")
            command = (*program, *flags, "--webhooks", "--long-poll-timeout", "500ms")
            self.process = ServerProcess(command, self.folder, f"gateway-{self.port}")
        self.process.start()
        return self.process

    def stop(self) -> None:
        """End it in order."""
        if self.process is not None:
            self.process.stop()

    def kill(self) -> None:
        """End it at once, as a crash does."""
        assert self.process is not None
        self.process.kill()
