"""Stores and fetches cursors, at the leader of the partition of `__cursors` that has each of them.

A server writes one cursor at a time, with an ack from every replica. So of several positions of one
cursor that wait to be written, only the newest is.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from liftbridge_aio._core.absence import Incarnation
from liftbridge_aio._core.log_position import LogPosition, judge_note, note_cursor
from liftbridge_aio.errors import (
    CursorsUnavailable,
    LiftbridgeError,
    PermissionDenied,
    StreamNotFound,
)
from liftbridge_aio.model import CURSORS_STREAM
from liftbridge_aio.net.leader_call import call_leader
from liftbridge_aio.net.network import Network
from liftbridge_aio.wire import proto
from liftbridge_aio.wire.rpc import FETCH_CURSOR, SET_CURSOR

logger = logging.getLogger("liftbridge_aio.cursors")

VISIBILITY_CURSOR: Final = "__visible"
"""The id of cursors that hold no position: writing one makes others visible again."""
_WAITS: Final = 2
"""Waits for replicas to commit what is stored, before each write of a cursor."""

_Key = tuple[str, str, int]


def cursor_key(cursor_id: str, stream: str, partition: int) -> bytes:
    """Return the key under which servers store a cursor: id, stream and partition, with commas."""
    return f"{cursor_id},{stream},{partition}".encode()


def cursors_partition(cursor_id: str, stream: str, partition: int, partition_count: int) -> int:
    """Return the partition of `__cursors` whose leader stores this cursor.

    Args:
        cursor_id: the cursor's id.
        stream: the stream that is read with it.
        partition: the partition that is read with it.
        partition_count: how many partitions `__cursors` has.
    """
    return zlib.crc32(cursor_key(cursor_id, stream, partition)) % partition_count


@dataclass(slots=True)
class _Writer:
    """The writes of one cursor: a lock, and the newest position that waits for it."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    wanted: int = 0
    version: int = 0
    written: int = 0
    users: int = 0


class Cursors:
    """Stores and reads cursors."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._writers: dict[_Key, _Writer] = {}
        self._visible: dict[int, Incarnation] = {}
        """By partition of `__cursors`: the leader that is known to have committed all of it."""

    async def set(
        self, cursor_id: str, stream: str, partition: int, offset: int, timeout: float
    ) -> None:
        """Store a position.

        Returns when this position, or one set after it, is stored. Cancelling abandons the wait;
        the position may be stored or not.

        Raises:
            CursorsUnavailable: the server stores no cursors, or failed to store this one.
            LiftbridgeError: no server answered in time.
        """
        key = (cursor_id, stream, partition)
        writer = self._writers.setdefault(key, _Writer())
        writer.version += 1
        mine = writer.version
        writer.wanted = offset
        writer.users += 1
        try:
            async with (
                self._bounded(SET_CURSOR.name, timeout, stream, partition) as left,
                writer.turn,
            ):
                if writer.written >= mine:
                    return
                writing, position = writer.version, writer.wanted
                await self._store(cursor_id, stream, partition, position, left)
                writer.written = writing
        finally:
            writer.users -= 1
            if writer.users == 0:
                del self._writers[key]

    async def _store(
        self,
        cursor_id: str,
        stream: str,
        partition: int,
        offset: int,
        left: Callable[[], float],
    ) -> None:
        network = self._network
        home = await self._home(cursor_id, stream, partition, left())
        await call_leader(
            network.router,
            SET_CURSOR,
            proto.SetCursorRequest(
                stream=stream, partition=partition, cursor_id=cursor_id, offset=offset
            ),
            left(),
            led=(CURSORS_STREAM, home),
            refresh=network.metadata.refresh,
            stream=stream,
            partition=partition,
        )

    async def fetch(
        self, cursor_id: str, stream: str, partition: int, timeout: float
    ) -> int | None:
        """Return a stored position; None if there is none. Cancelling abandons the call.

        Raises:
            CursorsUnavailable: the server stores no cursors, or failed to read this one.
            LiftbridgeError: no server answered in time.
        """
        network = self._network
        async with self._bounded(FETCH_CURSOR.name, timeout, stream, partition) as left:
            home = await self._home(cursor_id, stream, partition, left())
            if not await self._make_visible(home, left):
                raise CursorsUnavailable(
                    f"{CURSORS_STREAM}/{home} has uncommitted positions, and the newest of this"
                    " cursor may be one of them",
                    stream=stream,
                    partition=partition,
                )
            reply = await call_leader(
                network.router,
                FETCH_CURSOR,
                proto.FetchCursorRequest(stream=stream, partition=partition, cursor_id=cursor_id),
                left(),
                led=(CURSORS_STREAM, home),
                refresh=network.metadata.refresh,
                stream=stream,
                partition=partition,
            )
        return reply.offset if reply.offset >= 0 else None

    async def locate(
        self, cursor_id: str, stream: str, partition: int, timeout: float
    ) -> LogPosition:
        """Return the position in the log that a stream has, by the metadata that is known.

        Renew the metadata before: once for a stream, not for each of its partitions. Cancelling
        abandons the calls.

        Raises:
            StreamNotFound: there is no such stream.
            CursorsUnavailable: the server stores no cursors, or failed to read one.
            LiftbridgeError: no server answered in time.
        """
        place = stream, partition
        info = await self._network.metadata.stream(stream, timeout)
        # In this order: a position is stored after its note.
        stored = await self.fetch(cursor_id, *place, timeout)
        noted = await self.fetch(note_cursor(cursor_id), *place, timeout)
        found = judge_note(cursor_id, stored, noted, info.creation_timestamp)
        if found.former is None:
            return found
        position = await self.fetch(found.cursor, *place, timeout)
        return found if position is None else found._replace(position=position, former=None)

    async def _make_visible(self, home: int, left: Callable[[], float]) -> bool:
        """Wait until a partition of `__cursors` is committed; return True if it is.

        A server may lose its high watermark in a restart. It reads no cursor behind that, and
        caches the wrong answer, so it must not be asked before. Replicas restore the watermark;
        without replicas, the next write of any cursor does.
        """
        network = self._network
        leader = network.metadata.snapshot.leader(CURSORS_STREAM, home)
        if leader is not None:
            address = network.router.address_of(leader)
            if self._visible.get(home) == network.pool.incarnation(address):
                return True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + left() / 2
        attempt = 0
        while True:
            try:
                info = await network.metadata.partition(CURSORS_STREAM, home, left())
            except PermissionDenied:
                return True  # it cannot be found out
            if info.newest_offset <= info.high_watermark:
                self._visible[home] = network.router.answered_by
                return True
            attempt += 1
            delay = network.router.delay(attempt)
            if loop.time() + delay > deadline:
                return False
            await asyncio.sleep(delay)
            # Not only once: a server that has just started refuses it, and a restart undoes it.
            if attempt % _WAITS == 0:
                await self._write_into(home, deadline - loop.time())

    async def _write_into(self, home: int, timeout: float) -> None:
        """Write a cursor into a partition of `__cursors`; a failure is logged."""
        count = len(self._network.metadata.snapshot.streams[CURSORS_STREAM].partitions)
        number = next(
            number
            for number in itertools.count()
            if cursors_partition(VISIBILITY_CURSOR, CURSORS_STREAM, number, count) == home
        )
        try:
            await self.set(VISIBILITY_CURSOR, CURSORS_STREAM, number, 0, timeout)
        except LiftbridgeError as error:
            logger.debug("%s/%d could not be written to: %s", CURSORS_STREAM, home, error)

    @asynccontextmanager
    async def _bounded(
        self, call: str, timeout: float, stream: str, partition: int
    ) -> AsyncIterator[Callable[[], float]]:
        """Bound a whole call, the wait for its turn included; see `Network.bounded`."""
        text = "the cursor was not reached"
        try:
            async with self._network.bounded(
                timeout, text, call=call, stream=stream, partition=partition
            ) as left:
                yield left
        except StreamNotFound as error:
            raise CursorsUnavailable(
                "the server has no __cursors stream", stream=stream, partition=partition
            ) from error

    async def _home(self, cursor_id: str, stream: str, partition: int, timeout: float) -> int:
        info = await self._network.metadata.stream(CURSORS_STREAM, timeout)
        return cursors_partition(cursor_id, stream, partition, len(info.partitions))
