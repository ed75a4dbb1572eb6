"""Messages that wait in a stream for their next attempt: what their headers say. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from liftbridge_aio.model import Message

STREAM_HEADER: Final = "queue-stream"
"""The stream that a dead letter, or a message that was moved, comes from."""
PARTITION_HEADER: Final = "queue-partition"
OFFSET_HEADER: Final = "queue-offset"
ATTEMPTS_HEADER: Final = "queue-attempts"
DUE_HEADER: Final = "queue-due"
"""When the next attempt is due, in milliseconds since 1970."""
_PRECISION: Final = 0.001
"""Seconds; that of the due time."""


HEADERS: Final = frozenset(
    {STREAM_HEADER, PARTITION_HEADER, OFFSET_HEADER, ATTEMPTS_HEADER, DUE_HEADER}
)
"""The headers of a message that waits. They are believed only in streams that queues write to."""


class Origin(NamedTuple):
    """The place where a message was published."""

    stream: str
    partition: int
    offset: int


def hide_headers(message: Message) -> None:
    """Keep the headers of a queue from users: they are in `transaction_headers` from now on.

    Call it for messages of retry streams, and for no others: elsewhere such headers were forwarded
    by somebody, and say nothing about the message.
    """
    headers = message.headers
    own = {name: headers[name] for name in headers.keys() & HEADERS}
    if own:
        message.headers = {name: headers[name] for name in headers if name not in own}
        message.transaction_headers = {**message.transaction_headers, **own}


def origin_of(message: Message) -> Origin:
    """Return where a message was published, also if it was moved since."""
    headers = message.transaction_headers
    if DUE_HEADER not in headers or STREAM_HEADER not in headers:
        return Origin(message.stream, message.partition, message.offset)
    return Origin(
        headers[STREAM_HEADER].decode(errors="replace"),
        _number(message, PARTITION_HEADER),
        _number(message, OFFSET_HEADER),
    )


def attempts_of(message: Message) -> int:
    """Return how often a message was tried before it was moved."""
    return _number(message, ATTEMPTS_HEADER)


def is_filler(message: Message) -> bool:
    """Return True if a message of a tier is none that waits there.

    It was published so that those before it can be read, and is not handed out.
    """
    return DUE_HEADER not in message.transaction_headers


def due_at(message: Message) -> float:
    """Return when a message is due, in seconds since 1970."""
    return _number(message, DUE_HEADER) / 1000


def tier_for(delay: float, tiers: Sequence[float]) -> float:
    """Return the shortest tier that is at least as long as a delay; the longest if none is.

    A delay that is the rest until a deadline is longer than a tier by an error of rounding.
    """
    return next((tier for tier in tiers if tier >= delay - _PRECISION), tiers[-1])


def _number(message: Message, name: str) -> int:
    value = message.transaction_headers.get(name, b"0")
    return int(value) if value.isdigit() else 0
