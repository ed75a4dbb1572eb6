"""The writers of cursors during a run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from chaos.cursor_log import CURSORS_STREAM
from chaos.journal import Place
from chaos.load import CALL_TIMEOUT, Load
from liftbridge_aio import Client
from liftbridge_aio._admin.cursors import cursors_partition
from support.servers.node import CURSOR_PARTITIONS

CURSOR_PAUSE: Final = 0.25


@dataclass(slots=True)
class CursorWriter:
    """The only writer of one cursor: sets it, reads it, sets it further.

    Attributes:
        raw_position: Asks the nodes for it past the client; None where nobody tells.
        stale: Positions that the nodes themselves told wrong: what was stored, what was told.
    """

    load: Load
    client: Client
    place: Place
    cursor: str
    raw_position: Callable[[str, Place], Awaitable[int | None]]
    stored: int = -1
    tried: int = -1
    stale: list[tuple[int, int]] = field(default_factory=list)
    began: dict[int, float] = field(default_factory=dict)
    """When the call began that set a position."""

    @property
    def key(self) -> str:
        """Key under which the servers keep it."""
        return f"{self.cursor},{self.place.stream},{self.place.partition}"

    async def run(self) -> None:
        """Go on until the load ends."""
        number = cursors_partition(
            self.cursor, self.place.stream, self.place.partition, CURSOR_PARTITIONS
        )
        lane = self.load.lane(f"cursor {self.cursor}", (CURSORS_STREAM, number))
        while self.load.running:
            began = time.monotonic()
            if await self._store(began):
                position = await self._fetch()
                if position is not None:
                    await self.judge(position)
                    lane.succeeded(began, time.monotonic())
            await asyncio.sleep(CURSOR_PAUSE)

    async def _store(self, began: float) -> bool:
        self.tried += 1
        position = self.tried
        self.began[position] = began

        async def store() -> bool:
            await self.client.set_cursor(
                self.cursor, self.place.stream, self.place.partition, position, timeout=CALL_TIMEOUT
            )
            return True

        ok = bool(await self.load.timed("set_cursor", CALL_TIMEOUT, store()))
        if ok:
            self.stored = position
        return ok

    async def _fetch(self) -> int | None:
        found: int | None = None

        async def fetch() -> bool:
            nonlocal found
            found = await self.client.fetch_cursor(
                self.cursor, self.place.stream, self.place.partition, timeout=CALL_TIMEOUT
            )
            return True

        if not await self.load.timed("fetch_cursor", CALL_TIMEOUT, fetch()):
            return None
        return -1 if found is None else found

    async def judge(self, position: int) -> None:
        """Judge a position that was read when `stored` is what was stored last."""
        if self.stored <= position <= self.tried:
            return
        raw = await self.raw_position(self.cursor, self.place)
        # What a node tells is the servers' only as far as they tell it themselves.
        if raw is not None and raw <= position < self.stored:
            self.stale.append((self.stored, raw))
            return
        self.load.find(
            f"cursor {self.cursor} was stored as {self.stored} and read as {position}; "
            f"the nodes say {raw}"
        )
