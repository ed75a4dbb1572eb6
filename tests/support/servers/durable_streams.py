"""The reference server of Durable Streams in a process of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.servers.npm_packages import find_node
from support.servers.ports import free_ports
from support.servers.process import HasProcess, ServerProcess

READY_TIMEOUT: Final = 20.0
_READY: Final = '{"port":'


@dataclass(slots=True)
class DurableStreamsServer(HasProcess):
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
            DidNotStart: It ended, or did not listen within 20 seconds.
        """
        if self.process is None:
            node, _ = find_node()
            store = (self.folder / "store",) if self.on_disk else ()
            script = self.packages / "durable_streams.mjs"
            command = (node, script, str(self.port), *store)
            self.process = ServerProcess(command, self.folder, "durable-streams")
        self.process.start_until_told(_READY, READY_TIMEOUT)
