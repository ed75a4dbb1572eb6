"""Keeps how far readers are done with partitions as cursors in the server.

It knows neither who reads nor how cursors are stored: both are told to it, as a function for each
partition and as a `CursorStore`. Whoever owns it runs its `run` as a task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from .errors import LiftbridgeError, PermissionDenied, TLSFailed
from .for_each import for_each
from .reading_patience import UNTRUSTED_FOR
from .telemetry import CommitFailed

logger = logging.getLogger("liftbridge_aio.cursors")


class CursorStore(Protocol):
    """Where cursors are kept; `cursors.Cursors` is one."""

    async def set(
        self, cursor_id: str, stream: str, partition: int, offset: int, timeout: float, /
    ) -> None:
        """Store a position."""

    async def fetch(
        self, cursor_id: str, stream: str, partition: int, timeout: float, /
    ) -> int | None:
        """Read a position back; None where none was stored."""


class Place(NamedTuple):
    """A partition of a stream."""

    stream: str
    partition: int


@dataclass(slots=True, eq=False)
class _Kept:
    """One partition: how far its reader is done, and how far that is stored."""

    place: Place
    finished: Callable[[], int | None]
    stored: int | None
    rewinds: int = 0
    untrusted_since: float | None = None
    lasting: LiftbridgeError | None = None
    """Why it cannot be stored, where no other try will mend that."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def due(self) -> int | None:
        """The position to store; None where it has not moved on since the last time."""
        offset = self.finished()
        if offset is None or offset < 0 or (self.stored is not None and offset <= self.stored):
            return None
        return offset


class CursorKeeper:
    """Stores the last finished offset of each partition under one cursor id.

    What is stored is the last offset with which the reader is done, as the Go client does it: who
    comes next begins one behind. It never steps back, unless `rewound` said that it may, and is
    stored only where it has moved. How to use it:

        keeper = CursorKeeper("__group:billing", cursors, timeout=5, failed=reporter.commit_failed)
        stored = await keeper.fetch("orders", 0)              # begin at stored + 1
        keeper.keep("orders", 0, lambda: merge.finished(reading), stored)
        child = supervisor.spawn(keeper.run, 5.0, on_lasting, name="commits")
        await keeper.commit()                                 # now
        await keeper.give_up("orders", 0)                     # a last time; nothing after that
        child.cancel()

    A position that could not be stored is stored with the next one that is due.

    Args:
        cursor_id: names the cursors; one for each partition.
        store: where they are kept.
        timeout: seconds to store or to read one of them.
        failed: told of each position that could not be stored, whoever asked for it.
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
        self._kept: dict[Place, _Kept] = {}
        self._warned = False

    @property
    def stored(self) -> dict[Place, int]:
        """The positions of the partitions that are kept, as far as they are known to be stored."""
        return {place: kept.stored for place, kept in self._kept.items() if kept.stored is not None}

    # Which partitions

    async def fetch(self, stream: str, partition: int) -> int | None:
        """Read a stored position; None where there is none. Cancelling abandons the call.

        Raises:
            CursorsUnavailable: the server keeps no cursors, or failed to read this one.
            LiftbridgeError: no server answered in time.
        """
        return await self._store.fetch(self.cursor_id, stream, partition, self._timeout)

    def keep(
        self, stream: str, partition: int, finished: Callable[[], int | None], stored: int | None
    ) -> None:
        """Store how far a partition is read from now on.

        Args:
            stream: its stream.
            partition: its number.
            finished: the last offset with which the reader is done, None before there is one. It is
                called whenever something may have to be stored, so it must be cheap.
            stored: what `fetch` said: nothing up to it is stored again.
        """
        place = Place(stream, partition)
        self._kept[place] = _Kept(place, finished, stored)

    def rewound(self, stream: str, partition: int) -> None:
        """Take note that the reader was sent elsewhere: the next position may be a lower one."""
        kept = self._kept.get(Place(stream, partition))
        if kept is not None:
            kept.stored = None
            kept.rewinds += 1

    def forget(self, stream: str, partition: int) -> None:
        """Store no more for a partition; what is being stored just now may still take effect."""
        self._kept.pop(Place(stream, partition), None)

    async def give_up(self, stream: str, partition: int) -> None:
        """Store a partition's position a last time, and nothing for it once this has returned.

        Cancelling forgets the partition; the position may be stored or not.

        Raises:
            LiftbridgeError: it could not be stored. The partition is forgotten all the same.
        """
        try:
            await self.commit([Place(stream, partition)])
        finally:
            self.forget(stream, partition)

    # Storing

    async def commit(self, places: Iterable[tuple[str, int]] | None = None) -> None:
        """Store every position that has moved, and wait until they are stored.

        Cancelling abandons the wait; positions may be stored or not.

        Args:
            places: which partitions, each a (stream, partition); None: all. Those that are not
                kept do not count.

        Raises:
            LiftbridgeError: the first error, if there was one. Every position was tried; those
                that failed are tried again when the next ones are due.
        """
        chosen = self._kept.keys() if places is None else {Place(*place) for place in places}
        # Those that are being stored just now are waited for too.
        due = [
            kept
            for place, kept in self._kept.items()
            if place in chosen and (kept.due() is not None or kept.turn.locked())
        ]
        await for_each(due, self._bring_up_to_date)

    async def _bring_up_to_date(self, kept: _Kept) -> None:
        async with kept.turn:
            offset = kept.due()
            if offset is None or self._kept.get(kept.place) is not kept:
                return
            rewinds = kept.rewinds
            stream, partition = kept.place
            try:
                await self._store.set(self.cursor_id, stream, partition, offset, self._timeout)
            except LiftbridgeError as error:
                error.at(stream, partition, offset)
                self._failed(CommitFailed(self.cursor_id, stream, partition, offset, error))
                self._judge(kept, error)
                raise
            kept.untrusted_since = kept.lasting = None
            if kept.rewinds == rewinds:
                kept.stored = offset

    def _judge(self, kept: _Kept, error: LiftbridgeError) -> None:
        """Tell errors that will last from those that may pass."""
        if not isinstance(error, PermissionDenied | TLSFailed):
            kept.untrusted_since = None
            return
        if not self._warned:
            self._warned = True
            logger.warning("the cursor %r cannot be stored: %s", self.cursor_id, error)
        now = asyncio.get_running_loop().time()
        if kept.untrusted_since is None:
            kept.untrusted_since = now
        if isinstance(error, PermissionDenied) or now - kept.untrusted_since > UNTRUSTED_FOR:
            kept.lasting = error

    async def run(self, interval: float, lasting: Callable[[Place, LiftbridgeError], None]) -> None:
        """Store what has moved every `interval` seconds, for ever; `failed` is told of errors.

        Cancelling ends it, in the middle of storing too.

        Args:
            interval: seconds.
            lasting: told of a partition whose position cannot be stored, however often one tries:
                it is forbidden, or TLS has failed for 5 seconds. What it raises ends this.
        """
        while True:
            await asyncio.sleep(interval)
            try:
                await self.commit()
            except LiftbridgeError:  # `failed` was told, and the next turn comes
                for kept in tuple(self._kept.values()):
                    if kept.lasting is not None:
                        lasting(kept.place, kept.lasting)
