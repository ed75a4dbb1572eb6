"""Finds the start position of a partition: after the committed position, or that of `start`."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

from liftbridge_aio._core.log_position import LogPosition, log_cursor
from liftbridge_aio._subscribe.cursor_committer import LocatingStore
from liftbridge_aio.errors import NoCommittedPosition, StreamReset
from liftbridge_aio.model import StartAt, StartPosition, StreamPartition
from liftbridge_aio.net.network import Network

from .core.group_plan import OnReset
from .fenced_cursors import FencedCursors, beginning_cursor, group_cursor

logger = logging.getLogger("liftbridge_aio.groups")

_EARLIEST: Final = StartAt.earliest()
_MOVING: Final = frozenset({StartPosition.NEW_ONLY, StartPosition.LATEST})


class Found(NamedTuple):
    """Where a member begins to read a partition."""

    start: StartAt
    stored: int | None
    """The stored position; None if there is none in this log."""
    log: LogPosition
    """Where the positions of this log are stored."""


class StartPositions:
    """A lookup of start positions.

    Args:
        group: the id of the group.
        start: the start for partitions without a committed position; None to raise an error.
        on_reset: what to do with a position in a former log of a stream.
        cursors: the cursors of the group.
        store: what they are stored in, which knows to which log a position belongs.
        network: looks up the end of a partition.
        timeout: seconds for each call.
    """

    def __init__(
        self,
        group: str,
        start: StartAt | None,
        on_reset: OnReset,
        cursors: FencedCursors,
        store: LocatingStore,
        network: Network,
        timeout: float,
    ) -> None:
        self._group = group
        self._start = start
        self._on_reset = on_reset
        self._cursors = cursors
        self._store = store
        self._metadata = network.metadata
        self._timeout = timeout
        self.turns = network.lookups

    async def renew(self, streams: Iterable[str]) -> None:
        """Renew the metadata of streams, by which positions are located. Cancelling abandons it.

        Raises:
            LiftbridgeError: the call failed.
        """
        await self._metadata.refresh(sorted(streams))

    async def locate(self, place: StreamPartition) -> LogPosition:
        """Return the position in the log that a stream has, after `renew`.

        Cancelling abandons the calls.

        Raises:
            LiftbridgeError: a call failed.
        """
        return await self._store.locate(group_cursor(self._group), *place, self._timeout)

    async def find(self, place: StreamPartition) -> Found:
        """Find the start position of a partition, after `renew`. Cancelling abandons the calls.

        "New" and "latest" depend on the time, so a position is stored immediately: the next owner
        then starts at the same offset and not at a later end.

        Raises:
            NoCommittedPosition: no position is committed, and `start` is None.
            StreamReset: the position belongs to another log, or is beyond the end of the log.
            LiftbridgeError: a call failed.
        """
        stream, partition = place
        log = await self.locate(place)
        if log.former is not None:
            if await self._is_reset_to_0(place, log):
                return Found(StartAt.offset(0), None, log)
            text = (
                f"the group {self._group!r} has committed offset {log.former}, but the stream was"
                " deleted and created anew since"
            )
            if self._on_reset == "error":
                raise StreamReset(text, stream=stream, partition=partition, offset=log.former)
            logger.warning("%s/%d is read from the start: %s", stream, partition, text)
        stored = log.position
        if stored is not None:
            await self._check_end(place, stored)
            return Found(StartAt.offset(stored + 1), stored, log)
        start = self._start
        if start == _EARLIEST:
            return Found(start, None, log)
        begun = await self._cursors.begin_at(self._group, stream, partition, self._timeout)
        if begun is not None:
            return Found(StartAt.offset(begun), None, log)
        if start is None:
            raise NoCommittedPosition(
                f"the group {self._group!r} has committed no position",
                stream=stream,
                partition=partition,
            )
        if start.position not in _MOVING:
            return Found(start, None, log)
        state = await self._metadata.partition(stream, partition, self._timeout)
        is_latest = start.position is StartPosition.LATEST
        offset = max(state.newest_offset, 0) if is_latest else state.newest_offset + 1
        begin_at = await self._cursors.note_beginning(
            self._group, stream, partition, offset, self._timeout, log
        )
        return Found(StartAt.offset(begin_at), begin_at - 1 if begin_at > 0 else None, log)

    async def _is_reset_to_0(self, place: StreamPartition, log: LogPosition) -> bool:
        """Return True if the group was moved to the beginning of this log; acks are not moved."""
        if log.cursor == group_cursor(self._group):
            return False
        note = log_cursor(beginning_cursor(self._group), log.created)
        return await self._cursors.fetch(note, *place, self._timeout) is not None

    async def _check_end(self, place: StreamPartition, stored: int) -> None:
        state = await self._metadata.partition(*place, self._timeout)
        if stored > state.newest_offset:
            raise StreamReset(
                f"the group {self._group!r} has committed offset {stored}, but the log ends at"
                f" {state.newest_offset}: it was truncated, or created anew",
                stream=place.stream,
                partition=place.partition,
                offset=stored,
            )
