"""Committed reading: its options, and what it shows of a partition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal, TypeAlias

from liftbridge_aio._core.arguments import INT64_MAX, check_flags, check_type, check_whole_number
from liftbridge_aio._subscribe.core.visibility import MakeVisibility, Shown
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.model import UUID_HEADER, Isolation, Message

from .core.uuid import PRODUCER_BYTES, is_outside
from .core.visibility import AckEntry, Event, Follower, Replay, Row
from .errors import TransactionTruncated
from .log_format import event_of

OnTruncated: TypeAlias = Literal["error", "emit", "skip"]

LOOK_BACK: Final = 1000
"""Offsets in which repeats of single messages are recognised: more than are in flight at a time."""


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
    look_back: int = LOOK_BACK
    """Offsets before a start at an offset, such as that of a cursor or of a group, that are read
    first: a single message that stands there and is repeated behind the start is not shown
    again."""

    def __post_init__(self) -> None:
        if self.on_truncated not in {"error", "emit", "skip"}:
            text = f"on_truncated is 'error', 'emit' or 'skip', not {self.on_truncated!r}"
            raise InvalidRequest(text)
        check_flags(acks=self.acks)
        for name in ("max_messages", "max_bytes", "max_producers"):
            check_whole_number(getattr(self, name), name, 1, INT64_MAX)
        check_whole_number(self.look_back, "look_back", 0, INT64_MAX)


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

    mark = b"txn-"

    def __init__(self, options: ReadCommitted) -> None:
        """Know nothing of the partition."""
        self.look_back = options.look_back
        self._options = options
        self._follower: Follower[Message] = Follower(
            max_messages=options.max_messages,
            max_bytes=options.max_bytes,
            max_producers=options.max_producers,
        )

    def remember(self, message: Message) -> None:
        """Take a message before the start, of which only committed single ones count."""
        uuid = message.transaction_headers.get(UUID_HEADER)
        if uuid is not None and is_outside(uuid):
            for _ in self._follower.feed(Event(message.offset, message, uuid)):
                pass

    def feed(self, message: Message, size: int) -> Iterator[Shown | PartReplay]:
        """Take the next message; yield what it shows.

        Raises:
            NewerFormat: it is an ack of a later version of the format.
            MalformedAck: it is a malformed ack.
        """
        event = event_of(message.offset, message.transaction_headers, message.value, message)
        if not event.acks:
            for found in self._follower.feed(event, size):
                if not isinstance(found, Replay):
                    yield found.position, found.message
            return
        steps = list(self._follower.feed(event, size))
        rows = [step for step in steps if not isinstance(step, Replay)]
        if len(rows) < len(steps):
            yield PartReplay(steps, message.offset, self._options.on_truncated)
        else:
            for row in rows:
                yield row.position, row.message
        if self._options.acks:
            yield message.offset, message


class PartReplay:
    """The part of the log that is read again for an ack: the union of its entries' spans."""

    def __init__(
        self,
        steps: list[Row[Message] | Replay[Message]],
        end: int,
        on_truncated: OnTruncated,
    ) -> None:
        """Begin to read it.

        Args:
            steps: what the ack shows, in order: what is known, and replays of the rest.
            end: the offset of the ack.
            on_truncated: see `ReadCommitted`.
        """
        self.end = end
        self._steps = steps
        self._on_truncated = on_truncated
        self._replays: dict[bytes, list[Replay[Message]]] = {}
        for step in steps:
            if isinstance(step, Replay):
                self._replays.setdefault(step.entry.producer, []).append(step)
        replays = chain.from_iterable(self._replays.values())
        self._missing = {replay.entry.begin for replay in replays}
        """Offsets of first messages that have not come yet."""
        self.begin = min(self._missing)

    def feed(self, message: Message) -> None:
        """Take the next message."""
        offset, headers = message.offset, message.transaction_headers
        self._missing.discard(offset)
        if not headers:
            return
        event = event_of(offset, headers, message.value, message)
        if event.acks:
            producers = {ack.producer for ack in event.acks}
        else:
            producers = {(event.uuid or b"")[-PRODUCER_BYTES:]}
        for producer in producers:
            for replay in self._replays.get(producer, ()):
                if replay.entry.begin <= offset:
                    replay.feed(event)

    def shown(self) -> list[Shown]:
        """Return what the ack shows.

        Raises:
            TransactionTruncated: a transaction began before the first message that is left.
        """
        rows: list[Row[Message]] = []
        for step in self._steps:
            if not isinstance(step, Replay):
                rows.append(step)
            elif step.entry.begin not in self._missing or self._on_truncated == "emit":
                rows += step.rows()
            elif self._on_truncated == "error":
                raise truncated(step.entry, self.end)
        return [(row.position, row.message) for row in rows]


def truncated(entry: AckEntry, offset: int) -> TransactionTruncated:
    """Return the error of a transaction whose beginning is gone."""
    text = (
        f"the transaction that producer {entry.producer.hex()} committed at offset {offset} began"
        f" at offset {entry.begin}, which is no longer in the log"
    )
    return TransactionTruncated(text)
