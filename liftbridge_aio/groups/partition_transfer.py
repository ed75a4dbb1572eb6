"""Transfers a partition from one member to another with few repeated messages.

The server ends the former owner's subscription as soon as another member subscribes, long before
the former owner fetches the new assignment. The new owner therefore subscribes first, gives the
former one time to store its position, and only then fetches its start position. Positions do not go
backwards, because the former owner writes only within that time, and the new one only long after
it.
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
"""Seconds within which the former owner starts to store its last position."""
_STORING: Final = 0.05
"""Seconds of these that are kept for the request."""
SETTLING: Final = 0.25
"""Seconds after which the new owner fetches its start position."""
FIRST_WRITE: Final = 1.0
"""Seconds during which the new owner stores nothing."""


class PartitionTransfer:
    """Both sides of the transfer of partitions, for one member.

    Args:
        readers: the readers of the member.
        committer: stores the positions.
        cursors: the cursors of the group.
        spawn: runs a named task in the background.
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

    def free_from(self, partition: StreamPartition) -> float:
        """Return the time from which this member may store the position of a partition."""
        return self._free_from.get(partition, 0.0)

    # The new owner

    def adopt(self, partition: StreamPartition) -> None:
        """Record a partition that another member may still be reading."""
        self._fresh.add(partition)

    def is_fresh(self, partition: StreamPartition) -> bool:
        """Return True if a partition must be opened unsettled and then passed to `settle`."""
        return partition in self._fresh

    def settle(self, partition: StreamPartition, reader: PartitionReader) -> None:
        """Start delivery once the former owner has had time to store its position."""
        self._spawn(
            lambda: self._settle(partition, reader),
            f"settle:{partition.stream}:{partition.partition}",
        )

    async def _settle(self, partition: StreamPartition, reader: PartitionReader) -> None:
        await asyncio.shield(reader.started)
        self._free_from[partition] = self._loop.time() + FIRST_WRITE
        await asyncio.sleep(SETTLING)
        stored: int | None = None
        try:
            stored = await self._committer.fetch(*partition)
        except LiftbridgeError as error:
            logger.debug("%s/%d: starts at the position found first: %s", *partition, error)
        settled = self._readers.settle(partition, reader, None if stored is None else stored + 1)
        if settled and reader.accepted:  # else the former owner has not been notified
            self._fresh.discard(partition)

    def start_chosen(self, partition: StreamPartition) -> None:
        """Record that the user has chosen the start position."""
        self._fresh.discard(partition)

    def forget(self, partition: StreamPartition) -> None:
        """Record that a partition was released."""
        self._fresh.discard(partition)
        self._free_from.pop(partition, None)

    # The former owner

    def give(self, partition: StreamPartition, stored: int, cursor_id: str) -> None:
        """Store a last position of a partition that another member has just taken.

        It waits for the handler of a message as long as there is time to store its position.

        Args:
            partition: the partition.
            stored: the position that is stored; -1 for none.
            cursor_id: the cursor that has it.
        """
        deadline = self._loop.time() + LAST_WRITE
        name = f"give:{partition.stream}:{partition.partition}"
        self._spawn(lambda: self._give(partition, stored, cursor_id, deadline), name)

    async def _give(
        self, partition: StreamPartition, stored: int, cursor_id: str, deadline: float
    ) -> None:
        offset = await self._readers.finished_within(partition, LAST_WRITE - _STORING)
        if offset is None or offset <= stored:
            return
        try:
            await self._cursors.hand_over(cursor_id, partition, offset, deadline, self._timeout)
        except LiftbridgeError as error:
            self._failed(CommitFailed(cursor_id, *partition, offset, error))
