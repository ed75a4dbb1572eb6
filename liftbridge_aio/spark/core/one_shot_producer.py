"""The producer of one attempt of a task: numbers its rows, and knows what may be committed. Pure.

Rows of an attempt are uncommitted messages. They become visible when the driver commits the
attempt, up to the last row of which it is certain that it and all rows before it are stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from liftbridge_aio.transactions.core.transaction import AckIntent
from liftbridge_aio.transactions.core.uuid import Clock, Flags, clock_at, rising_uuids
from liftbridge_aio.transactions.core.visibility import AckEntry

Place = tuple[str, int]
"""A stream and one of its partitions."""

_STEP: Final = Clock.MICROSECOND


class UncommittedRows(NamedTuple):
    """Rows that a producer stored, and that a commit shows."""

    producer: bytes
    previous: int
    """The clock before the first row."""
    clock: int
    """The clock of the last row."""
    begins: tuple[tuple[str, int, int], ...]
    """Stream, partition, and the offset of the producer's first row there."""

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return (self.clock - self.previous) // _STEP

    def intents(self) -> Iterator[AckIntent]:
        """Return the acks that show the rows and end the producer."""
        for stream, partition, begin in self.begins:
            entry = AckEntry(self.producer, self.clock, begin, self.previous, final=True)
            yield AckIntent(stream, partition, entry)


class OneShotProducer:
    """Sends rows in order, until one of them fails; then another producer takes over.

    A row that failed may be stored later, and readers pass over rows that come out of order. So
    rows from the failed one on are sent again by another producer, and this one's are never shown.

    Args:
        producer: a new random id.
        unix_ns: the time, in nanoseconds since 1970.
    """

    def __init__(self, producer: bytes, unix_ns: int) -> None:
        self._producer = producer
        self._previous = self._stored = clock_at(unix_ns)
        self.uuids = rising_uuids(producer, self._previous, _STEP, Flags.CONTINUE)
        """The UUIDs of the rows, one for each that is sent."""
        self._begins: dict[Place, int] = {}
        self._last: dict[Place, int] = {}

    def stored(self, offsets: dict[Place, list[int]]) -> Place | None:
        """Take in that the next rows are stored.

        Args:
            offsets: those of the rows of each partition, in the order in which they were sent.

        Returns:
            A partition that did not store its rows in this order, so that nothing of this producer
            can be committed; None: all did.
        """
        for place, own in offsets.items():
            last = self._last.get(place, -1)
            if own[0] <= last or any(map(int.__ge__, own, own[1:])):
                return place
            self._begins.setdefault(place, own[0])
            self._last[place] = own[-1]
            self._stored += len(own) * _STEP
        return None

    def rows(self) -> UncommittedRows | None:
        """Return what may be committed: the rows that are stored; None if there are none."""
        if not self._begins:
            return None
        begins = tuple((*place, begin) for place, begin in sorted(self._begins.items()))
        return UncommittedRows(self._producer, self._previous, self._stored, begins)
