"""The format of server-sent events, and of the ids that browsers send back. Pure.

The format is that of the WHATWG's HTML standard, "Server-sent events". It carries lines of text:
line ends of every kind arrive as a line feed, and bytes that are not UTF-8 cannot be sent. Hence
the choice of formats below.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from liftbridge_aio._core.arguments import INT64_MAX
from liftbridge_aio._core.foreign_text import json_bytes
from liftbridge_aio.errors import InvalidRequest, StreamReset, WrongType
from liftbridge_aio.model import Message

HEADERS: Final[Mapping[str, str]] = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # otherwise nginx buffers events
}
"""The headers of a response of events."""

HEARTBEAT: Final = b":\n\n"
"""A comment, invisible to pages, which keeps proxies from closing an idle connection."""

BINARY: Final = "binary"
"""The type of an event whose value is not text, sent in base64."""
END: Final = "end"
"""The type of the event after the last message."""
MISSED: Final = "missed"
"""The type of the event for messages that were removed before the browser received them."""
FAILURE: Final = "failure"
"""The type of the event for a read failure. Browsers use "error" themselves."""

_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_NOT_IN_A_LINE: Final = re.compile(r"[\r\n]")
_SHOWN: Final = 100
"""The most characters of a wrong id that an error shows."""
_PAIRS: Final = re.compile(r"([0-9]{1,10}):(-1|[0-9]{1,19})(?:,|$)")
_LOG: Final = re.compile(r"[0-9a-f]{1,16}")


class Event(NamedTuple):
    """An event as received by a page."""

    data: str
    """The text. Line ends of every kind arrive as a line feed."""
    type: str = ""
    """The type that the page listens for; empty for the default, `message`."""

    def encode(self, event_id: str | None = None) -> bytes:
        """Encode the event as lines of an event stream.

        A lone surrogate in the data is escaped; in JSON the escape has the same meaning.

        Args:
            event_id: the id that the browser stores; empty to clear it; None to leave it unchanged.

        Raises:
            WrongType: the data or the type is no text.
            InvalidRequest: the type has more than one line.
        """
        for name, value in self._asdict().items():
            if not isinstance(value, str):
                raise WrongType(f"the {name} of an event must be a str, not {type(value).__name__}")
        if _NOT_IN_A_LINE.search(self.type):
            raise InvalidRequest(f"the type of an event must be one line, not {self.type!r}")
        lines = [f"event: {self.type}"] if self.type else []
        if event_id is not None:
            lines.append(f"id: {event_id}")
        lines += [f"data: {line}" for line in _LINE_END.split(self.data)]
        return json_bytes("\n".join([*lines, "", ""]))


def opening(retry: float, event_id: str | None) -> bytes:
    """Encode the start of a stream: the reconnection settings, without a visible event.

    Args:
        retry: seconds after which a browser reconnects.
        event_id: the id to send then; None to leave it unchanged.
    """
    remembered = "" if event_id is None else f"id: {event_id}\n"
    return f"retry: {round(retry * 1000)}\n{remembered}\n".encode()


def mark(event_id: str) -> bytes:
    """Encode an id for the browser to store, without a visible event."""
    return f"id: {event_id}\n\n".encode()


def failure(error: BaseException, partition: int | None, offset: int | None) -> Event:
    """Encode an error by its kind and place only: its text is not for the public."""
    fields = {"error": type(error).__name__, "partition": partition, "offset": offset}
    return Event(json.dumps(fields), FAILURE)


def missed(partition: int, gap: range) -> Event:
    """Encode the offsets of messages that retention has removed."""
    fields = {"partition": partition, "first_offset": gap.start, "next_offset": gap.stop}
    return Event(json.dumps(fields), MISSED)


# Ids


def id_of(offsets: Mapping[int, int], only: int | None, created: int) -> str:
    """Encode the position of a browser: the last offset it received, -1 for none, and the log.

    Args:
        offsets: these offsets by partition, without unknown ones. The id is empty if there are
            none.
        only: the only partition, written as `offset`; None for several, written as
            `partition:offset,partition:offset`.
        created: the creation timestamp of the stream, appended in hexadecimal after an `@`; 0 if
            it is not known.
    """
    if only is not None:
        position = str(offsets[only]) if only in offsets else ""
    else:
        pairs = sorted(offsets.items())
        position = ",".join(f"{partition}:{offset}" for partition, offset in pairs)
    return f"{position}@{created:x}" if position and created else position


def position_of(event_id: str, only: int | None) -> tuple[dict[int, int], int]:
    """Parse an id of `id_of` that a browser sent back.

    Returns:
        The offsets, and the creation timestamp: 0 in an id of an earlier version, which had none.

    Raises:
        StreamReset: it is no such id: the page was sent by something else, or before the service
            was changed to read one partition instead of several, or several instead of one.
    """
    position, _, log = event_id.partition("@")
    pairs = _PAIRS.findall(position if only is None else f"{only}:{position}")
    offsets = {int(partition): int(offset) for partition, offset in pairs}
    created = int(log, 16) if _LOG.fullmatch(log) else 0
    if max(offsets.values(), default=0) < INT64_MAX and id_of(offsets, only, created) == event_id:
        return offsets, created
    raise StreamReset(f"Last-Event-ID is not an id of this service: {event_id[:_SHOWN]!r}")


# Formats


def as_text(message: Message) -> Event:
    """Convert the value to text; one that is not UTF-8 becomes a `binary` event in base64."""
    try:
        return Event(message.value.decode())
    except UnicodeDecodeError:
        return Event(base64.b64encode(message.value).decode(), BINARY)


def as_json(message: Message) -> Event:
    """Convert the whole message to a JSON object, which preserves line ends.

    It has `stream`, `partition`, `offset`, `timestamp` (Unix nanoseconds as text, because
    JavaScript's numbers are too small), `key`, `value` and `headers`. Bytes are text where they
    are UTF-8, else an object `{"base64": …}`.
    """
    fields: dict[str, Any] = {
        "stream": message.stream,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": str(message.timestamp),
        "key": _readable(message.key),
        "value": _readable(message.value),
        "headers": {name: _readable(value) for name, value in message.headers.items()},
    }
    return Event(json.dumps(fields, ensure_ascii=False))


def _readable(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
