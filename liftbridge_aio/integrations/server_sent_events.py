"""Messages as server-sent events: what goes over the line, and what the browser sends back. Pure.

The format is that of the WHATWG's HTML standard, "Server-sent events". It carries text, cut into
lines: a carriage return cannot pass, so line ends of every kind arrive as a line feed, and bytes
that are not UTF-8 cannot pass at all. Hence the formats to choose from below.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from liftbridge_aio._core.arguments import INT64_MAX
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.model import Message

HEADERS: Final[Mapping[str, str]] = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # else nginx keeps events back until it has many
}
"""Headers of a response that consists of events."""

HEARTBEAT: Final = b":\n\n"
"""A comment, which no page sees: it shows proxies that the connection is in use."""

BINARY: Final = "binary"
"""Type of the event for a value that is no text, in base64."""
END: Final = "end"
"""Type of the event after the last message."""
FAILURE: Final = "failure"
"""Type of the event that says that the reading failed. "error" is the browser's own."""

_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_NOT_IN_A_LINE: Final = re.compile(r"[\r\n]")
_PAIRS: Final = re.compile(r"([0-9]{1,10}):(-1|[0-9]{1,19})(?:,|$)")


class Event(NamedTuple):
    """An event as a page receives it."""

    data: str
    """Text. Line ends of every kind arrive as a line feed."""
    type: str = ""
    """What the page listens for; empty: `message`, the browser's default."""

    def encode(self, event_id: str | None = None) -> bytes:
        """Write it as the lines of an event stream.

        Args:
            event_id: what the browser remembers with it; empty makes it forget; None: as before.

        Raises:
            InvalidRequest: the type has more than one line.
            UnicodeEncodeError: the data cannot be encoded (lone surrogates).
        """
        if _NOT_IN_A_LINE.search(self.type):
            text = f"the type of an event is one line, not {self.type!r}"
            raise InvalidRequest(text)
        lines = [f"event: {self.type}"] if self.type else []
        if event_id is not None:
            lines.append(f"id: {event_id}")
        lines += [f"data: {line}" for line in _LINE_END.split(self.data)]
        return "\n".join([*lines, "", ""]).encode()


def opening(retry: float, event_id: str | None) -> bytes:
    """Begin a stream: tell the browser how to come back, without an event that a page sees.

    Args:
        retry: seconds until a browser that lost its connection connects again.
        event_id: what it is to send then; None: what it has.
    """
    remembered = "" if event_id is None else f"id: {event_id}\n"
    return f"retry: {round(retry * 1000)}\n{remembered}\n".encode()


def mark(event_id: str) -> bytes:
    """Have the browser remember an id without an event that a page sees."""
    return f"id: {event_id}\n\n".encode()


def failure(error: Exception, partition: int | None, offset: int | None) -> Event:
    """Tell of an error no more than its kind and where it was: its text is not for the public."""
    told = {"error": type(error).__name__, "partition": partition, "offset": offset}
    return Event(json.dumps(told), FAILURE)


# Ids


def id_of(offsets: Mapping[int, int], only: int | None) -> str:
    """Say how far a browser is: the last offset that it got, -1 where it got nothing.

    Args:
        offsets: these, by partition; those that are not known are left out.
        only: the partition if there is but one, whose offset is the whole id. With several it is
            `partition:offset,partition:offset`. Empty where nothing is known.
    """
    if only is not None:
        return str(offsets[only]) if only in offsets else ""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))


def offsets_of(event_id: str, only: int | None) -> dict[int, int]:
    """Read what `id_of` made and a browser sent back.

    Raises:
        InvalidRequest: it made no such id.
    """
    pairs = _PAIRS.findall(event_id if only is None else f"{only}:{event_id}")
    offsets = {int(partition): int(offset) for partition, offset in pairs}
    if max(offsets.values(), default=0) < INT64_MAX and id_of(offsets, only) == event_id:
        return offsets
    text = f"Last-Event-ID is none that was given: {event_id!r}"
    raise InvalidRequest(text)


# Formats


def as_text(message: Message) -> Event:
    """Send the value as text; what is not UTF-8 goes as an event of type `binary`, in base64."""
    try:
        return Event(message.value.decode())
    except UnicodeDecodeError:
        return Event(base64.b64encode(message.value).decode(), BINARY)


def as_json(message: Message) -> Event:
    """Send the whole message as a JSON object, line ends and all.

    It has `stream`, `partition`, `offset`, `timestamp` (Unix nanoseconds as text, because
    JavaScript's numbers are too small), `key`, `value` and `headers`. Bytes are text where they
    are UTF-8, else an object `{"base64": …}`.
    """
    told: dict[str, Any] = {
        "stream": message.stream,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": str(message.timestamp),
        "key": _readable(message.key),
        "value": _readable(message.value),
        "headers": {name: _readable(value) for name, value in message.headers.items()},
    }
    return Event(json.dumps(told, ensure_ascii=False))


def _readable(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
