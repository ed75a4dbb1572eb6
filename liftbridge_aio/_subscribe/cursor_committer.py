"""Stores the positions of readers as cursors in the server.

Readers and storage are injected: a function that returns the finished offset of each partition, and
a `CursorStore`. The owner runs `run` as a task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from liftbridge_aio._core.log_position import LogPosition, note_cursor
from liftbridge_aio._runtime.bounded_gather import bounded_gather
from liftbridge_aio.errors import LiftbridgeError, PermissionDenied, TLSFailed
from liftbridge_aio.model import StreamPartition
from liftbridge_aio.telemetry import CommitFailed

from .core.resubscribe_deadline import UNTRUSTED_FOR

logger = logging.getLogger("liftbridge_aio.cursors")


class CursorStore(Protocol):
    """Stores and reads cursors; `_admin.cursors.Cursors` does."""

    async def set(
        self, cursor_id: str, stream: str, partition: int, offset: int, timeout: float, /
    ) -> None:
        """Store a position."""

    async def fetch(
        self, cursor_id: str, stream: str, partition: int, timeout: float, /
    ) -> int | None:
        """Read a position back; None where none was stored."""


class LocatingStore(CursorStore, Protocol):
    """A store that knows to which log of a stream a position belongs."""

    async def locate(
        self, cursor_id: str, stream: str, partition: int, timeout: float, /
    ) -> LogPosition:
        """Return the position in the log that a stream has, by the metadata that is known.

        Renew the metadata before: once for a stream, not for each of its partitions.
        """


@dataclass(slots=True, eq=False)
class _Kept:
    """One partition: its finished offset, and how much of it is stored."""

    place: StreamPartition
    cursor: str
    """The cursor of the log that is read."""
    note: int | None
    """The creation time of that log, until it is noted; None afterwards."""
    finished: Callable[[], int | None]
    stored: int | None
    rewinds: int = 0
    untrusted_since: float | None = None
    lasting: LiftbridgeError | None = None
    """The error, if no retry can help."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def due(self) -> int | None:
        """Return the position to store; None if it is stored already."""
        offset = self.finished()
        if offset is None or offset < 0 or (self.stored is not None and offset <= self.stored):
            return None
        return offset


class CursorCommitter:
    """Stores the last finished offset of each partition under one cursor id.

    The next reader starts one behind the stored offset, as with the Go client. A position is stored
    only if it has moved, and never steps back unless `rewound` was called. How to use it:

        committer = CursorCommitter("__group:billing", cursors, timeout=5, failed=on_failed)
        stored = await committer.fetch("orders", 0)           # begin at stored + 1
        committer.keep("orders", 0, lambda: merge.finished(reader), stored)
        child = supervisor.spawn(committer.run, 5.0, on_lasting, name="commits")
        await committer.commit()                              # now
        await committer.give_up("orders", 0)                  # a last time; nothing after that
        child.cancel()

    If a position could not be stored, the next commit stores the one that is current then.

    Args:
        cursor_id: names the cursors; one for each partition.
        store: stores them.
        timeout: seconds to store or to read one of them.
        failed: called for each position that could not be stored.
    """

    def __init__(
        self,
        cursor_id: str,
        store: CursorStore,
        *,
        timeout: float,
        failed: Callable[[CommitFailed], None],
    ) -> None:
        self.cursor_id = cursor_id
        self._store = store
        self._timeout = timeout
        self._failed = failed
        self._kept: dict[StreamPartition, _Kept] = {}
        self._warned = False

    @property
    def stored(self) -> dict[StreamPartition, int]:
        """The stored positions of the partitions, as far as they are known."""
        return {place: kept.stored for place, kept in self._kept.items() if kept.stored is not None}

    def stored_of(self, stream: str, partition: int) -> int | None:
        """Return the stored position of one partition, if it is known."""
        kept = self._kept.get(StreamPartition(stream, partition))
        return None if kept is None else kept.stored

    # Which partitions

    async def fetch(self, stream: str, partition: int) -> int | None:
        """Read a stored position; None if there is none. Cancelling abandons the call.

        Raises:
            CursorsUnavailable: the server keeps no cursors, or failed to read this one.
            LiftbridgeError: no server answered in time.
        """
        cursor_id = self.cursor_of(stream, partition)
        return await self._store.fetch(cursor_id, stream, partition, self._timeout)

    def cursor_of(self, stream: str, partition: int) -> str:
        """Return the id of the cursor of a partition: that of the log which is read."""
        kept = self._kept.get(StreamPartition(stream, partition))
        return self.cursor_id if kept is None else kept.cursor

    def keep(
        self,
        stream: str,
        partition: int,
        finished: Callable[[], int | None],
        stored: int | None,
        log: LogPosition | None = None,
    ) -> None:
        """Store the position of a partition from now on.

        Args:
            stream: its stream.
            partition: its number.
            finished: returns the last finished offset, None before the first. It is called at each
                commit, so it must be cheap.
            stored: the stored position: nothing up to it is stored again.
            log: where the positions of the log are stored that is read; None: under the plain id.
        """
        place = StreamPartition(stream, partition)
        cursor = self.cursor_id if log is None else log.cursor
        note = log.created if log is not None and log.note_due else None
        self._kept[place] = _Kept(place, cursor, note, finished, stored)

    def rewound(self, stream: str, partition: int) -> None:
        """Allow the next position to be lower, because the reader has sought."""
        kept = self._kept.get(StreamPartition(stream, partition))
        if kept is not None:
            kept.stored = None
            kept.rewinds += 1

    def forget(self, stream: str, partition: int) -> None:
        """Stop storing the position of a partition; a call in flight may still take effect."""
        self._kept.pop(StreamPartition(stream, partition), None)

    async def give_up(self, stream: str, partition: int) -> None:
        """Store a partition's position a last time, and forget the partition.

        Cancelling forgets the partition; the position may be stored or not.

        Raises:
            LiftbridgeError: it could not be stored. The partition is forgotten all the same.
        """
        try:
            await self.commit([StreamPartition(stream, partition)])
        finally:
            self.forget(stream, partition)

    # Storing

    async def commit(self, places: Iterable[tuple[str, int]] | None = None) -> None:
        """Store every position that has moved, and wait until they are stored.

        Cancelling abandons the wait; positions may be stored or not.

        Args:
            places: which partitions, each a (stream, partition); None: all. Unknown ones are
                ignored.

        Raises:
            LiftbridgeError: the first error. Every position was tried; those that failed are tried
                again by the next commit.
        """
        chosen = (
            self._kept.keys() if places is None else {StreamPartition(*place) for place in places}
        )
        # Calls in flight are awaited too.
        due = [
            kept
            for place, kept in self._kept.items()
            if place in chosen and (kept.due() is not None or kept.turn.locked())
        ]
        await bounded_gather(due, self._bring_up_to_date)

    async def _bring_up_to_date(self, kept: _Kept) -> None:
        async with kept.turn:
            offset = kept.due()
            if offset is None or self._kept.get(kept.place) is not kept:
                return
            rewinds = kept.rewinds
            stream, partition = kept.place
            try:
                await self._set(kept, offset)
            except LiftbridgeError as error:
                error.at(stream, partition, offset)
                self._failed(CommitFailed(self.cursor_id, stream, partition, offset, error))
                self._judge(kept, error)
                raise
            kept.untrusted_since = kept.lasting = None
            if kept.rewinds == rewinds:
                kept.stored = offset

    async def _set(self, kept: _Kept, offset: int) -> None:
        if kept.note is not None:
            note = note_cursor(kept.cursor)
            await self._store.set(note, *kept.place, kept.note, self._timeout)
            kept.note = None
        await self._store.set(kept.cursor, *kept.place, offset, self._timeout)

    def _judge(self, kept: _Kept, error: LiftbridgeError) -> None:
        """Note an error that no retry can mend."""
        if not isinstance(error, PermissionDenied | TLSFailed):
            kept.untrusted_since = None
            return
        if not self._warned:
            self._warned = True
            logger.warning("the cursor %r cannot be stored: %s", self.cursor_id, str(error))
        now = asyncio.get_running_loop().time()
        if kept.untrusted_since is None:
            kept.untrusted_since = now
        if isinstance(error, PermissionDenied) or now - kept.untrusted_since > UNTRUSTED_FOR:
            kept.lasting = error

    async def run(
        self, interval: float, lasting: Callable[[StreamPartition, LiftbridgeError], None]
    ) -> None:
        """Commit every `interval` seconds until cancelled, also in the middle of a commit.

        Args:
            interval: seconds.
            lasting: called for a partition whose position no retry can store: a policy forbids it,
                or TLS has failed for 5 seconds. An exception from it ends this.
        """
        while True:
            await asyncio.sleep(interval)
            try:
                await self.commit()
            except LiftbridgeError:  # reported through `failed`; the next commit retries
                for kept in tuple(self._kept.values()):
                    if kept.lasting is not None:
                        lasting(kept.place, kept.lasting)
