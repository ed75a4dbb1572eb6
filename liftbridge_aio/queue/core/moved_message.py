"""The headers of messages that wait in a retry stream for their next attempt. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from liftbridge_aio.model import Message

STREAM_HEADER: Final = "queue-stream"
"""The stream where a dead letter or a moved message was published."""
PARTITION_HEADER: Final = "queue-partition"
OFFSET_HEADER: Final = "queue-offset"
ATTEMPTS_HEADER: Final = "queue-attempts"
DUE_HEADER: Final = "queue-due"
"""The time of the next attempt, in milliseconds since 1970."""
_PRECISION: Final = 0.001
"""Seconds; the precision of the due time."""


HEADERS: Final = frozenset(
    {STREAM_HEADER, PARTITION_HEADER, OFFSET_HEADER, ATTEMPTS_HEADER, DUE_HEADER}
)
"""The headers of a moved message. They are trusted only in streams that queues write."""


class Origin(NamedTuple):
    """The place where a message was published."""

    stream: str
    partition: int
    offset: int


def hide_headers(message: Message) -> None:
    """Move the headers of a queue to `transaction_headers`, where users do not see them.

    Call it only for messages of retry streams: in other streams such headers are the publisher's.
    """
    headers = message.headers
    own = {name: headers[name] for name in headers.keys() & HEADERS}
    if own:
        message.headers = {name: headers[name] for name in headers if name not in own}
        message.transaction_headers = {**message.transaction_headers, **own}


def origin_of(message: Message) -> Origin:
    """Return where a message was published first, even if it was moved since."""
    headers = message.transaction_headers
    if DUE_HEADER not in headers or STREAM_HEADER not in headers:
        return Origin(message.stream, message.partition, message.offset)
    return Origin(
        headers[STREAM_HEADER].decode(errors="replace"),
        _number(message, PARTITION_HEADER),
        _number(message, OFFSET_HEADER),
    )


def attempts_of(message: Message) -> int:
    """Return the number of attempts before a message was moved."""
    return _number(message, ATTEMPTS_HEADER)


def is_filler(message: Message) -> bool:
    """Return True if a message of a retry stream is a filler.

    A filler is published to make a restarted server show the messages before it, and is never
    delivered; see `RetryTiers.keep_visible`.
    """
    return DUE_HEADER not in message.transaction_headers


def due_at(message: Message) -> float:
    """Return the time of a message's next attempt, in seconds since 1970."""
    return _number(message, DUE_HEADER) / 1000


def tier_for(delay: float, tiers: Sequence[float]) -> float:
    """Return the shortest tier that is at least as long as a delay; the longest if none is.

    A delay that is the rest until a deadline is longer than a tier by an error of rounding.
    """
    return next((tier for tier in tiers if tier >= delay - _PRECISION), tiers[-1])


def _number(message: Message, name: str) -> int:
    value = message.transaction_headers.get(name, b"0")
    return int(value) if value.isdigit() else 0
