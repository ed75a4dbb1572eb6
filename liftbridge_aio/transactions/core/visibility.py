"""Decide which messages of a partition a committed reading shows, and where in it. Pure.

A transaction belongs to the position of its ack. An ack names its producer, its clock, where the
transaction began in the log, and the clock committed before. So what it shows is a function of the
log from there up to it: `Replay` queues the producer's messages and acks of that range through the
table of `sequencer`, and shows what commits at that ack. Readers of a range do only that.

`Follower` has most transactions in memory when their ack comes. It asks for a replay of all
others, and shows the same.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from .sequencer import NO_OFFSET, Outcome, ProducerState, Sequencer
from .uuid import (
    PRODUCER_BYTES,
    UUID_BYTES,
    Flags,
    all_continue,
    all_rise,
    build_uuid,
    continues,
    is_outside,
    parse_clocks,
    parse_uuid,
)

T = TypeVar("T")

_JOURNAL: Final = ""
_EVERYTHING: Final = 2**62
"""Messages and bytes that a replay keeps: its caller bounds what it reads."""


class AckEntry(NamedTuple):
    """The entry of an ack for one producer."""

    producer: bytes
    clock: int
    """Its messages up to this clock are committed; those after it are rolled back."""

    begin: int
    """Offset of the first message of the transaction in this partition, -1 if it has none."""

    previous: int
    """The clock that was committed before; before the first commit that before its messages."""

    final: bool = False
    """The transaction is over for good: what comes after this is no part of it."""


class Event(NamedTuple, Generic[T]):
    """A message of the log, as far as visibility is concerned."""

    offset: int
    message: T
    uuid: bytes | None = None
    """Of a message of a producer; None, or other than 16 bytes, for a plain one."""

    acks: tuple[AckEntry, ...] = ()
    """The content of an ack; nothing else is an ack."""


class Row(NamedTuple, Generic[T]):
    """A message that is shown. Rows come in the order of the first three fields."""

    position: int
    """Offset of the ack, or of the message itself if it needs none; never steps back."""

    place: int
    """Place in the ack, 0 without one."""

    offset: int
    message: T


class Replay(Generic[T]):
    """The messages that one entry of an ack shows: from its `begin` to before the ack."""

    def __init__(self, entry: AckEntry, position: int, place: int) -> None:
        """Begin where nothing is known but what the entry says.

        Args:
            entry: of the ack.
            position: offset of the ack.
            place: place of the entry in the ack.
        """
        self.entry = entry
        self.position = position
        self.place = place
        self._over = False
        self._sequencer: Sequencer[Event[T]] = Sequencer(
            states=[ProducerState(_JOURNAL, entry.producer, entry.previous, NO_OFFSET)],
            max_messages=_EVERYTHING,
            max_bytes=_EVERYTHING,
        )

    def feed(self, event: Event[T]) -> None:
        """Take the next message of the range."""
        producer = self.entry.producer
        for ack in event.acks:
            if ack.producer == producer and not self._over:
                self._queue(event, build_uuid(producer, ack.clock, Flags.ACK))
                self._over = ack.final
        uuid = event.uuid
        if uuid and not event.acks and uuid[-len(producer) :] == producer and not self._over:
            if is_outside(uuid):  # also with the flags of an ack, which stands elsewhere
                uuid = build_uuid(producer, parse_uuid(uuid)[1], Flags.OUTSIDE)
            self._queue(event, uuid)

    def rows(self) -> list[Row[T]]:
        """Return what the entry shows, when the range has been fed."""
        if self.entry.clock <= self.entry.previous:
            return []
        uuid = build_uuid(self.entry.producer, self.entry.clock, Flags.ACK)
        ack: Event[Any] = Event(self.position, None)
        return [
            Row(self.position, self.place, event.offset, event.message)
            for event in self._queue(ack, uuid)
            if event is not ack
        ]

    def _queue(self, event: Event[T], uuid: bytes) -> list[Event[T]]:
        sequencer, offset = self._sequencer, event.offset
        if len(uuid) != UUID_BYTES:
            return []
        outcome = sequencer.queue(_JOURNAL, uuid, offset, offset + 1, event)
        committed = []
        while (found := sequencer.step()) is not None:
            committed.append(found.message)
        return committed if outcome is Outcome.ACK_COMMIT_RING else []


class Shown(NamedTuple, Generic[T]):
    """Messages that are shown, and their offsets."""

    offsets: Sequence[int]
    messages: Sequence[T]


class _Span(Generic[T]):
    """An open transaction: its messages, repeats too, from its begin on."""

    __slots__ = ("begin", "messages", "offsets", "uuids")

    def __init__(self, uuids: list[bytes], offsets: list[int], messages: list[T]) -> None:
        self.begin = offsets[0]
        self.uuids = uuids
        self.offsets = offsets
        self.messages = messages

    def up_to(self, clock: int, previous: int) -> Shown[T]:
        """Return the messages up to a clock, without those of the commit before and repeats."""
        uuids = self.uuids
        if (
            all_rise(uuids)  # most often
            and previous < parse_uuid(uuids[0])[1]
            and parse_uuid(uuids[-1])[1] <= clock
        ):
            return Shown(self.offsets, self.messages)
        clocks = parse_clocks(uuids)
        offsets, messages, high = [], [], previous
        for each, offset, message in zip(clocks, self.offsets, self.messages, strict=True):
            if high < each <= clock:
                high = each
                offsets.append(offset)
                messages.append(message)
        return Shown(offsets, messages)


class Follower(Generic[T]):
    """Follows a partition, from any offset on.

    Open transactions are kept in memory up to a bound; of those that do not fit, the oldest are
    given up, and read again when their ack comes.
    """

    def __init__(
        self,
        *,
        max_messages: int = 8192,
        max_bytes: int = 64 << 20,
        max_producers: int = 10_000,
        outside: Iterable[tuple[bytes, int]] = (),
        size_of: Callable[[T], int] | None = None,
    ) -> None:
        """Know nothing, or what `state` returned.

        Args:
            max_messages: most messages of open transactions that are kept.
            max_bytes: most bytes of them; one message always fits.
            max_producers: most producers whose committed single messages are deduplicated.
            outside: from `state`.
            size_of: returns the bytes of a message; None counts none.
        """
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._max_producers = max_producers
        self._spans: dict[bytes, _Span[T]] = {}
        self._outside: OrderedDict[bytes, int] = OrderedDict(deque(outside, max_producers))
        self._size_of: Callable[[T], int] = size_of or _nothing
        self._messages = self._bytes = 0

    @property
    def outside(self) -> list[tuple[bytes, int]]:
        """Producers of committed single messages and the newest clocks of these, oldest first."""
        return list(self._outside.items())

    @property
    def open_spans(self) -> dict[bytes, int]:
        """The beginnings of the open transactions that are in memory, by producer."""
        return {producer: span.begin for producer, span in self._spans.items()}

    def feed(self, event: Event[T]) -> Iterator[Row[T] | Replay[T]]:
        """Take the next message of the log; yield what it shows.

        Where a `Replay` is yielded, feed it the messages from its entry's begin to before its
        position: its rows are what is shown there.
        """
        for place, entry in enumerate(event.acks):
            found = self.commit(entry, event.offset, place)
            if isinstance(found, Replay):
                yield found
            else:
                for offset, message in zip(*found, strict=True):
                    yield Row(event.offset, place, offset, message)
        if event.acks:
            return
        uuid = event.uuid
        if (
            uuid is None
            or len(uuid) != UUID_BYTES
            or self.feed_run((uuid,), (event.offset,), (event.message,))
        ):
            yield Row(event.offset, 0, event.offset, event.message)

    def feed_run(
        self,
        uuids: Sequence[bytes],
        offsets: Sequence[int],
        messages: Sequence[T],
    ) -> Shown[T] | None:
        """Take the next messages of the log, all with UUIDs of 16 bytes; return what they show.

        Those of a transaction are kept as they are: their clocks are compared when its ack comes.
        """
        spans, size_of = self._spans, self._size_of
        shown: list[int] = []
        if all_continue(uuids):  # most often
            producers = [uuid[-PRODUCER_BYTES:] for uuid in uuids]
            producer = producers[0]
            if producers.count(producer) == len(producers):
                span = spans.get(producer)
                if span is None:
                    spans[producer] = _Span([*uuids], [*offsets], [*messages])
                else:
                    span.uuids += uuids
                    span.offsets += offsets
                    span.messages += messages
            else:
                for producer, uuid, offset, message in zip(
                    producers, uuids, offsets, messages, strict=True
                ):
                    self._keep(producer, uuid, offset, message)
            self._messages += len(uuids)
            self._bytes += sum(map(size_of, messages))
        else:
            for number, uuid, offset, message in zip(
                range(len(uuids)), uuids, offsets, messages, strict=True
            ):
                producer = uuid[-PRODUCER_BYTES:]
                if continues(uuid):
                    self._keep(producer, uuid, offset, message)
                    self._messages += 1
                    self._bytes += size_of(message)
                elif not (clock := parse_uuid(uuid)[1]) or self._is_new(producer, clock):
                    shown.append(number)  # without a clock it takes no part
        self._keep_bounds()
        if not shown:
            return None
        if len(shown) == len(uuids):
            return Shown(offsets, messages)
        return Shown([offsets[each] for each in shown], [messages[each] for each in shown])

    def _keep(self, producer: bytes, uuid: bytes, offset: int, message: T) -> None:
        span = self._spans.get(producer)
        if span is None:
            self._spans[producer] = _Span([uuid], [offset], [message])
        else:
            span.uuids.append(uuid)
            span.offsets.append(offset)
            span.messages.append(message)

    def _keep_bounds(self) -> None:
        """Give up the oldest transactions if there is too much in memory."""
        while self._messages > self._max_messages or self._bytes > self._max_bytes:
            if self._messages == 1:
                break
            self._drop(next(iter(self._spans)))

    def _is_new(self, producer: bytes, clock: int) -> bool:
        """Return False for the repeat of a committed single message."""
        self._drop(producer)  # what the table makes of the transaction, a replay tells
        outside = self._outside
        if clock <= outside.get(producer, -1):
            return False
        outside[producer] = clock
        outside.move_to_end(producer)
        if len(outside) > self._max_producers:
            outside.popitem(last=False)
        return True

    def commit(self, entry: AckEntry, position: int, place: int) -> Shown[T] | Replay[T]:
        """Take an entry of an ack at that offset; return what it shows."""
        producer, clock, begin, previous, _ = entry
        span = self._drop(producer)
        if begin == NO_OFFSET or begin >= position or clock <= previous:
            return Shown((), ())
        if span is None or span.begin != begin:
            return Replay(entry, position, place)
        return span.up_to(clock, previous)

    def _drop(self, producer: bytes) -> _Span[T] | None:
        span = self._spans.pop(producer, None)
        if span is not None:
            self._messages -= len(span.messages)
            self._bytes -= sum(map(self._size_of, span.messages))
        return span


def _nothing(_: object) -> int:
    return 0
