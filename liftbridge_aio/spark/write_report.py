"""Counts the rows that a stream holds more than once, by the identities that sinks gave them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from liftbridge_aio.client import Client
from liftbridge_aio.errors import StreamNotFound
from liftbridge_aio.model import StartAt, StopAt

from .write_id import ATTEMPT_HEADER, WRITE_ID_HEADER, WriteId

_READ_AT_ONCE: Final = 8192


class BatchCount(NamedTuple):
    """What a stream holds of one batch."""

    query: str
    batch: int
    rows: int
    """Different rows."""
    repeats: int
    """Messages beyond the first of each row."""
    gaps: int
    """Rows of a task that are not there though a later row of the task is: an attempt that failed
    and was not repeated yet, or rows that were deleted since."""
    attempts: int
    """Attempts that published at least one of the messages."""


@dataclass(frozen=True, slots=True)
class WriteReport:
    """What a stream holds of the rows that sinks wrote with `includeWriteId`."""

    batches: tuple[BatchCount, ...]
    """Each batch of each query, in order."""
    unmarked: int
    """Messages without an identity; nothing can be said of them."""

    @property
    def rows(self) -> int:
        """Different rows."""
        return sum(batch.rows for batch in self.batches)

    @property
    def repeats(self) -> int:
        """Messages that repeat a row."""
        return sum(batch.repeats for batch in self.batches)

    @property
    def gaps(self) -> int:
        """Rows that should be there and are not; see `BatchCount.gaps`."""
        return sum(batch.gaps for batch in self.batches)

    def __str__(self) -> str:
        summary = (
            f"{self.rows} rows, {self.repeats} repeats, {self.gaps} gaps,"
            f" {self.unmarked} messages without an identity"
        )
        batches = (
            f"  batch {one.batch} of query {one.query}: {one.rows} rows, {one.repeats} repeats,"
            f" {one.gaps} gaps, {one.attempts} attempts"
            for one in self.batches
            if one.repeats or one.gaps
        )
        return "\n".join((summary, *batches))


@dataclass(slots=True)
class _Batch:
    seen: dict[int, bytearray] = field(default_factory=dict)
    """For each task a mark for each of its rows."""
    messages: int = 0
    attempts: set[tuple[int, bytes]] = field(default_factory=set)


class RepeatCounter:
    """Tells rows from their repeats, message after message. Needs a byte of memory a row."""

    def __init__(self) -> None:
        self._batches: dict[tuple[str, int], _Batch] = {}
        self._unmarked = 0

    def add(self, headers: Mapping[str, bytes]) -> bool:
        """Take in the headers of a message, and tell whether its row was there before.

        Messages without an identity, or with one that makes no sense, count as new.
        """
        written = headers.get(WRITE_ID_HEADER)
        try:
            row = None if written is None else WriteId.decode(written)
        except ValueError:
            row = None
        if row is None:
            self._unmarked += 1
            return False
        batch = self._batches.setdefault((row.query, row.batch), _Batch())
        batch.messages += 1
        batch.attempts.add((row.task, headers.get(ATTEMPT_HEADER, b"")))
        seen = batch.seen.setdefault(row.task, bytearray())
        if row.row >= len(seen):
            seen.extend(bytes(row.row + 1 - len(seen)))
        repeated = bool(seen[row.row])
        seen[row.row] = 1
        return repeated

    def report(self) -> WriteReport:
        """Return what was counted so far."""
        return WriteReport(
            tuple(
                _count(query, number, batch)
                for (query, number), batch in sorted(self._batches.items())
            ),
            self._unmarked,
        )


def _count(query: str, number: int, batch: _Batch) -> BatchCount:
    rows = sum(seen.count(1) for seen in batch.seen.values())
    return BatchCount(
        query,
        number,
        rows,
        batch.messages - rows,
        sum(seen.count(0) for seen in batch.seen.values()),
        len(batch.attempts),
    )


async def write_report(client: Client, stream: str) -> WriteReport:
    """Read a stream from its beginning to its end of now, and count what is there repeatedly.

    A sink gives rows an identity with its option `includeWriteId`. Cancelling abandons the reading.

    Args:
        client: connected.
        stream: all its partitions are read, one after the other.

    Raises:
        StreamNotFound: no such stream.
        LiftbridgeError: it could not be read.
    """
    known = (await client.fetch_metadata([stream])).streams.get(stream)
    if known is None:
        text = "no such stream"
        raise StreamNotFound(text, stream=stream)
    counter = RepeatCounter()
    for partition in sorted(known.partitions):
        reading = client.subscribe(stream, partition, StartAt.earliest(), StopAt.latest())
        async with reading:
            async for batch in reading.batches(_READ_AT_ONCE):
                for message in batch:
                    counter.add(message.headers)
    return counter.report()
