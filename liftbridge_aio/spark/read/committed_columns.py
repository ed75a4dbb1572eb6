"""Show what is committed of a range of offsets, column by column.

As `Client.committed_range` does for messages: what is shown depends on the log alone, so a batch
that is run again has the same rows. Rows of a transaction are shown where its ack stands, and may
be read from before the range.

Most messages are those of a few producers with rising clocks. So messages of one producer that
follow one another are a run, of which only the first and last clock are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from itertools import chain, groupby
from operator import lt
from struct import unpack
from typing import Final, NamedTuple, TypeAlias

from liftbridge_aio._core.arguments import INT64_MAX
from liftbridge_aio.model import ACK_HEADER
from liftbridge_aio.spark.core.options import OnMalformed
from liftbridge_aio.transactions.core.sequencer import NO_OFFSET
from liftbridge_aio.transactions.core.uuid import (
    PRODUCER_BYTES,
    UUID_BYTES,
    Flags,
    is_outside,
    parse_uuid,
)
from liftbridge_aio.transactions.core.visibility import AckEntry, Event, Follower, Replay
from liftbridge_aio.transactions.errors import MalformedAck
from liftbridge_aio.transactions.log_format import event_of
from liftbridge_aio.transactions.reading import LOOK_BACK, truncated
from liftbridge_aio.wire.column_batch import ColumnBatch

_Place: TypeAlias = tuple[ColumnBatch, int]
"""A message, as a row of a batch."""
_Take: TypeAlias = Callable[[Event[_Place]], None]

_MAX_MESSAGES: Final = 200_000
"""Messages of open transactions that are kept; the rest is read again when its ack comes."""
_ACK: Final = b"ack"
_LOW_TIME: Final = 0xFFFF_FFFF
"""The part of a UUID's first eight bytes that differs only after seven minutes."""


class _Run(NamedTuple):
    """Rows of a batch from one index to before another, with rising clocks."""

    columns: ColumnBatch
    start: int
    stop: int
    first: int = 0
    last: int = 0
    """The clocks of the first and last row; 0 where they do not matter."""


class _Span:
    """The messages of an open transaction."""

    __slots__ = ("begin", "count", "high", "runs")

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.high = -1
        self.runs: list[_Run] = []
        self.count = 0


class LogPart:
    """A part of the log that must be read before the next rows can be shown."""

    def __init__(self, begin: int, end: int, take: _Take) -> None:
        self.begin = begin
        self.end = end
        """The offset behind the last one."""
        self.missing: set[int] = set()
        """Offsets of messages that must be there, and have not come yet."""
        self._take = take

    def feed(self, columns: ColumnBatch) -> None:
        """Take the next messages of the part."""
        self.missing.difference_update(columns.offsets)
        uuids, acks = columns.transaction_headers()
        for index, uuid in enumerate(uuids):
            if uuid is not None or index in acks:
                # Malformed acks are those of the range in which they are.
                with suppress(MalformedAck):
                    self._take(_event(columns, index, uuid, acks))


class CommittedColumns:
    """Shows what is committed at the positions of a range.

    Args:
        start: the first position.
        whole: True to fail where the beginning of a transaction is no longer in the log; False to
            show the rest of it.
        on_malformed: what to do about malformed acks.
    """

    def __init__(self, start: int, *, whole: bool, on_malformed: OnMalformed) -> None:
        self.malformed: dict[int, MalformedAck] = {}
        """The malformed acks of the range, by offset; empty unless they are skipped or shown."""
        self._start = start
        self._whole = whole
        self._on_malformed = on_malformed
        self._looked_back = not start
        self._spans: dict[bytes, _Span] = {}
        """Open transactions by their producers, the oldest first."""
        self._kept = 0
        self._outside: Follower[_Place] = Follower(max_messages=1, max_producers=INT64_MAX)

    def add(self, columns: ColumnBatch) -> Iterator[ColumnBatch | LogPart]:
        """Take the next messages of the range, and yield what they show.

        Where a part of the log is yielded, read it before going on.

        Raises:
            TransactionTruncated: the beginning of a transaction is no longer in the log.
            MalformedAck: a message of the range is a malformed ack, and these are an error.
            NewerFormat: an ack has a later version of the format.
        """
        if not columns.has_transactions:
            yield columns
            return
        uuids, acks = columns.transaction_headers()
        # Producer, flags and counter: what the messages of a run have in common.
        kinds = [None if uuid is None else uuid[8:] for uuid in uuids]
        for index in acks:
            kinds[index] = _ACK
        shown: list[_Run] = []
        start = 0
        for kind, group in groupby(kinds):
            stop = start + len(list(group))
            if kind is _ACK:
                for index in range(start, stop):
                    shown += yield from self._acked(columns, index, acks)
            elif kind is None or len(kind) + 8 != UUID_BYTES:
                shown.append(_Run(columns, start, stop))
            elif not self._extend(columns, uuids[start:stop], start):
                for index in range(start, stop):
                    shown += yield from self._one(columns, index, uuids[index] or b"")
            start = stop
        yield from _gathered(shown)

    def _extend(self, columns: ColumnBatch, uuids: list[bytes | None], start: int) -> bool:
        """Add messages of one kind to a transaction, if they are such and their clocks rise."""
        whole = b"".join(filter(None, uuids))
        producer, first, flags = parse_uuid(whole[:UUID_BYTES])
        last = parse_uuid(whole[-UUID_BYTES:])[1]
        times = unpack(f">{2 * len(uuids)}Q", whole)[::2]
        if flags != Flags.CONTINUE or not first or (times[0] ^ times[-1]) & _LOW_TIME:
            return False
        if len(times) > 1 and not (
            all(map(lt, times, times[1:])) and len({time & _LOW_TIME for time in times}) == 1
        ):
            return False
        span = self._spans.get(producer)
        if span is None:
            span = self._spans[producer] = _Span(columns.offsets[start])
        if first <= span.high:
            return len(times) == 1  # a repeat, or several of which some may be
        span.high = last
        span.runs.append(_Run(columns, start, start + len(times), first, last))
        span.count += len(times)
        self._kept += len(times)
        while self._kept > _MAX_MESSAGES and len(self._spans) > 1:
            self._drop(next(iter(self._spans)))
        return True

    def _one(
        self, columns: ColumnBatch, index: int, uuid: bytes
    ) -> Generator[LogPart, None, list[_Run]]:
        """Take one message; yield what must be read, and return what is shown."""
        if self._extend(columns, [uuid], index):
            return []
        if not self._looked_back and is_outside(uuid):
            self._looked_back = True
            yield LogPart(max(self._start - LOOK_BACK, 0), self._start, self._remember)
        producer, clock, _ = parse_uuid(uuid)
        if clock:
            self._drop(producer)
        event = Event(columns.offsets[index], (columns, index), uuid)
        return [_Run(columns, index, index + 1) for _ in self._outside.feed(event)]

    def _acked(
        self, columns: ColumnBatch, index: int, acks: dict[int, bytes]
    ) -> Generator[LogPart, None, list[_Run]]:
        """Take an ack; yield what must be read, and return what is shown.

        Raises:
            MalformedAck: it is malformed, and these are an error.
        """
        try:
            ack = _event(columns, index, None, acks)
        except MalformedAck as error:
            if self._on_malformed is OnMalformed.ERROR:
                raise
            self.malformed[columns.offsets[index]] = error
            emitted = self._on_malformed is OnMalformed.EMIT
            return [_Run(columns, index, index + 1)] if emitted else []
        steps: list[list[_Run] | Replay[_Place]] = []
        for place, entry in enumerate(ack.acks):
            span = self._drop(entry.producer)
            if entry.begin == NO_OFFSET or entry.clock <= entry.previous:
                continue
            if span is not None and span.begin == entry.begin:
                steps.append([part for run in span.runs for part in _between(run, entry)])
            else:
                steps.append(Replay(entry, ack.offset, place))
        replays = [step for step in steps if isinstance(step, Replay)]
        if replays:
            yield from self._read_again(replays, ack.offset)
        shown: list[_Run] = []
        for step in steps:
            if isinstance(step, Replay):
                rows = (row.message for row in step.rows())
                shown += (_Run(batch, index, index + 1) for batch, index in rows)
            else:
                shown += step
        return shown

    def _read_again(self, replays: list[Replay[_Place]], end: int) -> Iterator[LogPart]:
        by_producer: dict[bytes, list[Replay[_Place]]] = {}
        for replay in replays:
            by_producer.setdefault(replay.entry.producer, []).append(replay)

        def take(event: Event[_Place]) -> None:
            producers = {entry.producer for entry in event.acks}
            for producer in producers or {(event.uuid or b"")[-PRODUCER_BYTES:]}:
                for replay in by_producer.get(producer, ()):
                    if replay.entry.begin <= event.offset:
                        replay.feed(event)

        begins = {replay.entry.begin for replay in replays}
        part = LogPart(min(begins), end, take)
        part.missing |= begins
        yield part
        if self._whole and part.missing:
            lost = next(replay for replay in replays if replay.entry.begin in part.missing)
            raise truncated(lost.entry, end)

    def _drop(self, producer: bytes) -> _Span | None:
        span = self._spans.pop(producer, None)
        if span is not None:
            self._kept -= span.count
        return span

    def _remember(self, event: Event[_Place]) -> None:
        """Take a message before the range, of which only committed single ones count."""
        if event.uuid is not None and is_outside(event.uuid):
            for _ in self._outside.feed(event):
                pass


def _between(run: _Run, entry: AckEntry) -> list[_Run]:
    """Return the part of a run that an entry of an ack commits."""
    previous, clock = entry.previous, entry.clock
    if previous < run.first and run.last <= clock:
        return [run]
    if run.last <= previous or clock < run.first:
        return []
    uuids, _ = run.columns.slice(run.start, run.stop).transaction_headers()
    clocks = [parse_uuid(uuid or b"")[1] for uuid in uuids]
    return [
        _Run(run.columns, index, index + 1)
        for index, own in enumerate(clocks, run.start)
        if previous < own <= clock
    ]


def _gathered(shown: list[_Run]) -> Iterator[ColumnBatch]:
    """Yield the rows of runs in order, as few batches."""
    for _, group in groupby(shown, key=lambda run: id(run.columns)):
        runs = list(group)
        columns = runs[0].columns
        if len(runs) == 1:
            yield columns.slice(runs[0].start, runs[0].stop)
        else:
            spans = (range(run.start, run.stop) for run in runs)
            yield columns.select(list(chain.from_iterable(spans)))


def _event(
    columns: ColumnBatch, index: int, uuid: bytes | None, acks: dict[int, bytes]
) -> Event[_Place]:
    offset, place = columns.offsets[index], (columns, index)
    if index not in acks:
        return Event(offset, place, uuid)
    return event_of(offset, {ACK_HEADER: acks[index]}, columns.values[index], place)
