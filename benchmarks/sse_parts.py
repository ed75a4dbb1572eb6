"""The parsing of Server-Sent Events by our client of Durable Streams, as functions to be timed.

Bodies are as the reference server writes them: an event for each append, and a control event now
and then.
"""

from __future__ import annotations

from typing import Final

from liftbridge_aio.durable_streams.core.sse import Parser

from .cases import size_text

EVENT_SIZES: Final = (100, 10 * 1024, 1024 * 1024)
CHUNK_SIZES: Final = (4 * 1024, 64 * 1024, 1024 * 1024)
_BODY: Final = 4 * 1024 * 1024
_BETWEEN_CONTROLS: Final = 100
_CONTROL: Final = (
    b'event: control\ndata:{"streamNextOffset":"0000000000000000_0000000000012345",'
    b'"streamCursor":"1043","upToDate":true}\n\n'
)


def body(event_size: int) -> bytes:
    """Events whose data has so many bytes, about 4 MiB in all."""
    data = b'[{"value":"' + b"x" * (event_size - 14) + b'"}]'
    events = b"event: data\ndata:" + data + b"\n\n"
    together = events * min(_BETWEEN_CONTROLS, _BODY // event_size) + _CONTROL
    return together * max(1, _BODY // len(together))


class Parsing:
    """A parser that gets a body in chunks."""

    def __init__(self, event_size: int, chunk_size: int) -> None:
        whole = body(event_size)
        self.size = len(whole)
        self._chunks = [whole[at : at + chunk_size] for at in range(0, self.size, chunk_size)]
        self._events = whole.count(b"\n\n")

    def run(self) -> None:
        """Parse the body."""
        parser, events = Parser(), 0
        for chunk in self._chunks:
            events += len(parser.feed(chunk))
        if events != self._events:
            raise AssertionError("the parser did not find what it should")


def parts() -> dict[str, Parsing]:
    """Everything that is timed, by name."""
    return {
        f"events of {size_text(event)}, chunks of {size_text(chunk)}": Parsing(event, chunk)
        for event in EVENT_SIZES
        for chunk in CHUNK_SIZES
    }
