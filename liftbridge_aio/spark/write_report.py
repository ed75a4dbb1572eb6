"""Count repeated and missing rows in streams, by the ids that sinks put into headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from liftbridge_aio._client.client import Client
from liftbridge_aio.errors import StreamNotFound
from liftbridge_aio.model import ACK_HEADER, StartAt, StopAt

from .core.write_id import WRITE_ID_HEADER, WriteId

_READ_AT_ONCE: Final = 8192
_BLOCK_ROWS: Final = 4096
"""Rows per bitmap. Sparse, as a forged header may have any row number."""


class BatchCount(NamedTuple):
    """The counts of one batch in the streams."""

    query: str
    batch: int
    rows: int
    """Distinct rows."""
    repeats: int
    """Messages beyond the first of each row."""
    gaps: int
    """Rows of a task that are missing though a later row of it is stored: the attempt failed and
    was not retried yet, or they went to another stream or were deleted."""
    attempts: int
    """Attempts that published at least one of the messages."""


@dataclass(frozen=True, slots=True)
class WriteReport:
    """The counts of rows in streams that sinks wrote with `includeWriteId`."""

    batches: tuple[BatchCount, ...]
    """Each batch of each query, in order."""
    unmarked: int
    """Messages without a write id, of which no repeats can be known."""

    @property
    def rows(self) -> int:
        """Distinct rows."""
        return sum(batch.rows for batch in self.batches)

    @property
    def repeats(self) -> int:
        """Messages that repeat a row."""
        return sum(batch.repeats for batch in self.batches)

    @property
    def gaps(self) -> int:
        """Missing rows; see `BatchCount.gaps`."""
        return sum(batch.gaps for batch in self.batches)

    @property
    def uneven(self) -> tuple[BatchCount, ...]:
        """The batches that have repeats or gaps."""
        return tuple(batch for batch in self.batches if batch.repeats or batch.gaps)

    @property
    def summary(self) -> str:
        """The totals on one line."""
        return (
            f"{self.rows} rows, {self.repeats} repeats, {self.gaps} gaps,"
            f" {self.unmarked} messages without a write id"
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
    """Bitmaps of the rows that were seen, by block."""
    rows: int = 0
    after_last: int = 0

    def mark(self, row: int) -> bool:
        """Mark a row as seen; return True if it was before."""
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
    attempts: set[bytes] = field(default_factory=set)


class RepeatCounter:
    """Counts rows and their repeats, message by message. Needs one bit of memory for a row."""

    def __init__(self) -> None:
        self._batches: dict[tuple[bytes, int], _Batch] = {}
        self._unmarked = 0

    def add(self, headers: Mapping[str, bytes]) -> bool:
        """Count a message by its headers; return True if it repeats a row.

        Messages without a valid write id count as new.
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
        batch.attempts.add(row.attempt)
        return batch.tasks.setdefault(row.task, _Task()).mark(row.row)

    def report(self) -> WriteReport:
        """Return the counts so far."""
        return WriteReport(
            tuple(
                _count(query, number, batch)
                for (query, number), batch in sorted(self._batches.items())
            ),
            self._unmarked,
        )


def _count(query: bytes, number: int, batch: _Batch) -> BatchCount:
    rows = sum(task.rows for task in batch.tasks.values())
    return BatchCount(
        str(UUID(bytes=query)),
        number,
        rows,
        batch.messages - rows,
        sum(task.after_last for task in batch.tasks.values()) - rows,
        len(batch.attempts),
    )


async def write_report(client: Client, *streams: str) -> WriteReport:
    """Read streams from start to present end, and count repeated and missing rows.

    Rows carry a write id if the sink has the option `includeWriteId`. Cancelling stops the reading.

    Args:
        client: connected.
        *streams: all partitions are read, one after the other. Name all streams that one query
            writes to, or rows that went to another stream count as gaps.

    Raises:
        StreamNotFound: no such stream.
        LiftbridgeError: they could not be read.
    """
    counter = RepeatCounter()
    known = (await client.fetch_metadata(streams, expected=streams)).streams
    for stream in dict.fromkeys(streams):
        if stream not in known:
            raise StreamNotFound("no such stream", stream=stream)
    for stream in dict.fromkeys(streams):
        for partition in sorted(known[stream].partitions):
            messages = client.subscribe(
                stream, partition=partition, start=StartAt.earliest(), stop=StopAt.latest()
            )
            async with messages:
                async for batch in messages.batches(_READ_AT_ONCE):
                    for message in batch:
                        if ACK_HEADER not in message.transaction_headers:  # an ack is no row
                            counter.add(message.headers)
    return counter.report()
