"""`Reader`: the items of a stream, as an async iterator that follows it."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Iterator
from enum import Enum
from itertools import repeat
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self

from liftbridge_aio.errors import ConcurrentRead, LiftbridgeError, MalformedData
from liftbridge_aio.options import timer_seconds
from liftbridge_aio.retry import Backoff

from .core import protocol, sse
from .errors import NotConnected, ProtocolError, StreamReset
from .transport import Transport

if TYPE_CHECKING:
    import httpx2

Live = Literal["long-poll", "sse"] | bool
"""The way to follow a stream: True leaves the choice to the client, which polls."""

_NO_CONTENT: Final = 204
_EVENT_STREAM: Final = "text/event-stream"
_IDLE_BACKOFF: Final = Backoff(initial=0.05, maximum=2.0)
"""Waits before another live request where the last one ended at once, with nothing."""
_AT_ONCE: Final = 0.05
_MOST_IDLE: Final = 10
"""Responses in a row that may end at once or go back: some ten seconds of waits."""
_HELD_BACK: Final = (
    "check the URL, that the server runs, and that no proxy on the way holds Server-Sent Events"
    ' back, or read with live="long-poll"'
)


class ReaderState(Enum):
    """The next step of a reader."""

    CATCHING_UP = "reads what the stream holds"
    POLLING = "waits for more in long polls"
    STREAMING = "waits for more in Server-Sent Events"
    ENDED = "nothing"


_AFTER_CATCHING_UP: Final[dict[Live, ReaderState]] = {
    False: ReaderState.ENDED,
    True: ReaderState.POLLING,
    "long-poll": ReaderState.POLLING,
    "sse": ReaderState.STREAMING,
}


class Batch(NamedTuple):
    """The content of one response, or of one control event."""

    items: list[Any]
    """JSON values; for other content types chunks of bytes, whose limits mean nothing."""
    offset: str
    """The offset at which to go on after them."""
    up_to_date: bool
    """The stream held no more at that moment."""
    closed: bool
    """The stream is closed, and there will never be more."""


class Reader:
    """Reads a stream from an offset on; made by `DurableStream.read`.

        async for item, offset in stream.read(offset=saved, live=True):
            ...

    An item comes with the offset to save once it is processed. Offsets exist only between
    responses: all items of a batch but the last one come with the offset before the batch, so that
    after a restart those that were processed may come again, and none is lost.

    It first reads what the stream holds, and then waits for more if it is live. Lost connections
    are made again, from the last offset. It ends when the stream is closed.
    """

    def __init__(self, transport: Transport, offset: str, live: Live) -> None:
        self._transport = transport
        self._after = _AFTER_CATCHING_UP[live]
        self._state = ReaderState.CATCHING_UP
        self._position = offset
        """The offset at which the next request begins."""
        self._saved = offset
        self._cursor: str | None = None
        self._is_json = False
        self._is_base64 = False
        self._up_to_date = False
        self._closed = False
        self._pairs: Iterator[tuple[Any, str]] = iter(())
        self._response: httpx2.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._parser = sse.Parser()
        self._data: list[bytes] = []
        self._controls: deque[Batch] = deque()
        self._max_failures = min(transport.options.max_retries, _MOST_IDLE)
        self._resume_timeout = timer_seconds(transport.options.resume_timeout)
        self._is_reading = False
        self._has_read = False
        self._idle = 0
        """Responses in a row that brought nothing, at once, or went back. Each waits longer."""
        self._opened_at = 0.0
        """When the present Server-Sent Events began, by the event loop's clock."""
        self._is_answered = False
        """They have had a control event, so a server is there."""
        self._unanswered_since: float | None = None
        """When the first response without a control event began, of those since the last with one.
        """

    @property
    def state(self) -> ReaderState:
        """Its next step."""
        return self._state

    @property
    def offset(self) -> str:
        """The offset of the last item that was returned: save it to go on later."""
        return self._saved

    @property
    def up_to_date(self) -> bool:
        """True if the server held no more when it last answered."""
        return self._up_to_date

    @property
    def closed(self) -> bool:
        """True if the stream is closed and was read to its end."""
        return self._closed

    async def __aenter__(self) -> Self:
        """Do nothing yet: requests are sent when items are asked for."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        await self.aclose()

    async def aclose(self) -> None:
        """End it, and the Server-Sent Events that it reads. Idempotent; cancelling does no harm.

        A task that waits for an item gets `StopAsyncIteration`; one in a long poll when the server
        answers.
        """
        self._state = ReaderState.ENDED
        self._pairs = iter(())
        await self._end_response()

    def __aiter__(self) -> Self:
        """Return the reader itself."""
        return self

    async def __anext__(self) -> tuple[Any, str]:
        """Return the next item and its offset, waiting for it if the reader is live.

        Cancelling loses nothing: the next call goes on at the same place.

        Raises:
            StopAsyncIteration: the stream is closed, or the reader is not live, and there is no
                more.
            NoStream: there is no such stream, any more; `Gone`: or no data at this offset.
            InvalidOffset: the server does not accept the offset.
            StreamReset: the stream ends before the offset.
            NotConnected: the server cannot be reached: for `timeout` at the begin, and for
                `resume_timeout` later.
            Refused: it refuses the request for another reason.
            ProtocolError: it sent what the protocol does not allow.
            ConcurrentRead: another task is reading.
            Closed: the `DurableStream` is closed.
        """
        for pair in self._pairs:
            self._saved = pair[1]
            return pair
        while True:
            before = self._position
            batch = await self._next_batch()
            if batch is None:
                raise StopAsyncIteration
            if batch.items:
                pairs = list(zip(batch.items, repeat(before)))
                pairs[-1] = (batch.items[-1], batch.offset)
                self._pairs = iter(pairs)
                pair = next(self._pairs)
                self._saved = pair[1]
                return pair
            self._saved = batch.offset

    async def batches(self) -> AsyncIterator[Batch]:
        """Return batches instead of items, with the offset after each.

        A batch may be empty: when the reader gets up to date, and when the stream is closed.
        Cancelling and errors: as `anext`.
        """
        if rest := [item for item, _ in self._pairs]:
            self._saved = self._position
            yield Batch(rest, self._position, self._up_to_date, self._closed)
        was_up_to_date = False
        while (batch := await self._next_batch()) is not None:
            self._saved = batch.offset
            if batch.items or batch.closed or batch.up_to_date > was_up_to_date:
                yield batch
            was_up_to_date = batch.up_to_date

    async def _next_batch(self) -> Batch | None:
        """Return the next batch; None if there is none. It may be empty."""
        if self._is_reading:
            raise ConcurrentRead("another task is reading; give each a reader of its own")
        if self._has_ended():
            return None
        self._is_reading = True
        try:
            is_stream = self.state is ReaderState.STREAMING
            batch = await self._stream() if is_stream else await self._get()
        except MalformedData as error:
            if isinstance(error, ProtocolError):
                raise
            raise ProtocolError(f"GET {self._transport.url}: {error.message}") from error
        finally:
            self._is_reading = False
        if batch is None or self._has_ended():  # closed by another task
            return None
        batch = self._checked(batch)
        self._position, self._has_read = batch.offset, True
        self._up_to_date, self._closed = batch.up_to_date, batch.closed
        if batch.closed:
            self._state = ReaderState.ENDED
            await self._end_response()
        elif self.state is ReaderState.CATCHING_UP and batch.up_to_date:
            self._state = self._after
        return batch

    def _checked(self, batch: Batch) -> Batch:
        """Return a batch that does not go back, and brings items only if it moves on.

        Items at the same offset would come again for ever: something in between answers different
        requests alike, as a cache does that ignores the query. A server may show an append before
        its own records have it, so that the end goes back for a moment. What stays back is another
        stream, or one that lost data.
        """
        if batch.items and batch.offset == self._position:
            raise ProtocolError(
                f"GET {self._transport.url} brought items and the offset {batch.offset} that it"
                " was asked for, so they would come again for ever"
            )
        if self._position in {protocol.START, protocol.NOW} or batch.offset >= self._position:
            return batch
        self._idle += 1
        if batch.items or self._idle > self._max_failures:
            raise StreamReset(
                f"{self._transport.url} ends at {batch.offset}, before {self._position}"
            )
        return Batch([], self._position, up_to_date=False, closed=False)

    def _has_ended(self) -> bool:
        return self._state is ReaderState.ENDED

    def _query(self, live: str | None) -> dict[str, str]:
        """Return parameters in the order of their names."""
        query = {} if self._cursor is None or live is None else {"cursor": self._cursor}
        if live is not None:
            query["live"] = live
        query["offset"] = self._position
        return query

    async def _get(self) -> Batch:
        """Read once, or wait in one long poll."""
        is_poll = self._state is ReaderState.POLLING
        if self._idle:
            await self._pause()
        began = asyncio.get_running_loop().time()
        query = self._query("long-poll" if is_poll else None)
        response = await self._transport.send(
            "GET", query=query, live=is_poll, resuming=self._has_read
        )
        headers = response.headers
        closed = protocol.is_true(headers.get(protocol.STREAM_CLOSED))
        up_to_date = closed or protocol.is_true(headers.get(protocol.STREAM_UP_TO_DATE))
        cursor = protocol.response_cursor(headers.get(protocol.STREAM_CURSOR))
        self._cursor = self._cursor if cursor is None else cursor
        offset = protocol.response_offset(headers.get(protocol.STREAM_NEXT_OFFSET), "it")
        has_content = response.status_code != _NO_CONTENT
        body = response.content if has_content else b""
        if has_content:
            self._is_json = protocol.is_json(headers.get("Content-Type"))
        items = protocol.parse_items(body) if self._is_json else [body] if body else []
        if offset >= self._position:
            took = asyncio.get_running_loop().time() - began
            is_idle = is_poll and not items and offset == self._position and took < _AT_ONCE
            self._idle = self._idle + 1 if is_idle else 0
        if not has_content:
            return Batch([], offset, up_to_date=True, closed=closed)
        # Without progress there is nothing more, even if a cache has dropped the header.
        return Batch(items, offset, up_to_date or offset == self._position, closed)

    async def _stream(self) -> Batch | None:
        """Return what the next control event ends."""
        while not self._controls:
            if self._has_ended():
                return None
            chunk = await self._chunk()  # may replace the parser
            for event in self._parser.feed(chunk):
                self._take(event)
        batch = self._controls.popleft()
        if batch.offset > self._position:
            self._idle = 0
        if batch.offset >= self._position:
            self._is_answered, self._unanswered_since = True, None
        return batch

    async def _chunk(self) -> bytes:
        """Return the next bytes of the response, opening one if necessary; b"" if it ended."""
        chunks = self._chunks or await self._open_response()
        text = f"{self._transport.url} ends Server-Sent Events without any event"
        failure: LiftbridgeError = NotConnected(text)
        try:
            chunk = await anext(chunks, None)
        except Exception as error:  # noqa: BLE001 - raised below, if nothing helps
            failure = self._transport.failure("GET", error)
            failure.__cause__ = error
        except BaseException:
            await self._end_response()
            raise
        else:
            if chunk is not None:
                return chunk
        await self._end_response()
        now = asyncio.get_running_loop().time()
        took = now - self._opened_at
        self._idle = 1 if self._is_answered and took >= _AT_ONCE else self._idle + 1
        goes_on = self._is_answered
        if not goes_on:
            if self._unanswered_since is None:
                self._unanswered_since = self._opened_at
            in_time = now - self._unanswered_since < self._resume_timeout
            goes_on = in_time and self._idle <= self._max_failures
            if isinstance(failure, NotConnected):
                failure.hint = _HELD_BACK
        if not self._has_ended() and not (isinstance(failure, NotConnected) and goes_on):
            raise failure
        return b""

    def _take(self, event: sse.Event) -> None:
        if event.kind == sse.DATA:
            self._data.append(event.data)
        elif event.kind == sse.CONTROL:
            control = sse.parse_control(event.data)
            items: list[Any] = []
            for data in self._data:
                if self._is_json:
                    items += protocol.parse_items(data)
                elif data:
                    items.append(sse.decode_base64(data) if self._is_base64 else data)
            self._data = []
            self._cursor = control.cursor
            self._controls.append(
                Batch(items, control.next_offset, control.up_to_date, control.closed)
            )

    async def _pause(self) -> None:
        await asyncio.sleep(_IDLE_BACKOFF.delay(self._idle, random.random()))  # noqa: S311 - jitter

    async def _open_response(self) -> AsyncIterator[bytes]:
        if self._idle:
            await self._pause()
        query = self._query("sse")
        response = await self._transport.send(
            "GET", query=query, live=True, stream=True, resuming=True
        )
        self._response = response
        self._opened_at, self._is_answered = asyncio.get_running_loop().time(), False
        if protocol.media_type(response.headers.get("Content-Type")) != _EVENT_STREAM:
            await self._end_response()
            raise ProtocolError(f"GET {self._transport.url} brought no Server-Sent Events")
        encoding = response.headers.get(protocol.SSE_DATA_ENCODING, "")
        self._is_base64 = encoding.strip().lower() == "base64"
        self._parser = sse.Parser()
        self._chunks = response.aiter_bytes()
        return self._chunks

    async def _end_response(self) -> None:
        response, self._response, self._chunks = self._response, None, None
        self._controls.clear()
        self._data = []
        if response is not None:
            await response.aclose()
