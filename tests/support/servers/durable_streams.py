"""The reference server of Durable Streams in a process of its own."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.servers.npm_packages import find_node
from support.servers.ports import free_ports
from support.servers.process import ServerProcess

READY_TIMEOUT: Final = 20.0
_READY: Final = '{"port":'


class DurableStreamsDidNotStart(Exception):
    """The process ended or did not listen in time; the text has the end of its log."""


@dataclass(slots=True)
class DurableStreamsServer:
    """The server on a free port of 127.0.0.1, the same one over all its starts.

    Its long-polls end after half a second.

    Attributes:
        packages: Where its npm packages are installed.
        folder: A directory for its log and its files.
        on_disk: True if what it stores outlives it.
    """

    packages: Path
    folder: Path
    on_disk: bool = False
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
        """Start it and wait until it listens.

        Raises:
            DurableStreamsDidNotStart: It ended, or did not listen within 20 seconds.
        """
        if self.process is None:
            node, _ = find_node()
            store = (self.folder / "store",) if self.on_disk else ()
            script = self.packages / "durable_streams.mjs"
            command = (node, script, str(self.port), *store)
            self.process = ServerProcess(command, self.folder, "durable-streams")
        seen = self.process.log.count(_READY)
        self.process.start()
        deadline = time.monotonic() + READY_TIMEOUT
        while self.process.log.count(_READY) == seen:
            if not self.process.running or time.monotonic() > deadline:
                self.process.kill()
                message = f"the server did not start:\n{self.process.log[-2000:]}"
                raise DurableStreamsDidNotStart(message)
            time.sleep(0.02)

    def stop(self) -> None:
        """End it in order."""
        if self.process is not None:
            self.process.stop()

    def kill(self) -> None:
        """End it at once, as a crash does."""
        assert self.process is not None
        self.process.kill()
