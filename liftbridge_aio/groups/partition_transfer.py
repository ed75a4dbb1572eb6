"""Passes a partition from one member to another with few messages read twice.

The server ends the former reader's subscription at once when another member subscribes, long before
the former member's group reports the new assignment. So the new member subscribes first, gives the
former one a moment to store its position, and only then fetches where to begin. Positions do not
step back because the former member writes only in that moment, and the new one only when it is long
over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from liftbridge_aio._subscribe.cursor_committer import CursorCommitter
from liftbridge_aio._subscribe.partition_reader import PartitionReader
from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.model import StreamPartition
from liftbridge_aio.telemetry import CommitFailed

from .fenced_cursors import FencedCursors
from .group_readers import GroupReaders

logger = logging.getLogger("liftbridge_aio.groups")

LAST_WRITE: Final = 0.15
"""Seconds in which a former reader begins to store its last position."""
SETTLING: Final = 0.25
"""Seconds after which a new reader looks up where to begin."""
FIRST_WRITE: Final = 1.0
"""Seconds before which a new reader stores nothing."""


class PartitionTransfer:
    """Both sides of passing a partition on, for one member.

    Args:
        readers: what the member reads.
        committer: stores how far.
        cursors: the group's.
        spawn: runs something in the background; it has a name.
        failed: called with a position that could not be stored.
        timeout: seconds for each call.
    """

    def __init__(
        self,
        readers: GroupReaders,
        committer: CursorCommitter,
        cursors: FencedCursors,
        spawn: Callable[[Callable[[], Awaitable[None]], str], object],
        failed: Callable[[CommitFailed], None],
        timeout: float,
    ) -> None:
        self._readers = readers
        self._committer = committer
        self._cursors = cursors
        self._spawn = spawn
        self._failed = failed
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._fresh: set[StreamPartition] = set()
        self._free_from: dict[StreamPartition, float] = {}

    def free_from(self, place: StreamPartition) -> float:
        """From when on this member may store the position of a partition."""
        return self._free_from.get(place, 0.0)

    # Who takes

    def adopt(self, place: StreamPartition) -> None:
        """Take note of a partition that another member may be reading still."""
        self._fresh.add(place)

    def is_fresh(self, place: StreamPartition) -> bool:
        """Return True if a partition has to be opened unsettled, then given to `settle`."""
        return place in self._fresh

    def settle(self, place: StreamPartition, reader: PartitionReader) -> None:
        """Have a partition handed out once its former reader has stored how far it was."""
        self._spawn(lambda: self._settle(place, reader), f"settle:{place.stream}:{place.partition}")

    async def _settle(self, place: StreamPartition, reader: PartitionReader) -> None:
        await asyncio.shield(reader.started)
        self._free_from[place] = self._loop.time() + FIRST_WRITE
        await asyncio.sleep(SETTLING)
        stored: int | None = None
        try:
            stored = await self._committer.fetch(*place)
        except LiftbridgeError as error:
            logger.debug("%s/%d: begins where it was found first: %s", *place, error)
        settled = self._readers.settle(place, reader, None if stored is None else stored + 1)
        if settled and reader.accepted:  # else the former reader has not been notified
            self._fresh.discard(place)

    def start_chosen(self, place: StreamPartition) -> None:
        """Take note that the user has said where to begin."""
        self._fresh.discard(place)

    def forget(self, place: StreamPartition) -> None:
        """Take note that a partition was given up."""
        self._fresh.discard(place)
        self._free_from.pop(place, None)

    # Who gives

    def give(self, place: StreamPartition, offset: int) -> None:
        """Store a last position of a partition that was just taken."""
        deadline = self._loop.time() + LAST_WRITE
        name = f"give:{place.stream}:{place.partition}"
        self._spawn(lambda: self._give(place, offset, deadline), name)

    async def _give(self, place: StreamPartition, offset: int, deadline: float) -> None:
        cursor_id = self._committer.cursor_id
        try:
            await self._cursors.hand_over(cursor_id, place, offset, deadline, self._timeout)
        except LiftbridgeError as error:
            self._failed(CommitFailed(cursor_id, *place, offset, error))
