"""The cursors of a group, fenced against late writes as far as cursors allow.

The server does not fence cursors: the last write wins, whatever its epoch. A position is therefore
written only by a member that cannot have been expelled unnoticed and whose partition no other
member has taken, and never below the stored position. One race remains: between the check and the
write another member may store a higher position.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final
from weakref import WeakValueDictionary

from liftbridge_aio._core.log_position import LogPosition, note_cursor
from liftbridge_aio._subscribe.cursor_committer import CursorStore
from liftbridge_aio.errors import NotGroupMember
from liftbridge_aio.model import StreamPartition

_BEGAN_AT_0: Final = 0


def group_cursor(group: str) -> str:
    """Return the id of the cursors of a group, which Go members use too."""
    return f"__group:{group}"


def beginning_cursor(group: str) -> str:
    """Return the id of the cursors that mark a group as starting at offset 0.

    A position is the offset of the last processed message, so there is none before offset 0.
    """
    return f"__group-began-at-0:{group}"


class FencedCursors:
    """A `CursorStore` for one member of a group.

    Args:
        store: stores the cursors.
        may_write: returns True if this member may write the position of a partition now.
        free_from: returns the time of the event loop from which it may. Until then a last write of
            the partition's former reader may be in flight.
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
        """Allow a lower position to replace exactly this one, which belongs to another log."""
        if stored is not None:
            self._of_another_log[place] = stored

    async def fetch(
        self, cursor_id: str, stream: str, partition: int, timeout: float
    ) -> int | None:
        """Fetch a position; None if none is stored. Cancelling abandons the call.

        Raises:
            LiftbridgeError: it could not be fetched.
        """
        return await self._store.fetch(cursor_id, stream, partition, timeout)

    async def set(
        self, cursor_id: str, stream: str, partition: int, offset: int, timeout: float
    ) -> None:
        """Store a position, unless it or a higher one of the same log is stored.

        Cancelling abandons the wait; the position may be stored or not.

        Raises:
            NotGroupMember: this member may have been expelled, or another member has taken the
                partition.
            LiftbridgeError: it could not be stored.
        """
        place = StreamPartition(stream, partition)
        # A former commit of a partition that was released and came back may still be in flight.
        async with self._turns.setdefault(place, asyncio.Lock()):
            await _sleep_until(self._free_from(place))
            stored = await self._store.fetch(cursor_id, stream, partition, timeout)
            if not self._may_write(place):
                raise NotGroupMember(
                    "the group has not confirmed in time that this member owns the partition",
                    stream=stream,
                    partition=partition,
                    offset=offset,
                )
            if stored is None or stored < offset or stored == self._of_another_log.get(place):
                await self._store.set(cursor_id, stream, partition, offset, timeout)
                self._of_another_log.pop(place, None)

    async def hand_over(
        self, cursor_id: str, place: StreamPartition, offset: int, deadline: float, timeout: float
    ) -> None:
        """Store a last position for the member that has just taken a partition, if still in time.

        Cancelling abandons it; the position may be stored or not.

        Args:
            cursor_id: the id of the group's cursors.
            place: the partition.
            offset: the position.
            deadline: a time of the event loop; nothing is written after it.
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
        """Return 0 if the group is marked as starting at offset 0; else None."""
        noted = await self._store.fetch(beginning_cursor(group), stream, partition, timeout)
        return None if noted is None else _BEGAN_AT_0

    async def note_beginning(
        self,
        group: str,
        stream: str,
        partition: int,
        offset: int,
        timeout: float,
        log: LogPosition,
    ) -> int:
        """Store the start of a group without a position in this log, for the next member.

        Returns:
            The start: `offset`, or the offset after the position stored meanwhile by another
            member.
        """
        stored = await self._store.fetch(log.cursor, stream, partition, timeout)
        if stored is not None:
            return stored + 1
        if offset > 0:
            if log.note_due:
                note = note_cursor(log.cursor)
                await self._store.set(note, stream, partition, log.created, timeout)
            await self._store.set(log.cursor, stream, partition, offset - 1, timeout)
        else:
            note = beginning_cursor(group)
            await self._store.set(note, stream, partition, _BEGAN_AT_0, timeout)
        return offset


async def _sleep_until(when: float) -> None:
    wait = when - asyncio.get_running_loop().time()
    if wait > 0:
        await asyncio.sleep(wait)
