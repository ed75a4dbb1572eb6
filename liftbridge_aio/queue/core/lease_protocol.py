"""The messages about leases between members of a queue, and their encoding.

    member                         owner of a partition
    Ask(room=0), to all       →
                              ←    Offer, every second, and when new messages follow an empty grant
    Ask(room)                 →
                              ←    Lease, one for each message, then Granted
    Answer                    →
                              ←    Verdict

A frame begins with `MAGIC` and the number of its kind. Its fields follow in order: numbers in eight
bytes; texts, bytes, mappings and lists with their lengths first.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final, NamedTuple, TypeAlias

from liftbridge_aio._core.foreign_text import report_text
from liftbridge_aio.errors import MalformedData
from liftbridge_aio.model import Message

MAGIC: Final = b"lbl1"
"""The first bytes of every frame; another version has another value."""


class AnswerKind(enum.IntEnum):
    """The answer of a member to a lease."""

    ACK = 1
    NACK = 2
    REJECT = 3
    EXTEND = 4
    GIVE_BACK = 5
    """The message was not processed, so the attempt does not count. No verdict follows."""


class Outcome(enum.IntEnum):
    """The outcome of an answer at the owner."""

    TAKEN = 1
    LATE = 2
    """The attempt has ended: the message is redelivered, or was."""
    NOT_STORED = 3
    """The ack counts, but could not be stored yet."""


class Offer(NamedTuple):
    """A member owns partitions, and may have messages to lease."""

    owner: str
    """The mailbox of the owner."""
    places: tuple[tuple[str, int], ...]
    has_more: bool
    """True if there are messages for the receiver, whose last request was not fully granted."""


class Ask(NamedTuple):
    """A member asks for messages, or, with room 0, for offers."""

    mailbox: str
    member: str
    """Its id in the group."""
    room: int
    """The number of messages that it would process at once."""


class Lease(NamedTuple):
    """A message for a member, to be answered within `time_left`."""

    owner: str
    token: int
    """The number of the lease at the owner."""
    stream: str
    partition: int
    offset: int
    attempt: int
    time_left: float
    """Seconds for an answer."""
    ack_wait: float
    """Seconds for an answer once the lease is extended."""
    error: str
    """The error of the attempt before; empty if unknown."""
    is_whole: bool
    """False if the message was too large for NATS: the member reads it from the log."""
    key: bytes
    value: bytes
    timestamp: int
    headers: Mapping[str, bytes]
    subject: str
    reply_subject: str
    transaction_headers: Mapping[str, bytes]

    @property
    def message(self) -> Message:
        """The message."""
        return Message(
            self.stream,
            self.partition,
            self.offset,
            self.key,
            self.value,
            self.timestamp,
            self.headers,
            self.subject,
            self.reply_subject,
            self.transaction_headers,
        )

    def without_message(self) -> Lease:
        """Return the lease with the place of the message only."""
        nothing: dict[str, bytes] = {}
        return self._replace(
            is_whole=False,
            key=b"",
            value=b"",
            headers=nothing,
            subject="",
            reply_subject="",
            transaction_headers=nothing,
        )


class Granted(NamedTuple):
    """The end of the leases for one request."""

    owner: str
    has_more: bool
    """False if the owner has no more messages now; it sends an offer once it has some."""


class Answer(NamedTuple):
    """The answer to a leased message."""

    mailbox: str
    number: int
    """The number of the lease at the member."""
    token: int
    kind: AnswerKind
    delay: float = -1.0
    """Seconds before the next attempt, of a nack; negative: the delay of `retry`."""
    backoff: bool = True
    error: str = ""
    stored: bool = False
    """True if the verdict waits until the ack is stored."""


class Verdict(NamedTuple):
    """The owner's reaction to an answer."""

    number: int
    kind: AnswerKind
    outcome: Outcome
    text: str


Frame: TypeAlias = Offer | Ask | Lease | Granted | Answer | Verdict

_INT: Final = struct.Struct(">q")
_FLOAT: Final = struct.Struct(">d")
_LENGTH: Final = struct.Struct(">I")


class _Reader:
    """Reads fields from bytes; raises ValueError if they end too early."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise ValueError("it ends too early")
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def length(self) -> int:
        (length,) = _LENGTH.unpack(self.take(_LENGTH.size))
        return int(length)

    def bytes_(self) -> bytes:
        return self.take(self.length())

    def text(self) -> str:
        return self.bytes_().decode()

    def int_(self) -> int:
        (number,) = _INT.unpack(self.take(_INT.size))
        return int(number)

    def float_(self) -> float:
        (number,) = _FLOAT.unpack(self.take(_FLOAT.size))
        if not isfinite(number):
            raise ValueError("a number of seconds is not finite")
        return float(number)

    def mapping(self) -> dict[str, bytes]:
        return {self.text(): self.bytes_() for _ in range(self.length())}

    def places(self) -> tuple[tuple[str, int], ...]:
        return tuple((self.text(), self.int_()) for _ in range(self.length()))


def _write_bytes(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _write_text(text: str) -> bytes:
    return _write_bytes(report_text(text).encode())


def _write_mapping(mapping: Mapping[str, bytes]) -> bytes:
    parts = [_LENGTH.pack(len(mapping))]
    for name, value in mapping.items():
        parts += (_write_text(name), _write_bytes(value))
    return b"".join(parts)


def _write_places(places: tuple[tuple[str, int], ...]) -> bytes:
    parts = [_LENGTH.pack(len(places))]
    for stream, partition in places:
        parts += (_write_text(stream), _INT.pack(partition))
    return b"".join(parts)


class _Form(NamedTuple):
    """The encoding of a field: how to write and read it."""

    write: Callable[[Any], bytes]
    read: Callable[[_Reader], Any]


_TEXT: Final = _Form(_write_text, _Reader.text)
_BYTES: Final = _Form(_write_bytes, _Reader.bytes_)
_WHOLE: Final = _Form(_INT.pack, _Reader.int_)
_SECONDS: Final = _Form(_FLOAT.pack, _Reader.float_)
_FLAG: Final = _Form(_INT.pack, lambda reader: bool(reader.int_()))
_ANSWER: Final = _Form(_INT.pack, lambda reader: AnswerKind(reader.int_()))
_OUTCOME: Final = _Form(_INT.pack, lambda reader: Outcome(reader.int_()))
_MAPPING: Final = _Form(_write_mapping, _Reader.mapping)
_PLACES: Final = _Form(_write_places, _Reader.places)

_PLACE: Final = (_TEXT, _WHOLE, _WHOLE)
_MESSAGE: Final = (_BYTES, _BYTES, _WHOLE, _MAPPING, _TEXT, _TEXT, _MAPPING)

_FIELDS: Final[dict[type[Frame], tuple[_Form, ...]]] = {
    Offer: (_TEXT, _PLACES, _FLAG),
    Ask: (_TEXT, _TEXT, _WHOLE),
    Lease: (_TEXT, _WHOLE, *_PLACE, _WHOLE, _SECONDS, _SECONDS, _TEXT, _FLAG, *_MESSAGE),
    Granted: (_TEXT, _FLAG),
    Answer: (_TEXT, _WHOLE, _WHOLE, _ANSWER, _SECONDS, _FLAG, _TEXT, _FLAG),
    Verdict: (_WHOLE, _ANSWER, _OUTCOME, _TEXT),
}
_KINDS: Final = dict(enumerate(_FIELDS, 1))
_NUMBERS: Final = {kind: number for number, kind in _KINDS.items()}


def encode(frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    kind = type(frame)
    parts = [MAGIC, bytes((_NUMBERS[kind],))]
    parts += [form.write(value) for form, value in zip(_FIELDS[kind], frame, strict=True)]
    return b"".join(parts)


def decode(data: bytes) -> Frame:
    """Decode a frame; raise `MalformedData` for anything else, and for another version."""
    start = len(MAGIC) + 1
    kind = _KINDS.get(data[start - 1]) if len(data) >= start else None
    if kind is None or not data.startswith(MAGIC):
        raise MalformedData(f"not a frame about leases: {data[:40]!r}")
    reader = _Reader(data)
    reader.at = start
    try:
        frame: Frame = kind(*(form.read(reader) for form in _FIELDS[kind]))
    except (ValueError, OverflowError) as error:
        raise MalformedData(f"invalid {kind.__name__} frame: {error}") from error
    if reader.at != len(data):
        raise MalformedData(f"{len(data) - reader.at} bytes after a {kind.__name__} frame")
    return frame
