"""uvicorn's protocol with a limit for headers, which httptools has not."""

from __future__ import annotations

from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES: Final = 64 << 10
"""Bytes that may come of a request before its headers end, beyond those of one read."""


class LimitedHttpProtocol(HttpToolsProtocol):
    """Serves a connection, and closes it when the headers of a request do not end."""

    _in_head = True
    _head_bytes = 0

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Answer a request whose headers are complete."""
        self._in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Take what was read."""
        was_in_head = self._in_head
        super().data_received(data)
        if was_in_head and self._in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.send_400_response("The headers are too large.")
