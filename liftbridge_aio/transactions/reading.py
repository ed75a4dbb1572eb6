"""Committed reading: its options, and what it shows of a partition."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from typing import Final, Literal, TypeAlias, cast

from liftbridge_aio._core.arguments import INT64_MAX, check_flags, check_type, check_whole_number
from liftbridge_aio._subscribe.core.visibility import MakeVisibility
from liftbridge_aio._subscribe.core.visibility import Shown as ShownAtPositions
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.model import UUID_HEADER, Message
from liftbridge_aio.wire.codec import decode_message
from liftbridge_aio.wire.columns import ACK_MARK, Mark
from liftbridge_aio.wire.raw_message import RawMessage

from .core.uuid import PRODUCER_BYTES, UUID_BYTES, is_outside, parse_uuid
from .core.visibility import AckEntry, Follower, Replay, Shown
from .errors import CompactedStream, MalformedAck, TransactionTruncated
from .log_format import event_of

logger = logging.getLogger("liftbridge_aio.transactions")

OnTruncated: TypeAlias = Literal["error", "emit", "skip"]
OnMalformed: TypeAlias = Literal["error", "skip"]

LOOK_BACK: Final = 1000
"""Offsets in which repeats of single messages are recognised: more than are in flight at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCommitted:
    """Reads what is committed, as `committed=True`, with other bounds than the usual.

    Raises:
        InvalidRequest: a bound makes no sense.
    """

    on_truncated: OnTruncated = "error"
    """The reaction where retention has removed the beginning of a committed transaction: raise
    `TransactionTruncated`, show the rest of it ("emit"), or show nothing of it ("skip")."""
    on_malformed: OnMalformed = "error"
    """The reaction to a message that says that it is an ack of transactions, and cannot be read as
    one: raise `MalformedAck`, which ends the reading there, or log a warning and show nothing
    ("skip"). An ack of a later version of the format is always an error."""
    acks: bool = False
    """Show acks as well, behind what they commit: messages with empty keys, whose values are
    encoded `AckEntry` each."""
    max_messages: int = 8192
    """Most messages of open transactions kept in memory, of each partition. Those of other
    transactions are read again when their ack comes."""
    max_bytes: int = 64 << 20
    """Most bytes of these messages; one message always fits."""
    max_producers: int = 10_000
    """Most producers whose committed single messages are recognised when they are repeated."""
    look_back: int = LOOK_BACK
    """Offsets before a start at an offset, such as that of a cursor or of a group, that are read
    first: a single message that stands there and is repeated behind the start is not shown
    again."""

    def __post_init__(self) -> None:
        if self.on_truncated not in {"error", "emit", "skip"}:
            raise InvalidRequest(
                f"on_truncated is 'error', 'emit' or 'skip', not {self.on_truncated!r}"
            )
        check_on_malformed(self.on_malformed)
        check_flags(acks=self.acks)
        for name in ("max_messages", "max_bytes", "max_producers"):
            check_whole_number(getattr(self, name), name, 1, INT64_MAX)
        check_whole_number(self.look_back, "look_back", 0, INT64_MAX)


def check_on_malformed(on_malformed: OnMalformed) -> None:
    """Refuse another policy than `ReadCommitted.on_malformed` has.

    Raises:
        InvalidRequest: it is another one.
    """
    if on_malformed not in {"error", "skip"}:
        raise InvalidRequest(f"on_malformed is 'error' or 'skip', not {on_malformed!r}")


_USUAL = ReadCommitted()


def make_visibility(committed: bool | ReadCommitted) -> MakeVisibility | None:
    """Return what makes the visibility of a partition; None if all of it is shown.

    Raises:
        WrongType: it is neither a flag nor a ReadCommitted.
    """
    text = "committed must be True or False, or a ReadCommitted"
    check_type(committed, (bool, ReadCommitted), text)
    if committed is False:
        return None
    options = committed if isinstance(committed, ReadCommitted) else _USUAL
    return lambda: CommittedVisibility(options)


class CommittedVisibility:
    """Shows what is committed of one partition; see `Follower`."""

    def __init__(self, options: ReadCommitted) -> None:
        """Know nothing of the partition."""
        self.look_back = options.look_back
        self._options = options
        self._follower = self._new_follower()
        self._resumed = -1, 0
        """A position, and how many messages of it were delivered before."""

    def _new_follower(self, outside: Iterable[tuple[bytes, int]] = ()) -> Follower[bytes]:
        options = self._options
        return Follower(
            max_messages=options.max_messages,
            max_bytes=options.max_bytes,
            max_producers=options.max_producers,
            outside=outside,
            size_of=len,
        )

    def before(self, undelivered: Iterable[Message]) -> tuple[tuple[bytes, int], ...]:
        """Return what was known of producers before these messages, the last that were shown."""
        producers = dict(self._follower.outside)
        for message in reversed(list(undelivered)):
            uuid = message.transaction_headers.get(UUID_HEADER)
            if uuid is not None and is_outside(uuid):
                producer, clock, _ = parse_uuid(uuid)
                if producer in producers:
                    # It was new, so what was before has a lower clock; which one does not matter.
                    producers[producer] = clock - 1
        return tuple(producers.items())

    def resume(self, producers: Iterable[tuple[bytes, int]], position: int, delivered: int) -> None:
        """Go on where another one stood, before the first message."""
        self._follower = self._new_follower(producers)
        self._resumed = position, delivered

    def remember(self, message: RawMessage) -> None:
        """Take a message before the start, of which only committed single ones count."""
        uuid = message.decode().transaction_headers.get(UUID_HEADER)
        if uuid is not None and is_outside(uuid):
            self._follower.feed_run([uuid], [message.offset], [message.data])

    def feed(
        self, offsets: Sequence[int], data: Sequence[bytes], marks: Sequence[Mark]
    ) -> Iterator[ShownAtPositions | PartReplay]:
        """Take the next messages; yield what they show.

        Raises:
            NewerFormat: one is an ack of a later version of the format.
            MalformedAck: one is a malformed ack.
        """
        start, count = 0, len(offsets)
        if self._options.on_truncated == "error":
            _refuse_gaps(offsets)
        while start < count:
            try:
                end = marks.index(ACK_MARK, start)
            except ValueError:
                end = count
            if start < end:
                part = slice(start, end)
                yield from self._between_acks(offsets[part], data[part], marks[part])
            if end < count:
                yield from self._ack(offsets[end], data[end])
            start = end + 1

    def _between_acks(
        self, offsets: Sequence[int], data: Sequence[bytes], marks: Sequence[Mark]
    ) -> Iterator[ShownAtPositions]:
        lengths = [0 if mark is None else len(mark) for mark in marks]
        count = len(marks)
        runs: Iterable[tuple[bool, int]] = [(True, count)]
        if lengths.count(UUID_BYTES) != count:
            groups = groupby(lengths, UUID_BYTES.__eq__)
            runs = ((has_uuid, len(list(group))) for has_uuid, group in groups)
        start = 0
        for has_uuid, length in runs:
            part = slice(start, start := start + length)
            if not has_uuid:
                yield offsets[part], data[part]
                continue
            uuids = cast("Sequence[bytes]", marks[part])
            shown = self._follower.feed_run(uuids, offsets[part], data[part])
            if shown:
                yield shown

    def _ack(self, offset: int, data: bytes) -> Iterator[ShownAtPositions | PartReplay]:
        """Take a message that has the mark of an ack, though it may be none."""
        message = decode_message(data)
        try:
            event = event_of(offset, message.transaction_headers, message.value, data)
        except MalformedAck as error:
            if self._options.on_malformed == "error":
                raise
            logger.warning(
                "skipped a message of %s/%d: %s", message.stream, message.partition, error.message
            )
            return
        if not event.acks:
            yield [offset], [data]
            return
        steps = [
            self._follower.commit(entry, offset, place) for place, entry in enumerate(event.acks)
        ]
        position, delivered = self._resumed
        skipped = delivered if offset == position else 0
        if any(isinstance(step, Replay) for step in steps):
            yield PartReplay(steps, offset, self._options.on_truncated, skipped)
        else:
            known = cast("list[Shown[bytes]]", steps)
            shown = list(chain.from_iterable(each.messages for each in known))[skipped:]
            yield [offset] * len(shown), shown
        if self._options.acks:
            yield [offset], [data]


class PartReplay:
    """The part of the log that is read again for an ack: the union of its entries' spans."""

    def __init__(
        self,
        steps: Sequence[Shown[bytes] | Replay[bytes]],
        end: int,
        on_truncated: OnTruncated,
        skipped: int,
    ) -> None:
        """Begin to read it.

        Args:
            steps: what the ack shows, in order: what is known, and replays of the rest.
            end: the offset of the ack.
            on_truncated: see `ReadCommitted`.
            skipped: how many messages are not shown, as they were delivered before.
        """
        self._skipped = skipped
        self.end = end
        self._steps = steps
        self._on_truncated = on_truncated
        self._replays: dict[bytes, list[Replay[bytes]]] = {}
        for step in steps:
            if isinstance(step, Replay):
                self._replays.setdefault(step.entry.producer, []).append(step)
        replays = chain.from_iterable(self._replays.values())
        self._missing = {replay.entry.begin for replay in replays}
        """Offsets of first messages that have not come yet."""
        self.begin = min(self._missing)

    def feed(self, message: RawMessage) -> None:
        """Take the next message."""
        decoded = message.decode()
        offset, headers = message.offset, decoded.transaction_headers
        self._missing.discard(offset)
        if not headers:
            return
        try:
            event = event_of(offset, headers, decoded.value, message.data)
        except MalformedAck:
            return  # it was met, and skipped, before the ack at the end of the span
        if event.acks:
            producers = {ack.producer for ack in event.acks}
        else:
            producers = {(event.uuid or b"")[-PRODUCER_BYTES:]}
        for producer in producers:
            for replay in self._replays.get(producer, ()):
                if replay.entry.begin <= offset:
                    replay.feed(event)

    def shown(self) -> ShownAtPositions:
        """Return what the ack shows.

        Raises:
            TransactionTruncated: a transaction began before the first message that is left.
        """
        shown: list[bytes] = []
        for step in self._steps:
            if not isinstance(step, Replay):
                shown += step.messages
            elif step.entry.begin not in self._missing or self._on_truncated == "emit":
                shown += [row.message for row in step.rows()]
            elif self._on_truncated == "error":
                raise truncated(step.entry, self.end)
        # What was delivered before cannot be told from the rest if some of it is gone.
        shown = shown[0 if self._missing else self._skipped :]
        return [self.end] * len(shown), shown


def _refuse_gaps(offsets: Sequence[int]) -> None:
    """Raise an error if offsets are missing between messages that followed one another."""
    first, last = offsets[0], offsets[-1]
    if last - first < len(offsets):
        return
    for before, after in pairwise(offsets):
        if after > before + 1:
            raise CompactedStream(
                f"there is no message at offset {before + 1}, so the stream is compacted, or"
                " retention has overtaken this reading",
                offset=first,
            )


def truncated(entry: AckEntry, offset: int) -> TransactionTruncated:
    """Return the error of a transaction whose beginning is gone."""
    text = (
        f"the transaction that producer {entry.producer.hex()} committed at offset {offset} began"
        f" at offset {entry.begin}, which is no longer in the log"
    )
    return TransactionTruncated(text)
