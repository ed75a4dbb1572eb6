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

from .hosted_stream import Found, HostedStream, Shared
from .responses import cursor_after, joined
from .streams import Streams

_MOST_SHARED: Final = 16
"""Places in a stream whose events are kept for other readers, until something is appended."""
_SHARED_FOR: Final = 1.0
"""Seconds after which they are made anew, as their cursor tells the time."""
LIMITS_WRITES: Final = "liftbridge_aio.limits_writes"
"""The extension of ASGI which says that the server cuts off readers that take nothing."""
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
        self._cursor = None if read.cursor is None else cursor_after(read.cursor)
        self._over = False
        self._waiter: asyncio.Future[None] | None = None
        """Done when there may be something to send, or when the time is over."""
        self._writing_since: float | None = None
        """Since when the client has not taken an event."""

    async def begin(self) -> None:
        """Read what comes first: once it is sent, nothing can be refused. Cancelling ends the read.

        Raises:
            RequestRefused: retention has removed it, or the stream is gone.
            LiftbridgeError: it could not be read.
        """
        hosted = await self._streams.logs.own(self._entry)
        if (self._position, self._cursor) not in hosted.shared:
            await self._read_on(hosted, asyncio.get_running_loop().time(), first=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events. Cancelling ends the response."""
        options = self._streams.options
        loop = asyncio.get_running_loop()
        timer = loop.call_later(timer_seconds(options.sse_duration), self._end)
        with self._streams.logs.using(self._entry):
            async with anyio.create_task_group() as group:

                async def watch() -> None:
                    while (await receive())["type"] != "http.disconnect":
                        pass
                    group.cancel_scope.cancel()

                async def limit_writes(longest: float) -> None:
                    while True:  # one timer for many events
                        since = loop.time() if self._writing_since is None else self._writing_since
                        if loop.time() >= since + longest:
                            group.cancel_scope.cancel()
                        await asyncio.sleep(since + longest - loop.time())

                group.start_soon(watch)
                if LIMITS_WRITES not in scope.get("extensions", {}):
                    group.start_soon(limit_writes, timer_seconds(options.write_timeout))
                try:
                    with suppress(OSError):  # the client is gone
                        await self._send(send)
                finally:
                    timer.cancel()
                group.cancel_scope.cancel()

    def _end(self) -> None:
        """End the response as soon as it waits for messages, or has sent those that it is sending.

        The timer of `__call__` calls it.
        """
        self._over = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _must_end(self) -> bool:
        return self._over or self._streams.logs.ending

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        with suppress(
            RequestRefused, LiftbridgeError
        ):  # the client learns why as it connects again
            await self._send_events(send)
        self._writing_since = asyncio.get_running_loop().time()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_events(self, send: Send) -> None:
        # For each event every reader goes through this once.
        loop = asyncio.get_running_loop()
        start = self._entry.positions.start
        hosted = await self._streams.logs.own(self._entry)
        begun = False
        while True:
            now = loop.time()
            known = hosted.shared.get((self._position, self._cursor))
            if known is None or now > known.read_at + _SHARED_FOR:
                known = await self._read_on(hosted, now, first=not begun)
            if known.found.values or known.found.closed or not begun:
                begun = True
                self._writing_since = now
                await send({"type": "http.response.body", "body": known.events, "more_body": True})
                self._writing_since = None
                self._position = known.found.position
            if known.found.closed or self._must_end():
                return
            tail = self._position - start
            while known.found.at_tail and hosted.state.tail == tail and not hosted.state.closed:
                self._waiter = loop.create_future()
                await hosted.log.wait(self._waiter)
                if self._must_end():
                    return
                if hosted.state.tail == tail:
                    self._check()

    async def _read_on(self, hosted: HostedStream, now: float, *, first: bool) -> Shared:
        """Return the next messages as events, for other readers at the same place, too."""
        self._check()
        cursor = self._cursor or cursor_after(None)
        place = self._position, self._cursor
        most = self._streams.options.max_response_bytes
        first = first and self._read.offset == START
        found = await self._streams.logs.read(self._entry, self._position, most, first=first)
        shared = Shared(found, self._encoded(found, cursor), now)
        if found.values:
            if len(hosted.shared) >= _MOST_SHARED:
                hosted.shared.clear()
            hosted.shared[place] = shared
        return shared

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
