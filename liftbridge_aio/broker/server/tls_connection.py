"""The server side of a TLS connection, between a socket and a protocol.

asyncio's own drops the alert with which OpenSSL tells a refused client the reason. It also gives no
access to connections whose handshake does not complete.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

_READ_BYTES: Final = 2**16
_HANDSHAKE_TIMEOUT: Final = 10.0  # seconds
_MAX_UNREAD_ANSWERS: Final = 2**17
"""Bytes of TLS answers, say to key updates, that a client may leave unread."""


class TLSConnection(asyncio.Protocol):
    """The socket's protocol, and the owner of the transport that the upper protocol sees.

    Args:
        context: TLS settings.
        protocol_factory: creates the upper protocol, after the handshake.
        on_begin: called when the handshake begins.
        on_end: called when it ends, or the connection is lost before.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        *,
        on_begin: Callable[[TLSConnection], object],
        on_end: Callable[[TLSConnection], object],
    ) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._protocol_factory = protocol_factory
        self._on_begin = on_begin
        self._on_end = on_end
        self._transport: TLSTransport | None = None
        self._reading = True
        self._writable = True
        self._unread_answers = 0
        self.socket: asyncio.Transport
        self._timer: asyncio.TimerHandle

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the client's handshake; see `asyncio.Protocol`."""
        self.socket = cast("asyncio.Transport", transport)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_HANDSHAKE_TIMEOUT, self.socket.abort)
        self._on_begin(self)

    def data_received(self, data: bytes) -> None:
        """Decrypt what was read; see `asyncio.Protocol`."""
        self._incoming.write(data)
        if self._transport is None:
            self._continue_handshake()
        if self._transport is not None:
            self._read()

    def eof_received(self) -> bool:
        """Close the connection: TLS has no half-closed ones."""
        return False

    def pause_writing(self) -> None:
        """Pass the call on; see `asyncio.Protocol`."""
        self._writable = False
        if self._transport is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Pass the call on; see `asyncio.Protocol`."""
        self._writable = True
        self._unread_answers = 0
        if self._transport is not None:
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """End; see `asyncio.Protocol`."""
        self._timer.cancel()
        self._on_end(self)
        if self._transport is not None:
            self._protocol.connection_lost(exc)

    # TLS

    def _continue_handshake(self) -> None:
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLError:
            self._flush()  # the alert
            self.socket.close()
        else:
            self._flush()
            self._timer.cancel()
            self._on_end(self)
            protocol = self._protocol_factory()
            self._transport = TLSTransport(self, protocol)
            protocol.connection_made(self._transport)

    def _read(self) -> None:
        while self._transport is not None and self._reading and not self.socket.is_closing():
            try:
                data = self.tls.read(_READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError:  # bytes that are not the client's
                self._flush()
                self.socket.close()
                break
            self._answer()
            if not data:  # the client has closed in order
                self.close()
                break
            self._protocol.data_received(data)
        self._answer()

    def _answer(self) -> None:
        """Write TLS's own answers.

        Abort a connection whose client lets them pile up unread: the upper protocol stops writing
        to such a client, TLS does not.
        """
        if not self._writable:
            self._unread_answers += self._outgoing.pending
            if self._unread_answers > _MAX_UNREAD_ANSWERS:
                self.socket.abort()
        self._flush()

    @property
    def _protocol(self) -> asyncio.Protocol:
        return cast("asyncio.Protocol", cast("TLSTransport", self._transport).get_protocol())

    def _flush(self) -> None:
        if self._outgoing.pending and not self.socket.is_closing():
            self.socket.write(self._outgoing.read())

    # Called by the transport

    def write(self, data: bytes) -> None:
        """Encrypt and send."""
        if data and not self.socket.is_closing():
            self.tls.write(data)
            self._flush()

    def close(self) -> None:
        """Send the close alert, then close."""
        if not self.socket.is_closing():
            with suppress(ssl.SSLError):  # without the client's close alert
                self.tls.unwrap()
            self._flush()
            self.socket.close()

    def pause_reading(self) -> None:
        """Pass no more data to the upper protocol."""
        self._reading = False
        self.socket.pause_reading()

    def resume_reading(self) -> None:
        """Undo `pause_reading`."""
        self._reading = True
        self.socket.resume_reading()
        # Later, as from a socket: the caller does not expect to be called.
        asyncio.get_running_loop().call_soon(self._read)


class TLSTransport(asyncio.Transport):
    """The transport that the upper protocol sees."""

    def __init__(self, connection: TLSConnection, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._connection = connection
        self._protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return information on TLS or the socket; see `asyncio.BaseTransport`."""
        if name == "ssl_object":
            return self._connection.tls
        return self._connection.socket.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the upper protocol."""
        self._protocol = protocol

    def get_protocol(self) -> Any:
        """Return the upper protocol."""
        return self._protocol

    def is_closing(self) -> bool:
        """Return True if the connection is closed or closing."""
        return self._connection.socket.is_closing()

    def close(self) -> None:
        """Close once everything is sent."""
        self._connection.close()

    def abort(self) -> None:
        """Close at once."""
        self._connection.socket.abort()

    def is_reading(self) -> bool:
        """Return True unless reading is paused."""
        return self._connection.socket.is_reading()

    def pause_reading(self) -> None:
        """Pass no more data to the protocol."""
        self._connection.pause_reading()

    def resume_reading(self) -> None:
        """Undo `pause_reading`."""
        self._connection.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits at which writing is paused and resumed."""
        self._connection.socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes waiting to be sent."""
        return self._connection.socket.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the limits at which writing is paused and resumed."""
        return self._connection.socket.get_write_buffer_limits()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send data."""
        self._connection.write(bytes(data))

    def can_write_eof(self) -> bool:
        """Return False: TLS connections cannot be closed by halves."""
        return False
