"""The daemons of NSQ in processes of their own: nsqd and nsqlookupd."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from support.servers.build import BIN, HERE, build
from support.servers.ports import free_ports, listens
from support.servers.process import HasProcess, ServerProcess

MODULE: Final = HERE / "go_nsq"
READY_TIMEOUT: Final = 10.0
_PINNED: Final = re.compile(r"^require github\.com/nsqio/nsq (v\S+)$", re.MULTILINE)


def build_nsq_daemons() -> None:
    """Build both daemons now if this is the first time.

    Raises:
        ServerUnavailable: no Go, or the build failed.
    """
    for program in ("nsqd", "nsqlookupd"):
        build_nsq(program)


def build_nsq(program: str) -> Path:
    """Return the path of `nsqd` or `nsqlookupd`, built now if this is the first time.

    Raises:
        ServerUnavailable: no Go, or the build failed.
    """
    found = _PINNED.search((MODULE / "go.mod").read_text())
    assert found is not None
    target = BIN / f"{program}-{found[1]}"
    return build(f"github.com/nsqio/nsq/apps/{program}", target, MODULE)


@dataclass(slots=True)
class NsqDaemon(HasProcess):
    """A daemon on free ports of 127.0.0.1, the same ones over all its starts.

    Attributes:
        program: `nsqd` or `nsqlookupd`.
        folder: for its log and its data.
        arguments: further arguments on its command line.
    """

    program: str
    folder: Path
    arguments: tuple[str, ...] = ()
    ports: list[int] = field(default_factory=lambda: free_ports(2))
    process: ServerProcess | None = None

    @property
    def address(self) -> str:
        """`host:port` of the TCP port."""
        return f"127.0.0.1:{self.ports[0]}"

    @property
    def http_url(self) -> str:
        """The URL of the HTTP port."""
        return f"http://127.0.0.1:{self.ports[1]}"

    def start(self) -> None:
        """Start it and wait until it listens.

        Raises:
            DidNotStart: it ended, or did not listen within 10 seconds.
        """
        self.folder.mkdir(exist_ok=True)
        tcp, http = self.ports
        command: list[str | Path] = [
            build_nsq(self.program),
            f"-tcp-address=127.0.0.1:{tcp}",
            f"-http-address=127.0.0.1:{http}",
            "-broadcast-address=127.0.0.1",
        ]
        if self.program == "nsqd":
            command += ["-https-address=", f"-data-path={self.folder}"]
        if self.process is None:
            self.process = ServerProcess((*command, *self.arguments), self.folder, self.program)
        self.process.start_until(lambda: all(map(listens, self.ports)), READY_TIMEOUT)
