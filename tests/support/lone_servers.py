"""A server that is alone, embedded or real, and all that may happen to it."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any, Final

from liftbridge_aio.broker import EmbeddedBroker, Flaws
from support.faults import eventually
from support.servers.node import LiftbridgeNode
from support.servers.ports import free_ports
from support.servers.stored_log import gives_offsets_anew

EMBEDDED: Final = "embedded"
HIDING: Final = "hiding"
FORGETFUL: Final = "forgetful"
FLAWS: Final = {
    EMBEDDED: Flaws(),
    HIDING: Flaws(hides_committed=True),
    FORGETFUL: Flaws(forgets_streams=True),
}
"""The kinds of embedded brokers: as they are, or with a flaw of real ones."""
WATERMARK: Final = "replication-offset-checkpoint"
"""The file in which a real server notes how far a partition is committed."""


class LoneBroker:
    """An embedded broker.

    Args:
        kind: without flaws or with one.
        settings: of the broker.
    """

    nats_url: str | None = None
    """The embedded broker has no NATS."""

    def __init__(self, kind: str = EMBEDDED, **settings: Any) -> None:
        self.kind = kind
        port = free_ports(1)[0]
        self._new = partial(EmbeddedBroker, port=port, flaws=FLAWS[kind], **settings)
        self._broker = self._new()

    @property
    def address(self) -> str:
        """Where it is, running or not."""
        return self._broker.address

    async def crash(self) -> None:
        """End it as a power cut does."""
        await self._broker.stop()

    stop = crash
    """End it in order."""

    async def launch(self) -> None:
        """Start it, ready or not."""
        await self._broker.start()

    async def start(self) -> None:
        """Start it, and wait until it is ready."""
        await self._broker.start()
        await self._known()

    async def open(self) -> None:
        """Start it, and return as soon as its port is open: it knows no streams yet."""
        if self.kind != FORGETFUL:
            self._broker.faults.forget_streams()
        await self._broker.start()

    async def ready(self) -> None:
        """Wait until it knows its streams, after `open`."""
        self._broker.faults.remember_streams()
        await self._known()

    async def _known(self) -> None:
        await eventually(lambda: self._broker.statistics().streams)  # it has one of its own

    async def checkpoint(self) -> None:
        """Wait until it has noted what is committed, which this one does at once."""

    async def lose_watermarks(self) -> None:
        """Remove what it has noted as committed; this one needs no such note."""

    async def lose_disk(self) -> None:
        """Remove everything that the stopped server has stored."""
        self._broker = self._new()

    def gives_offsets_anew(self, stream: str) -> bool:
        """Return True if the log on its disk has an offset after a higher one."""
        del stream
        return False


class LoneNode:
    """A process of a real server; see `LoneBroker`."""

    def __init__(self, node: LiftbridgeNode, kind: str) -> None:
        self.kind = kind
        self.node = node

    @property
    def address(self) -> str:
        return self.node.address

    @property
    def nats_url(self) -> str | None:
        return self.node.nats_url

    async def crash(self) -> None:
        await asyncio.to_thread(self.node.kill)

    async def stop(self) -> None:
        await asyncio.to_thread(self.node.stop)

    async def launch(self) -> None:
        await asyncio.to_thread(self.node.launch)

    async def start(self) -> None:
        await asyncio.to_thread(self.node.start)

    async def open(self) -> None:
        await self.launch()
        await asyncio.to_thread(self.node.wait_open)

    async def ready(self) -> None:
        await asyncio.to_thread(self.node.wait_ready)

    async def checkpoint(self) -> None:
        """Wait for its note, which it makes each 5 seconds.

        What it has not noted nobody can read after its next start until more is published.
        """
        began = time.time()
        logs = {file.parent for file in (self.node.folder / "data").rglob("*.log")}
        files = [log / WATERMARK for log in logs]
        await eventually(
            lambda: all(file.exists() and file.stat().st_mtime > began for file in files)
        )

    async def lose_watermarks(self) -> None:
        for file in (self.node.folder / "data").rglob(WATERMARK):
            file.unlink()

    async def lose_disk(self) -> None:
        await asyncio.to_thread(self.node.lose_disk)

    def gives_offsets_anew(self, stream: str) -> bool:
        return gives_offsets_anew(self.node.folder / "data" / "streams" / stream / "0")


LoneServer = LoneBroker | LoneNode
