"""Finds the start position of a partition: after the committed position, or that of `start`."""

from __future__ import annotations

from typing import Final

from liftbridge_aio.errors import NoCommittedPosition, StreamReset
from liftbridge_aio.model import StartAt, StartPosition, StreamPartition
from liftbridge_aio.net.network import Network

from .fenced_cursors import FencedCursors, group_cursor

_EARLIEST: Final = StartAt.earliest()
_MOVING: Final = frozenset({StartPosition.NEW_ONLY, StartPosition.LATEST})


class StartPositions:
    """A lookup of start positions.

    Args:
        group: the id of the group.
        start: the start for partitions without a committed position; None to raise an error.
        cursors: the cursors of the group.
        network: looks up the end of a partition.
        timeout: seconds for each call.
    """

    def __init__(
        self,
        group: str,
        start: StartAt | None,
        cursors: FencedCursors,
        network: Network,
        timeout: float,
    ) -> None:
        self._group = group
        self._start = start
        self._cursors = cursors
        self._metadata = network.metadata
        self._timeout = timeout
        self.turns = network.lookups

    async def find(self, place: StreamPartition) -> tuple[StartAt, int | None]:
        """Find the start position of a partition. Cancelling abandons the calls.

        "New" and "latest" depend on the time, so a position is stored immediately: the next owner
        then starts at the same offset and not at a later end.

        Returns:
            The start, and the stored position.

        Raises:
            NoCommittedPosition: no position is committed, and `start` is None.
            StreamReset: the position is beyond the end of the log, so the log was replaced.
            LiftbridgeError: a call failed.
        """
        stream, partition = place
        stored = await self._cursors.fetch(
            group_cursor(self._group), stream, partition, self._timeout
        )
        if stored is not None:
            await self._check_end(place, stored)
            return StartAt.offset(stored + 1), stored
        start = self._start
        if start == _EARLIEST:
            return start, None
        begun = await self._cursors.begin_at(self._group, stream, partition, self._timeout)
        if begun is not None:
            return StartAt.offset(begun), None
        if start is None:
            text = f"the group {self._group!r} has committed no position"
            raise NoCommittedPosition(text, stream=stream, partition=partition)
        if start.position not in _MOVING:
            return start, None
        state = await self._metadata.partition(stream, partition, self._timeout)
        is_latest = start.position is StartPosition.LATEST
        offset = max(state.newest_offset, 0) if is_latest else state.newest_offset + 1
        begin_at = await self._cursors.note_beginning(
            self._group, stream, partition, offset, self._timeout
        )
        return StartAt.offset(begin_at), begin_at - 1 if begin_at > 0 else None

    async def _check_end(self, place: StreamPartition, stored: int) -> None:
        state = await self._metadata.partition(*place, self._timeout)
        if stored > state.newest_offset:
            text = (
                f"the group {self._group!r} has committed offset {stored}, but the log ends at"
                f" {state.newest_offset}: it was truncated, or created anew"
            )
            raise StreamReset(text, stream=place.stream, partition=place.partition, offset=stored)
