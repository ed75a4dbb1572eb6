"""Committed reading: its options, and what it shows of a partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, TypeAlias

from liftbridge_aio._core.arguments import INT64_MAX, check_flags, check_type, check_whole_number
from liftbridge_aio._subscribe.core.visibility import MakeVisibility, Shown, ShownRun
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.model import Isolation, Message
from liftbridge_aio.wire.columns import ACK_MARK, Mark

from .core.uuid import UUID_BYTES
from .core.visibility import AckEntry, Follower, Replay
from .errors import TransactionTruncated
from .log_format import event_of

OnTruncated: TypeAlias = Literal["error", "emit", "skip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCommitted:
    """Reads what is committed, as `Isolation.READ_COMMITTED`, with other bounds than the usual.

    Raises:
        InvalidRequest: a bound makes no sense.
    """

    on_truncated: OnTruncated = "error"
    """What to do where retention has removed the beginning of a committed transaction: raise
    `TransactionTruncated`, show the rest of it ("emit"), or show nothing of it ("skip")."""
    acks: bool = False
    """Show acks as well, behind what they commit: messages with empty keys, whose values are
    encoded `AckEntry`s."""
    max_messages: int = 8192
    """Most messages of open transactions kept in memory, of each partition. Those of other
    transactions are read again when their ack comes."""
    max_bytes: int = 64 << 20
    """Most bytes of these messages; one message always fits."""
    max_producers: int = 10_000
    """Most producers whose committed single messages are recognised when they are repeated."""

    def __post_init__(self) -> None:
        if self.on_truncated not in {"error", "emit", "skip"}:
            text = f"on_truncated is 'error', 'emit' or 'skip', not {self.on_truncated!r}"
            raise InvalidRequest(text)
        check_flags(acks=self.acks)
        for name in ("max_messages", "max_bytes", "max_producers"):
            check_whole_number(getattr(self, name), name, 1, INT64_MAX)


_USUAL = ReadCommitted()


def make_visibility(isolation: Isolation | ReadCommitted) -> MakeVisibility | None:
    """Return what makes the visibility of a partition; None if all of it is shown.

    Raises:
        WrongType: it is no isolation.
    """
    text = "isolation is Isolation.UNCOMMITTED, Isolation.READ_COMMITTED or a ReadCommitted"
    check_type(isolation, (Isolation, ReadCommitted), text)
    if isolation is Isolation.UNCOMMITTED:
        return None
    options = isolation if isinstance(isolation, ReadCommitted) else _USUAL
    return lambda: CommittedVisibility(options)


class CommittedVisibility:
    """Shows what is committed of one partition; see `Follower`."""

    def __init__(self, options: ReadCommitted) -> None:
        """Know nothing of the partition."""
        self._options = options
        self._follower: Follower[Message] = Follower(
            max_messages=options.max_messages,
            max_bytes=options.max_bytes,
            max_producers=options.max_producers,
        )

    def feed(
        self, messages: Sequence[Message], marks: Sequence[Mark], sizes: Sequence[int]
    ) -> Iterator[ShownRun | PartReplay]:
        """Take the next messages; yield what they show.

        Raises:
            NewerFormat: one is an ack of a later version of the format.
            MalformedAck: one is a malformed ack.
        """
        start, count = 0, len(messages)
        while start < count:
            try:
                end = marks.index(ACK_MARK, start)
            except ValueError:
                end = count
            if start < end:
                part = slice(start, end)
                yield from self._between_acks(messages[part], marks[part], sizes[part])
            if end < count:
                yield from self._ack(messages[end])
            start = end + 1

    def _between_acks(
        self, messages: Sequence[Message], marks: Sequence[Mark], sizes: Sequence[int]
    ) -> Iterator[ShownRun]:
        lengths = [0 if mark is None else len(mark) for mark in marks]
        offsets = [message.offset for message in messages]
        start = 0
        for has_uuid, group in groupby(lengths, UUID_BYTES.__eq__):
            part = slice(start, start := start + len(list(group)))
            if not has_uuid:
                yield offsets[part], messages[part]
                continue
            shown = self._follower.feed_run(marks[part], offsets[part], messages[part], sizes[part])
            if shown:
                yield shown

    def _ack(self, message: Message) -> Iterator[ShownRun | PartReplay]:
        """Take a message that has the mark of an ack, though it may be none."""
        event = event_of(message.offset, message.transaction_headers, message.value, message)
        if not event.acks:
            yield [message.offset], [message]
            return
        for place, entry in enumerate(event.acks):
            found = self._follower.commit(entry, message.offset, place)
            if isinstance(found, Replay):
                yield PartReplay(found, self._options.on_truncated)
            elif found is not None:
                yield [message.offset] * len(found.messages), found.messages
        if self._options.acks:
            yield [message.offset], [message]


class PartReplay:
    """A part of the log that is read again for one entry of an ack."""

    def __init__(self, replay: Replay[Message], on_truncated: OnTruncated) -> None:
        self._replay = replay
        self._on_truncated = on_truncated
        self._whole = False
        self._fed = False

    @property
    def begin(self) -> int:
        """Where the transaction began."""
        return self._replay.entry.begin

    @property
    def end(self) -> int:
        """The offset of the ack."""
        return self._replay.position

    def feed(self, message: Message) -> None:
        """Take the next message."""
        if not self._fed:
            self._fed, self._whole = True, message.offset == self.begin
        headers = message.transaction_headers
        if headers:
            self._replay.feed(event_of(message.offset, headers, message.value, message))

    def shown(self) -> list[Shown]:
        """Return what the entry shows.

        Raises:
            TransactionTruncated: the transaction began before the first message that is left.
        """
        if not self._whole:
            if self._on_truncated == "error":
                raise truncated(self._replay.entry, self.end)
            if self._on_truncated == "skip":
                return []
        return [(row.position, row.message) for row in self._replay.rows()]


def truncated(entry: AckEntry, offset: int) -> TransactionTruncated:
    """Return the error of a transaction whose beginning is gone."""
    text = (
        f"the transaction that producer {entry.producer.hex()} committed at offset {offset} began"
        f" at offset {entry.begin}, which is no longer in the log"
    )
    return TransactionTruncated(text)
