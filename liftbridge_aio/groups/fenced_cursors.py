"""The cursors of a group, guarded against late writes as far as cursors allow.

The server does not fence cursors: whoever writes last wins, whichever epoch he belongs to. So a
position is written only by a member that cannot have been expelled unheard and from which nobody
has taken the partition, and never below what stands there. What remains: between the look and the
write another member may write a higher one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final
from weakref import WeakValueDictionary

from liftbridge_aio._subscribe.cursor_committer import CursorStore
from liftbridge_aio.errors import NotGroupMember
from liftbridge_aio.model import StreamPartition

_BEGAN_AT_0: Final = 0


def group_cursor(group: str) -> str:
    """The id of a group's cursors, which Go members use too."""
    return f"__group:{group}"


def beginning_cursor(group: str) -> str:
    """The id of the cursors that say a group began at the first offset of an empty log.

    A position is the last offset that was processed, and before the first there is none to store.
    """
    return f"__group-began-at-0:{group}"


class FencedCursors:
    """A `CursorStore` for one member of a group.

    Args:
        store: where cursors are kept.
        may_write: returns True if this member may write the position of a partition now.
        free_from: from when on it may, by the event loop's clock: before that a last write of the
            partition's former reader may still be under way.
    """

    def __init__(
        self,
        store: CursorStore,
        may_write: Callable[[StreamPartition], bool],
        free_from: Callable[[StreamPartition], float] = lambda _: 0.0,
    ) -> None:
        self._store = store
        self._may_write = may_write
        self._free_from = free_from
        self._turns: WeakValueDictionary[StreamPartition, asyncio.Lock] = WeakValueDictionary()
        self._of_another_log: dict[StreamPartition, int] = {}

    def may_replace(self, place: StreamPartition, stored: int | None) -> None:
        """Have a lower position take the place of just this one, which is of another log."""
        if stored is not None:
            self._of_another_log[place] = stored

    async def fetch(
        self, cursor_id: str, stream: str, partition: int, timeout: float
    ) -> int | None:
        """Read a position; None where none was stored. Cancelling abandons the call.

        Raises:
            LiftbridgeError: it could not be read.
        """
        return await self._store.fetch(cursor_id, stream, partition, timeout)

    async def set(
        self, cursor_id: str, stream: str, partition: int, offset: int, timeout: float
    ) -> None:
        """Store a position, unless it or a higher one of the same log is stored.

        Cancelling abandons the wait; the position may be stored or not.

        Raises:
            NotGroupMember: this member may have been expelled, or somebody else has taken the
                partition.
            LiftbridgeError: it could not be stored.
        """
        place = StreamPartition(stream, partition)
        # One that was given up and is back may still be being written: that is for the past.
        async with self._turns.setdefault(place, asyncio.Lock()):
            await _sleep_until(self._free_from(place))
            stored = await self._store.fetch(cursor_id, stream, partition, timeout)
            if not self._may_write(place):
                text = "the group has not confirmed in time that this partition is still ours"
                raise NotGroupMember(text, stream=stream, partition=partition, offset=offset)
            if stored is None or stored < offset or stored == self._of_another_log.get(place):
                await self._store.set(cursor_id, stream, partition, offset, timeout)
                self._of_another_log.pop(place, None)

    async def hand_over(
        self, cursor_id: str, place: StreamPartition, offset: int, deadline: float, timeout: float
    ) -> None:
        """Store a last position for whoever has just taken a partition, if that can be done soon.

        Cancelling abandons it; the position may be stored or not.

        Args:
            cursor_id: the group's.
            place: the partition.
            offset: the position.
            deadline: by the event loop's clock; after that nothing is written.
            timeout: seconds for each call.

        Raises:
            LiftbridgeError: it could not be stored.
        """
        async with self._turns.setdefault(place, asyncio.Lock()):
            stored = await self._store.fetch(cursor_id, *place, timeout)
            in_time = asyncio.get_running_loop().time() < deadline
            if in_time and (stored is None or stored < offset):
                await self._store.set(cursor_id, *place, offset, timeout)

    async def begin_at(self, group: str, stream: str, partition: int, timeout: float) -> int | None:
        """Return 0 where the group was noted to begin at the first offset; else None."""
        noted = await self._store.fetch(beginning_cursor(group), stream, partition, timeout)
        return None if noted is None else _BEGAN_AT_0

    async def note_beginning(
        self, group: str, stream: str, partition: int, offset: int, timeout: float
    ) -> int:
        """Note where a group begins that has stored no position yet, for the next member.

        Returns:
            Where to begin: `offset`, or behind what somebody else has stored meanwhile.
        """
        cursor = group_cursor(group)
        stored = await self._store.fetch(cursor, stream, partition, timeout)
        if stored is not None:
            return stored + 1
        if offset > 0:
            await self._store.set(cursor, stream, partition, offset - 1, timeout)
        else:
            note = beginning_cursor(group)
            await self._store.set(note, stream, partition, _BEGAN_AT_0, timeout)
        return offset


async def _sleep_until(when: float) -> None:
    wait = when - asyncio.get_running_loop().time()
    if wait > 0:
        await asyncio.sleep(wait)
