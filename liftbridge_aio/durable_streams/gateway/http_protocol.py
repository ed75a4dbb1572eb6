"""uvicorn's protocol with limits that it has not: for headers, and for clients that do nothing."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .events_response import LIMITS_WRITES

MAX_HEAD_BYTES: Final = 64 << 10
"""Bytes that may come of a request before its headers end, beyond those of one read."""


class LimitedHttpProtocol(HttpToolsProtocol):
    """Serves a connection, and aborts it when the client does nothing for too long.

    uvicorn closes connections at most, and one that is closed stays until all was taken.
    """

    write_timeout = 30.0
    """Longest time that a client may take nothing of what is to be sent."""
    request_timeout = 90.0
    """Longest time for a request, from its first byte or the beginning of the connection on: more
    than a body may take, so that the gateway answers first."""

    _in_head = True
    _head_bytes = 0
    _unsent = 0
    _write_timer: asyncio.TimerHandle | None = None
    _request_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to serve."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # pause_writing is called for any unsent byte
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """End what is being answered."""
        self._request_is_complete()
        self._all_is_sent()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._in_head = True
        self._head_bytes = 0
        self._expect_request()
        super().on_message_begin()
        self.scope["extensions"] = {LIMITS_WRITES: {}}

    def on_headers_complete(self) -> None:
        """Answer a request whose headers are complete."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End the body of a request."""
        self._request_is_complete()
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """Take what was read."""
        was_in_head = self._in_head
        self._expect_request()  # line ends between requests begin none, but end the keep-alive
        super().data_received(data)
        if was_in_head and self._in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.send_400_response("The headers are too large.")

    def _expect_request(self) -> None:
        if self._request_timer is None:
            self._request_timer = self.loop.call_later(self.request_timeout, self.transport.abort)

    def _request_is_complete(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def pause_writing(self) -> None:
        """Wait until all is sent."""
        super().pause_writing()
        self._limit_write()

    def resume_writing(self) -> None:
        """Write on."""
        self._all_is_sent()
        super().resume_writing()

    def _limit_write(self) -> None:
        self._unsent = self.transport.get_write_buffer_size()  # only becomes less until all is sent
        self._write_timer = self.loop.call_later(self.write_timeout, self._check_write)

    def _check_write(self) -> None:
        if self.transport.get_write_buffer_size() < self._unsent:
            self._limit_write()
        else:
            self.transport.abort()

    def _all_is_sent(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
