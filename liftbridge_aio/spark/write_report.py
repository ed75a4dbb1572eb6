"""Counts the rows that streams hold more than once, by the identities that sinks gave them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from liftbridge_aio.client import Client
from liftbridge_aio.errors import StreamNotFound
from liftbridge_aio.model import StartAt, StopAt

from .write_id import ATTEMPT_HEADER, WRITE_ID_HEADER, WriteId

_READ_AT_ONCE: Final = 8192
_BLOCK_ROWS: Final = 4096
"""Rows that are marked side by side; anybody may have made up the number of a row."""


class BatchCount(NamedTuple):
    """What the streams hold of one batch."""

    query: str
    batch: int
    rows: int
    """Different rows."""
    repeats: int
    """Messages beyond the first of each row."""
    gaps: int
    """Rows of a task that are not there though a later row of the task is: an attempt that failed
    and was not repeated yet, rows that went to another stream, or were deleted since."""
    attempts: int
    """Attempts that published at least one of the messages."""


@dataclass(frozen=True, slots=True)
class WriteReport:
    """What streams hold of the rows that sinks wrote with `includeWriteId`."""

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

    @property
    def uneven(self) -> tuple[BatchCount, ...]:
        """The batches of which rows are there more than once, or not at all."""
        return tuple(batch for batch in self.batches if batch.repeats or batch.gaps)

    @property
    def summary(self) -> str:
        """All of it in a line."""
        return (
            f"{self.rows} rows, {self.repeats} repeats, {self.gaps} gaps,"
            f" {self.unmarked} messages without an identity"
        )

    def __str__(self) -> str:
        batches = (
            f"  batch {one.batch} of query {one.query}: {one.rows} rows, {one.repeats} repeats,"
            f" {one.gaps} gaps, {one.attempts} attempts"
            for one in self.uneven
        )
        return "\n".join((self.summary, *batches))


@dataclass(slots=True)
class _Task:
    blocks: dict[int, bytearray] = field(default_factory=dict)
    """A bit for each row that was seen, in blocks where there are any."""
    rows: int = 0
    after_last: int = 0

    def mark(self, row: int) -> bool:
        """Take note of a row, and tell whether that was done before."""
        number, place = divmod(row, _BLOCK_ROWS)
        block = self.blocks.get(number)
        if block is None:
            block = self.blocks[number] = bytearray(_BLOCK_ROWS // 8)
        index, bit = place >> 3, 1 << (place & 7)
        if block[index] & bit:
            return True
        block[index] |= bit
        self.rows += 1
        self.after_last = max(self.after_last, row + 1)
        return False


@dataclass(slots=True)
class _Batch:
    tasks: dict[int, _Task] = field(default_factory=dict)
    messages: int = 0
    attempts: set[tuple[int, bytes]] = field(default_factory=set)


class RepeatCounter:
    """Tells rows from their repeats, message after message. Needs a bit of memory a row."""

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
        return batch.tasks.setdefault(row.task, _Task()).mark(row.row)

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
    rows = sum(task.rows for task in batch.tasks.values())
    return BatchCount(
        query,
        number,
        rows,
        batch.messages - rows,
        sum(task.after_last for task in batch.tasks.values()) - rows,
        len(batch.attempts),
    )


async def write_report(client: Client, *streams: str) -> WriteReport:
    """Read streams from their beginning to their end of now, and count what is there repeatedly.

    A sink gives rows an identity with its option `includeWriteId`. Cancelling abandons the reading.

    Args:
        client: connected.
        *streams: all partitions are read, one after the other. Name together what one query writes
            to, or rows that went to another stream count as gaps.

    Raises:
        StreamNotFound: no such stream.
        LiftbridgeError: they could not be read.
    """
    counter = RepeatCounter()
    known = (await client.fetch_metadata(streams)).streams
    for stream in dict.fromkeys(streams):
        if stream not in known:
            text = "no such stream"
            raise StreamNotFound(text, stream=stream)
    for stream in dict.fromkeys(streams):
        for partition in sorted(known[stream].partitions):
            reading = client.subscribe(stream, partition, StartAt.earliest(), StopAt.latest())
            async with reading:
                async for batch in reading.batches(_READ_AT_ONCE):
                    for message in batch:
                        counter.add(message.headers)
    return counter.report()
