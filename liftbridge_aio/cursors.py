"""Cursors: positions stored in the server, each kept by the leader of its partition of __cursors.

A server writes one cursor at a time, with an ack from every replica, so a position that is
overtaken by a newer one before its turn comes is not written at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from .cursor_key import cursors_partition
from .errors import CursorsUnavailable, LiftbridgeError, RequestTimeout, StreamNotFound
from .model import CURSORS_STREAM
from .net.connection import Connection
from .wire import proto
from .wire.rpc import FETCH_CURSOR, SET_CURSOR

_LAST_WORDS: Final = 0.1
"""Seconds in which a call whose time is up tells why."""

_Key = tuple[str, str, int]


@dataclass(slots=True)
class _Writer:
    """The writing of one cursor: its turn, and the newest position that waits for it."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    wanted: int = 0
    version: int = 0
    written: int = 0
    users: int = 0


class Cursors:
    """Stores and reads cursors."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._writers: dict[_Key, _Writer] = {}

    async def set(
        self, cursor_id: str, stream: str, partition: int, offset: int, timeout: float
    ) -> None:
        """Store a position.

        Returns when this position, or one set after it, is stored. Cancelling abandons the wait;
        the position may be stored or not.

        Raises:
            CursorsUnavailable: the server keeps no cursors, or failed to store this one.
            LiftbridgeError: no server answered in time.
        """
        key = (cursor_id, stream, partition)
        writer = self._writers.setdefault(key, _Writer())
        writer.version += 1
        mine = writer.version
        writer.wanted = offset
        writer.users += 1
        try:
            async with _bounded(timeout, stream, partition) as left, writer.turn:
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
        connection = self._connection
        home = await self._home(cursor_id, stream, partition)
        await connection.router.call_leader(
            SET_CURSOR,
            proto.SetCursorRequest(
                stream=stream, partition=partition, cursor_id=cursor_id, offset=offset
            ),
            left(),
            led=(CURSORS_STREAM, home),
            refresh=connection.metadata.refresh,
            stream=stream,
            partition=partition,
        )

    async def fetch(
        self, cursor_id: str, stream: str, partition: int, timeout: float
    ) -> int | None:
        """Read a position back; None where none was stored. Cancelling abandons the call.

        Raises:
            CursorsUnavailable: the server keeps no cursors, or failed to read this one.
            LiftbridgeError: no server answered in time.
        """
        connection = self._connection
        async with _bounded(timeout, stream, partition) as left:
            home = await self._home(cursor_id, stream, partition)
            reply = await connection.router.call_leader(
                FETCH_CURSOR,
                proto.FetchCursorRequest(stream=stream, partition=partition, cursor_id=cursor_id),
                left(),
                led=(CURSORS_STREAM, home),
                refresh=connection.metadata.refresh,
                stream=stream,
                partition=partition,
            )
        return reply.offset if reply.offset >= 0 else None

    async def _home(self, cursor_id: str, stream: str, partition: int) -> int:
        try:
            info = await self._connection.metadata.stream(CURSORS_STREAM)
        except StreamNotFound as error:
            text = "the server has no __cursors stream"
            raise CursorsUnavailable(text, stream=stream, partition=partition) from error
        return cursors_partition(cursor_id, stream, partition, len(info.partitions))


@asynccontextmanager
async def _bounded(
    timeout: float, stream: str, partition: int
) -> AsyncIterator[Callable[[], float]]:
    """Bound the whole of a call, the wait for its turn included; tells how many seconds are left.

    A call that is given these says itself why it did not succeed.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout

    def left() -> float:
        seconds = deadline - loop.time()
        if seconds <= 0:
            raise TimeoutError
        return seconds

    try:
        async with asyncio.timeout_at(deadline + _LAST_WORDS):
            yield left
    except TimeoutError as error:
        if isinstance(error, LiftbridgeError):
            raise
        text = f"the cursor was not reached within {timeout:g} s"
        raise RequestTimeout(text, stream=stream, partition=partition) from None
