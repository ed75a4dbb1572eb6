"""A response of Server-Sent Events: what a stream holds, and then what is appended to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from liftbridge_aio.durable_streams.core import sse
from liftbridge_aio.durable_streams.core.protocol import SSE_DATA_ENCODING, START, is_text
from liftbridge_aio.durable_streams.core.registry import Entry
from liftbridge_aio.durable_streams.core.requests import Read, RequestRefused
from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.options import timer_seconds

from .hosted_logs import Found
from .responses import cursor_after, joined
from .streams import Streams

_MOST_SHARED: Final = 16
"""Places in a stream whose events are kept for other readers, until something is appended."""
_HEADERS: Final = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}


class EventsResponse(Response):
    """Sends messages as events, until the stream ends, the client goes or its time is over.

    Args:
        streams: the streams.
        entry: what is registered of the stream.
        position: where to begin.
        read: what was asked for.
        check: raises `RequestRefused` once the stream is gone.
    """

    def __init__(
        self,
        streams: Streams,
        entry: Entry,
        position: int,
        read: Read,
        check: Callable[[], object],
    ) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._binary = not is_text(entry.content_type)
        if self._binary:
            self.headers[SSE_DATA_ENCODING] = "base64"
        self._streams = streams
        self._check = check
        self._entry = entry
        self._position = position
        self._read = read

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Send the events. Cancelling ends the response."""
        options = self._streams.options
        self._write_timeout = timer_seconds(options.write_timeout)
        with self._streams.logs.using(self._entry):
            async with anyio.create_task_group() as group:

                async def watch() -> None:
                    while (await receive())["type"] != "http.disconnect":
                        pass
                    group.cancel_scope.cancel()

                group.start_soon(watch)
                with suppress(OSError, TimeoutError):  # the client is gone, or reads no more
                    await self._send(send, timer_seconds(options.sse_duration))
                group.cancel_scope.cancel()

    async def _send(self, send: Send, duration: float) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        end = asyncio.get_running_loop().time() + duration
        with suppress(
            RequestRefused, LiftbridgeError
        ):  # the client learns why as it connects again
            await self._send_events(send, end)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_events(self, send: Send, end: float) -> None:
        first = self._read.offset == START
        begun = False
        while True:
            found, data = await self._next(first=first)
            first = False
            if found.values or found.closed or not begun:
                begun = True
                async with asyncio.timeout(self._write_timeout):
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                self._position = found.position
            over = self._streams.logs.ending or asyncio.get_running_loop().time() >= end
            if found.closed or over:
                return
            if found.at_tail:
                hosted = await self._streams.logs.own(self._entry)
                try:
                    async with asyncio.timeout_at(end):
                        while hosted.state.tail == self._position - self._entry.positions.start:
                            if hosted.state.closed or self._streams.logs.ending:
                                break
                            await hosted.log.changed()
                except TimeoutError:
                    return
                self._check()

    async def _next(self, *, first: bool) -> tuple[Found, bytes]:
        """Return the next messages, and their events: readers at the same place share them."""
        shared = (await self._streams.logs.own(self._entry)).shared
        cursor = cursor_after(self._read.cursor)
        place = self._position, cursor
        known: tuple[Found, bytes] | None = shared.get(place)
        if known is not None:
            return known
        most = self._streams.options.max_response_bytes
        found = await self._streams.logs.read(self._entry, self._position, most, first=first)
        made = found, self._encoded(found, cursor)
        if found.values and len(shared) < _MOST_SHARED:
            shared[place] = made
        return made

    def _encoded(self, found: Found, cursor: str) -> bytes:
        control = sse.Control(
            self._entry.positions.offset(found.position), cursor, found.at_tail, found.closed
        )
        events = sse.encode_control(control)
        if not found.values:
            return events
        body = joined(found.values, self._entry.content_type)
        data = sse.encode_base64(body) if self._binary else body
        return sse.encode_event(sse.DATA, data) + events
