"""The state of a stream, as a fold of its log, and what becomes of appends. Pure.

One append is one message of Liftbridge: its value is the appended bytes, or the appended JSON
values joined by commas, and its headers are the rest. So data, closing and the state of a producer
are stored together or not at all. A message with an empty value only closes.

A snapshot is the state up to an offset, so that what is before it need not be read, and may be
removed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from .parsing import parse_integer
from .producer_table import Decision, ProducerState, Verdict, judge
from .protocol import (
    PRODUCER_EPOCH,
    PRODUCER_EXPECTED_SEQ,
    PRODUCER_RECEIVED_SEQ,
    PRODUCER_SEQ,
    STREAM_CLOSED,
)
from .records import decode_record

_PRODUCER: Final = "ds-producer"
_EPOCH: Final = "ds-epoch"
_SEQ: Final = "ds-seq"
_STREAM_SEQ: Final = "ds-stream-seq"
_CLOSES: Final = "ds-closed"
_WRITERS: Final = frozenset({_PRODUCER, _STREAM_SEQ, _CLOSES})
"""One of these is in each message that changes more than the end."""
_NUMBERS_BYTES: Final = 45
"""Most bytes of a producer in a snapshot, but for its name."""


class ProducerTuple(NamedTuple):
    """The claim of an idempotent producer about an append."""

    producer: str
    epoch: int
    seq: int


class Append(NamedTuple):
    """An append, checked but for what depends on the state of the stream."""

    value: bytes
    """Empty if it only closes."""
    producer: ProducerTuple | None = None
    stream_seq: str | None = None
    closes: bool = False

    def headers(self) -> dict[str, bytes]:
        """Return the headers of its message."""
        headers: dict[str, bytes] = {}
        if self.producer is not None:
            headers[_PRODUCER] = self.producer.producer.encode()
            headers[_EPOCH] = b"%d" % self.producer.epoch
            headers[_SEQ] = b"%d" % self.producer.seq
        if self.stream_seq is not None:
            headers[_STREAM_SEQ] = self.stream_seq.encode()
        if self.closes:
            headers[_CLOSES] = b"1"
        return headers


class Outcome(NamedTuple):
    """The outcome of an append."""

    status: int
    """The HTTP status; one below 300 is a success."""
    stored: bool
    """True if the append is to be stored: with this status once it is."""
    headers: Mapping[str, str] = {}
    text: str = ""
    """The reason of a refusal."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The state of a log, as it is registered."""

    next_offset: int
    tail: int
    closed: bool
    closed_by: ProducerTuple | None
    stream_seq: str | None
    producers: tuple[ProducerTuple, ...]
    """The last number of each: those who appended longest ago come first."""


class StreamLog:
    """The state of a log, as a fold of its messages.

    Args:
        next_offset: Liftbridge's offset of the next message.
    """

    def __init__(self, next_offset: int = 0) -> None:
        self.next_offset = next_offset
        """Liftbridge's offset of the next message."""
        self.tail = next_offset
        """Liftbridge's offset behind the last message with data."""
        self.closed = False
        self._closed_by: ProducerTuple | None = None
        self._stream_seq: str | None = None
        self._producers: dict[str, ProducerState] = {}
        """Those who appended longest ago come first."""
        self.writes = 0
        """Messages taken that change more than the end: of a producer, with a number, closing."""

    def snapshot(self, max_bytes: int) -> bytes:
        """Return the state, with as many producers as fit: those who appended last."""
        producers: list[ProducerTuple] = []
        size = 0
        for producer, known in reversed(self._producers.items()):
            size += len(json.dumps(producer)) + _NUMBERS_BYTES
            if size > max_bytes:
                break
            producers.append(ProducerTuple(producer, *known))
        found = _Snapshot(
            *(self.next_offset, self.tail, self.closed, self._closed_by, self._stream_seq),
            producers=tuple(producers[::-1]),
        )
        return json.dumps(asdict(found), separators=(",", ":")).encode()

    @classmethod
    def from_snapshot(cls, snapshot: bytes) -> StreamLog:
        """Return the state that a snapshot has.

        Raises:
            ValueError: it is none.
        """
        found = decode_record(_Snapshot, snapshot)
        log = cls(found.next_offset)
        log.tail, log.closed = found.tail, found.closed
        log._closed_by, log._stream_seq = found.closed_by, found.stream_seq
        log._producers = {each[0]: ProducerState(*each[1:]) for each in found.producers}
        return log

    def apply(self, offset: int, value: bytes, headers: Mapping[str, bytes]) -> None:
        """Take the next message of the log."""
        self.next_offset = offset + 1
        if value:
            self.tail = offset + 1
        if headers.keys().isdisjoint(_WRITERS):
            return
        self.writes += 1
        if (by := _producer_of(headers)) is not None:
            self._producers.pop(by.producer, None)
            self._producers[by.producer] = ProducerState(by.epoch, by.seq)
        if (stream_seq := headers.get(_STREAM_SEQ)) is not None:
            self._stream_seq = stream_seq.decode(errors="replace")
        if _CLOSES in headers:
            self.closed = True
            self._closed_by = by

    def judge(self, append: Append, *, type_matches: bool = True) -> Outcome:
        """Return what becomes of an append.

        Args:
            append: the append.
            type_matches: False if its content type is not the stream's.
        """
        by = append.producer
        decision = None
        if by is not None:
            decision = judge(self._producers.get(by.producer), by.epoch, by.seq)
            if decision.verdict is Verdict.STALE_EPOCH:
                return _producer_refusal(by, decision)
        if self.closed:
            return self._judge_closed(append)
        if append.value and not type_matches:
            return _refused(409, "the content type is not the stream's")
        if by is not None and decision is not None and decision.verdict is not Verdict.ACCEPTED:
            return _producer_refusal(by, decision)
        if append.stream_seq is not None and not self._follows(append.stream_seq):
            return _refused(409, "Stream-Seq is not above the last one")
        headers = {} if by is None else _echo(by)
        if append.closes:
            headers[STREAM_CLOSED] = "true"
        status = 200 if by is not None and append.value else 204
        return Outcome(status, stored=True, headers=headers)

    def _judge_closed(self, append: Append) -> Outcome:
        by = append.producer
        repeats = append.closes and not append.value if by is None else by == self._closed_by
        if not repeats:
            return _refused(409, "the stream is closed", {STREAM_CLOSED: "true"})
        headers = {} if by is None else _echo(by)
        return Outcome(204, stored=False, headers={**headers, STREAM_CLOSED: "true"})

    def _follows(self, stream_seq: str) -> bool:
        return self._stream_seq is None or stream_seq.encode() > self._stream_seq.encode()


def _producer_of(headers: Mapping[str, bytes]) -> ProducerTuple | None:
    """Return the producer of a message; None without one, and for what no gateway writes."""
    producer = headers.get(_PRODUCER)
    epoch, seq = (
        parse_integer(headers.get(name, b"").decode("latin-1")) for name in (_EPOCH, _SEQ)
    )
    if producer is None or epoch is None or seq is None:
        return None
    return ProducerTuple(producer.decode(errors="replace"), epoch, seq)


def _echo(by: ProducerTuple) -> dict[str, str]:
    return {PRODUCER_EPOCH: str(by.epoch), PRODUCER_SEQ: str(by.seq)}


def _producer_refusal(by: ProducerTuple, decision: Decision) -> Outcome:
    """Return the outcome of an append that is not accepted; a duplicate is a success."""
    known = decision.state or ProducerState(by.epoch, by.seq)
    if decision.verdict is Verdict.DUPLICATE:
        headers = _echo(by) | {PRODUCER_SEQ: str(known.last_seq)}
        return Outcome(204, stored=False, headers=headers)
    if decision.verdict is Verdict.STALE_EPOCH:
        return _refused(403, "the epoch is stale", {PRODUCER_EPOCH: str(known.epoch)})
    if decision.verdict is Verdict.BAD_START:
        return _refused(400, "a new epoch starts with sequence number 0")
    numbers = {
        PRODUCER_EXPECTED_SEQ: str(decision.expected_seq),
        PRODUCER_RECEIVED_SEQ: str(by.seq),
    }
    return _refused(409, "sequence numbers are missing", numbers)


def _refused(status: int, text: str, headers: Mapping[str, str] | None = None) -> Outcome:
    return Outcome(status, stored=False, headers=headers or {}, text=text)
