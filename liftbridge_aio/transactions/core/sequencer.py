"""Sequence the messages of a log into those that are committed, in the way of Gazette.

Each message carries a UUID (see `uuid`), which says who produced it, in which order, and what it
is to a transaction. `Sequencer.queue` takes the messages of a journal in the order of the log and
says what each one does; `OUTCOMES` is the whole rule. Where the outcome commits something,
`Sequencer.step` returns the committed messages one by one.

Messages of open transactions wait in a ring of bounded size. Those that no longer fit are read
again when their transaction commits: the outcome is then ACK_COMMIT_REPLAY, the caller reads
`Sequencer.replay_range` once more and passes each message to `Sequencer.replay`.

No transaction holds up the messages of another producer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, TypeVar

from liftbridge_aio._core.arguments import INT64_MAX, check_whole_number
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.transactions.errors import OpenTransaction, PartialCommit, ReplayMismatch

from .uuid import Flags, parse_uuid

T = TypeVar("T")

NO_OFFSET: Final = -1
_CONTINUE: Final = int(Flags.CONTINUE)
"""Compared with for each message, and faster so."""


class Outcome(Enum):
    """The effect of a queued message; the texts are Gazette's names."""

    OUTSIDE_ALREADY_ACKED = "outsideAlreadyAcked"
    """A duplicate of a message that is committed: discarded."""

    OUTSIDE_COMMIT = "outsideCommit"
    """A message of no transaction: committed. An open transaction of its producer is discarded."""

    CONTINUE_ALREADY_ACKED = "continueAlreadyAcked"
    """A duplicate of a message that is committed: discarded."""

    CONTINUE_CLOCK_LARGER = "continueTxnClockLarger"
    """A duplicate of a message of the open transaction: discarded."""

    CONTINUE_BEGIN_SPAN = "continueBeginSpan"
    """The first message of a transaction."""

    CONTINUE_EXTEND_SPAN = "continueExtendSpan"
    """A further message of a transaction."""

    ACK_ROLLBACK = "ackRollback"
    """A repeated commit, or the rollback of the open transaction."""

    ACK_RESET = "ackRollback to an earlier clock"
    """A rollback to before the last commit: its producer lost a checkpoint, and what it publishes
    again may repeat messages. Gazette has one name for this and for ACK_ROLLBACK."""

    ACK_DUPLICATE = "ackDuplicate"
    """Only if strict: an old commit of a producer without open transaction, discarded."""

    ACK_EMPTY = "ackEmpty"
    """The commit of a transaction without messages."""

    ACK_COMMIT_RING = "ackCommitRing"
    """The commit of a transaction that is in memory whole."""

    ACK_COMMIT_REPLAY = "ackCommitReplay"
    """The commit of a transaction whose first messages must be read again."""


COMMITS: Final = frozenset(
    (
        Outcome.OUTSIDE_COMMIT,
        Outcome.ACK_EMPTY,
        Outcome.ACK_COMMIT_RING,
        Outcome.ACK_COMMIT_REPLAY,
    )
)
"""The outcomes after which `Sequencer.step` returns messages."""


class Committed(NamedTuple, Generic[T]):
    """A committed message and its place in the journal: offsets from `begin` to before `end`."""

    journal: str
    begin: int
    end: int
    message: T


class ReplayRange(NamedTuple):
    """The offsets of a journal, from `begin` to before `end`, that must be read again."""

    journal: str
    begin: int
    end: int


class ProducerState(NamedTuple):
    """The state of a producer in a journal, for checkpoints."""

    journal: str
    producer: bytes
    last_ack: int
    """The clock up to which its messages are committed."""

    begin: int
    """Offset of the first message of its open transaction, -1 without one."""


class _Entry(Generic[T]):
    """A message in the ring; `span` is None once it has been delivered or discarded."""

    __slots__ = ("begin", "clock", "end", "message", "size", "span")

    def __init__(
        self, span: _Span[T], clock: int, begin: int, end: int, message: T, size: int
    ) -> None:
        self.span: _Span[T] | None = span
        self.clock = clock
        self.begin = begin
        self.end = end
        self.message = message
        self.size = size


class _Span(Generic[T]):
    """The open transaction of a producer in a journal.

    low: the clock up to which its messages are committed, or delivered of the run at hand.
    high: the largest clock of the open transaction; `low` without one.
    begin: offset of its first message, or -1.
    entries: those of its messages that are in the ring, the newest ones.
    """

    __slots__ = ("begin", "entries", "high", "low")

    def __init__(self, low: int, begin: int = NO_OFFSET) -> None:
        self.low = self.high = low
        self.begin = begin
        self.entries: deque[_Entry[T]] = deque()

    def in_memory(self) -> bool:
        return bool(self.entries) and self.entries[0].begin == self.begin


class _Journal(Generic[T]):
    """The read-through offset of a journal, -1 before its first message, and its producers."""

    __slots__ = ("name", "offset", "spans")

    def __init__(self, name: str) -> None:
        self.name = name
        self.offset = NO_OFFSET
        self.spans: dict[bytes, _Span[T]] = {}

    def add(self, producer: bytes, clock: int) -> _Span[T]:
        """Return the state of a producer at its first message; without a clock it has none."""
        span = _Span[T](clock - 1)
        if clock:
            self.spans[producer] = span
        return span


class _Run(Generic[T]):
    """The committed messages that are being stepped through."""

    __slots__ = ("clock", "end", "journal", "replaying", "span")

    def __init__(self, journal: _Journal[T], span: _Span[T], *, replaying: bool) -> None:
        self.journal = journal
        self.span = span
        self.replaying = replaying
        self.end = NO_OFFSET
        self.clock: int | None = None  # of the message that was stepped to last

    def delivers(self, clock: int) -> bool:
        """Advance past the last message; return False for one that is repeated or rolled back."""
        span = self.span
        if self.clock is not None:
            span.low = self.clock
            self.clock = None
        return clock == 0 or span.low < clock <= span.high


class Sequencer(Generic[T]):
    """Sequence the messages of one or more journals into committed ones.

    Not safe for use by several threads. Memory is bounded by the ring, and by one small state per
    producer, which `checkpoint` prunes.
    """

    def __init__(
        self,
        offsets: Mapping[str, int] | None = None,
        states: Iterable[ProducerState] = (),
        *,
        max_messages: int = 8192,
        max_bytes: int = 64 << 20,
        strict: bool = False,
    ) -> None:
        """Begin at the offsets and producer states of a checkpoint, or without any.

        Args:
            offsets: for each journal the offset of the first message that was not read.
            states: of the producers, from `checkpoint`.
            max_messages: the size of the ring, at least 1.
            max_bytes: the bound of the sizes of the messages in the ring; one message always fits.
            strict: raise `OpenTransaction` and `PartialCommit` where Gazette's rule discards
                messages in silence, and discard an old commit instead of resetting to it.

        Raises:
            InvalidRequest: a bound is below 1.
        """
        check_whole_number(max_messages, "max_messages", 1, INT64_MAX)
        check_whole_number(max_bytes, "max_bytes", 1, INT64_MAX)
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._strict = strict
        self._ring: deque[_Entry[T]] = deque()
        self._ring_bytes = 0
        self._journals: dict[str, _Journal[T]] = {}
        self._pending: set[_Span[T]] = set()
        self._run: _Run[T] | None = None
        for name, offset in (offsets or {}).items():
            self._journal(name).offset = offset
        for state in states:
            span = _Span[T](state.last_ack, state.begin)
            self._journal(state.journal).spans[state.producer] = span

    @property
    def has_pending(self) -> bool:
        """True if a transaction began since the last checkpoint and is still open."""
        return bool(self._pending)

    @property
    def is_stepping(self) -> bool:
        """True while committed messages are still to be stepped through."""
        return self._run is not None

    @property
    def must_replay(self) -> bool:
        """True while `replay_range` is to be read again."""
        return self._run is not None and self._run.replaying

    @property
    def offsets(self) -> dict[str, int]:
        """For each journal the offset to read from next.

        The message that commits a transaction counts as read once the transaction was stepped
        through whole, so that a reader which resumes sees it again.
        """
        return {name: it.offset for name, it in self._journals.items() if it.offset != NO_OFFSET}

    def queue(
        self, journal: str, uuid: bytes, begin: int, end: int, message: T, size: int = 0
    ) -> Outcome:
        """Take the next message of a journal and return what it does.

        Args:
            journal: its journal; the order of the log matters in each journal only.
            uuid: 16 bytes; with clock 0, as in the nil UUID, the message is always committed.
            begin: its offset.
            end: the offset behind it; the next message may begin later, never earlier.
            message: what `step` returns.
            size: what it counts towards `max_bytes`.

        Raises:
            OpenTransaction: only if strict, for a message of no transaction while its producer
                has one open.
            PartialCommit: only if strict, for a commit of a part of the open transaction.
            InvalidRequest: the UUID has not 16 bytes, or committed messages are still to be
                stepped through. Nothing was changed.
        """
        if self._run is not None:
            raise InvalidRequest(
                "step through all committed messages before the next one is queued"
            )
        producer, clock, flags = parse_uuid(uuid)
        place = self._journals.get(journal) or self._journal(journal)
        span = place.spans.get(producer) if clock else None
        if span is None:
            span = place.add(producer, clock)
        if len(self._ring) >= self._max_messages or self._ring_bytes + size > self._max_bytes:
            self._make_room(size)
        outcome = self._outcome(span, clock, flags)
        if outcome is Outcome.CONTINUE_EXTEND_SPAN or outcome is Outcome.CONTINUE_BEGIN_SPAN:
            if outcome is Outcome.CONTINUE_BEGIN_SPAN:
                span.begin = begin
                self._pending.add(span)
            place.offset = end
        elif outcome in COMMITS:
            if outcome is Outcome.OUTSIDE_COMMIT:
                self._discard(span)
            if not span.entries and outcome is not Outcome.ACK_COMMIT_REPLAY:
                span.begin = begin
            self._run = _Run(place, span, replaying=outcome is Outcome.ACK_COMMIT_REPLAY)
        else:
            if outcome is Outcome.ACK_ROLLBACK or outcome is Outcome.ACK_RESET:
                self._reset(span, clock)
            place.offset = end
            return outcome
        span.high = clock
        entry = _Entry(span, clock, begin, end, message, size)
        self._ring.append(entry)
        span.entries.append(entry)
        self._ring_bytes += size
        return outcome

    def step(self) -> Committed[T] | None:
        """Return the next committed message, or None after the last one.

        Raises:
            InvalidRequest: the transaction must be read again first, see `replay_range`.
        """
        run = self._run
        if run is None:
            return None
        if run.replaying:
            raise InvalidRequest(
                "read replay_range() again, pass its messages to replay(), then end_replay()"
            )
        span = run.span
        while span.entries:
            entry = span.entries.popleft()
            run.end = entry.end
            message = entry.message
            self._release(entry)
            if run.delivers(entry.clock):
                run.clock = entry.clock
                span.begin = entry.begin
                return Committed(run.journal.name, entry.begin, entry.end, message)
        run.delivers(0)
        run.journal.offset = run.end
        self._reset(span, span.low)
        self._run = None
        return None

    def replay_range(self) -> ReplayRange:
        """Return the offsets to read again after ACK_COMMIT_REPLAY.

        Raises:
            InvalidRequest: nothing is to be read again.
        """
        run = self._replayed_run()
        return ReplayRange(run.journal.name, run.span.begin, run.span.entries[0].begin)

    def replay(
        self, journal: str, uuid: bytes, begin: int, end: int, message: T
    ) -> Committed[T] | None:
        """Take a message of the replay range; return it if it is committed, else None.

        Raises:
            ReplayMismatch: it is not of this range.
            InvalidRequest: nothing is to be read again.
        """
        run = self._replayed_run()
        expected = self.replay_range()
        if journal != expected.journal:
            raise ReplayMismatch(
                f"a message of {journal} was read again, expected {expected.journal}"
            )
        if begin < expected.begin:
            raise ReplayMismatch(
                f"a message at offset {begin} was read again, expected {expected.begin} or later"
            )
        if end > expected.end:
            raise ReplayMismatch(
                f"a message up to offset {end} was read again, expected {expected.end} or less"
            )
        producer, clock, _ = parse_uuid(uuid)
        if not clock or run.journal.spans.get(producer) is not run.span or not run.delivers(clock):
            return None
        run.clock = clock
        run.span.begin = begin
        return Committed(journal, begin, end, message)

    def end_replay(self) -> None:
        """Go on with the messages in memory: the replay range has been read.

        Raises:
            InvalidRequest: nothing is to be read again.
        """
        self._replayed_run().replaying = False

    def checkpoint(self, horizon: float = 0) -> tuple[dict[str, int], list[ProducerState]]:
        """Return the offsets and producer states to resume from, at any moment.

        A sequencer made from them goes on at the message that was stepped to last. Nothing is
        pending afterwards, see `has_pending`.

        Args:
            horizon: forget producers whose newest message is older than the newest commit of
                their journal by more than these seconds; 0 forgets none. The commit of an open
                transaction that is forgotten shows nothing, and old duplicates are delivered.
        """
        units = round(horizon * 10_000_000) << 4
        states = []
        for place in self._journals.values():
            spans = place.spans
            if horizon > 0 and spans:
                oldest = max(span.low for span in spans.values()) - units
                running = self._run and self._run.span
                for producer in [
                    it for it, span in spans.items() if span.high < oldest and span is not running
                ]:
                    self._discard(spans.pop(producer))
            states += [
                ProducerState(place.name, producer, span.low, span.begin)
                for producer, span in spans.items()
            ]
        self._pending.clear()
        return self.offsets, states

    def _outcome(self, span: _Span[T], clock: int, flags: int) -> Outcome:
        """Return what a message does to the transaction of its producer."""
        if flags == _CONTINUE and clock:
            if clock > span.high:
                if span.begin == NO_OFFSET:
                    return Outcome.CONTINUE_BEGIN_SPAN
                return Outcome.CONTINUE_EXTEND_SPAN
            if clock > span.low:
                return Outcome.CONTINUE_CLOCK_LARGER
            return Outcome.CONTINUE_ALREADY_ACKED
        if flags == Flags.ACK and clock:
            return self._ack_outcome(span, clock)
        if clock <= span.low:
            return Outcome.OUTSIDE_ALREADY_ACKED
        if self._strict and span.begin != NO_OFFSET:
            raise OpenTransaction(
                f"a message with clock {clock} came outside of the open transaction"
            )
        return Outcome.OUTSIDE_COMMIT

    def _ack_outcome(self, span: _Span[T], clock: int) -> Outcome:
        idle = span.begin == NO_OFFSET
        if clock == span.low:
            return Outcome.ACK_ROLLBACK
        if clock < span.low:
            return Outcome.ACK_DUPLICATE if self._strict and idle else Outcome.ACK_RESET
        if idle:
            return Outcome.ACK_EMPTY
        if self._strict and clock < span.high:
            raise PartialCommit(
                f"clock {clock} was committed, and the open transaction goes on to {span.high}"
            )
        return Outcome.ACK_COMMIT_RING if span.in_memory() else Outcome.ACK_COMMIT_REPLAY

    def _journal(self, name: str) -> _Journal[T]:
        return self._journals.setdefault(name, _Journal(name))

    def _replayed_run(self) -> _Run[T]:
        if self._run is None or not self._run.replaying:
            raise InvalidRequest("no transaction is to be read again")
        return self._run

    def _reset(self, span: _Span[T], clock: int) -> None:
        self._discard(span)
        span.low = span.high = clock
        span.begin = NO_OFFSET

    def _discard(self, span: _Span[T]) -> None:
        """Release what is in memory of an open transaction."""
        for entry in span.entries:
            self._release(entry)
        span.entries.clear()
        self._pending.discard(span)

    def _make_room(self, size: int) -> None:
        ring = self._ring
        while ring and (
            len(ring) >= self._max_messages or self._ring_bytes + size > self._max_bytes
        ):
            entry = ring.popleft()
            if entry.span is not None:
                entry.span.entries.popleft()
                self._release(entry)

    def _release(self, entry: _Entry[Any]) -> None:
        """Give up a message, so that its slot in the ring holds no memory of the user's."""
        self._ring_bytes -= entry.size
        entry.span = entry.message = None
