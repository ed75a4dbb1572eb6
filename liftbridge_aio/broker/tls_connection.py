"""The server's end of a TLS connection, between a socket and whoever speaks over it.

asyncio's own drops what OpenSSL says to a client that is refused: the alert that tells it why. It
also keeps a connection whose handshake does not end to itself.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

_READ_BYTES: Final = 2**16
_HANDSHAKE_TIMEOUT: Final = 10.0  # seconds that a client may take to agree upon TLS
_MAX_UNREAD_ANSWERS: Final = 2**17
"""Bytes of answers of TLS, say to new keys, that a client may ask for while it takes nothing in."""


class TLSConnection(asyncio.Protocol):
    """Protocol of the socket, below, and owner of the transport that is seen above.

    Args:
        context: how to speak TLS.
        protocol_factory: makes the protocol above; called once the client is accepted.
        on_begin: called when the socket is there, and on_end when it has gone or is accepted.
        on_end: see on_begin.
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
        self._above: TLSTransport | None = None
        self._reading = True
        self._writable = True
        self._unread_answers = 0
        self.socket: asyncio.Transport
        self._timer: asyncio.TimerHandle

    # What the socket tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the client to begin; see `asyncio.Protocol`."""
        self.socket = cast("asyncio.Transport", transport)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_HANDSHAKE_TIMEOUT, self.socket.abort)
        self._on_begin(self)

    def data_received(self, data: bytes) -> None:
        """Take in what was read; see `asyncio.Protocol`."""
        self._incoming.write(data)
        if self._above is None:
            self._shake_hands()
        if self._above is not None:
            self._read()

    def eof_received(self) -> bool:
        """Close: half of a TLS connection is of no use."""
        return False

    def pause_writing(self) -> None:
        """Pass it on; see `asyncio.Protocol`."""
        self._writable = False
        if self._above is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on; see `asyncio.Protocol`."""
        self._writable = True
        self._unread_answers = 0
        if self._above is not None:
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """End; see `asyncio.Protocol`."""
        self._timer.cancel()
        self._on_end(self)
        if self._above is not None:
            self._protocol.connection_lost(exc)

    # Between the two

    def _shake_hands(self) -> None:
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
            self._above = TLSTransport(self, protocol)
            protocol.connection_made(self._above)

    def _read(self) -> None:
        while self._above is not None and self._reading and not self.socket.is_closing():
            try:
                data = self.tls.read(_READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError:  # bytes that are none of the client's
                self._flush()
                self.socket.close()
                break
            self._answer()
            if not data:  # an orderly end
                self.close()
                break
            self._protocol.data_received(data)
        self._answer()

    def _answer(self) -> None:
        """Write what TLS itself answers.

        Gives up a client that has it answer without end, and takes no answers in: whoever is above
        stops to write to such a client, TLS does not.
        """
        if not self._writable:
            self._unread_answers += self._outgoing.pending
            if self._unread_answers > _MAX_UNREAD_ANSWERS:
                self.socket.abort()
        self._flush()

    @property
    def _protocol(self) -> asyncio.Protocol:
        return cast("asyncio.Protocol", cast("TLSTransport", self._above).get_protocol())

    def _flush(self) -> None:
        if self._outgoing.pending and not self.socket.is_closing():
            self.socket.write(self._outgoing.read())

    # What the transport above asks for

    def write(self, data: bytes) -> None:
        """Send something to the client."""
        if data and not self.socket.is_closing():
            self.tls.write(data)
            self._flush()

    def close(self) -> None:
        """Say that this is the end, and close when that is sent."""
        if not self.socket.is_closing():
            with suppress(ssl.SSLError):  # the client has not said so yet, and need not
                self.tls.unwrap()
            self._flush()
            self.socket.close()

    def pause_reading(self) -> None:
        """Hand nothing up any more."""
        self._reading = False
        self.socket.pause_reading()

    def resume_reading(self) -> None:
        """Undo `pause_reading`."""
        self._reading = True
        self.socket.resume_reading()
        # Later, as from a socket: whoever resumes does not expect to be called.
        asyncio.get_running_loop().call_soon(self._read)


class TLSTransport(asyncio.Transport):
    """What the protocol above sees of the connection."""

    def __init__(self, connection: TLSConnection, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._connection = connection
        self._protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Tell of TLS or of the socket; see `asyncio.BaseTransport`."""
        if name == "ssl_object":
            return self._connection.tls
        return self._connection.socket.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Put another protocol in the place of the one above."""
        self._protocol = protocol

    def get_protocol(self) -> Any:
        """Return the protocol above."""
        return self._protocol

    def is_closing(self) -> bool:
        """Tell whether the connection is closed or about to be."""
        return self._connection.socket.is_closing()

    def close(self) -> None:
        """Close when all is sent."""
        self._connection.close()

    def abort(self) -> None:
        """Close at once."""
        self._connection.socket.abort()

    def is_reading(self) -> bool:
        """Tell whether what comes is handed to the protocol."""
        return self._connection.socket.is_reading()

    def pause_reading(self) -> None:
        """Hand nothing to the protocol any more."""
        self._connection.pause_reading()

    def resume_reading(self) -> None:
        """Undo `pause_reading`."""
        self._connection.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Say when writing is held back."""
        self._connection.socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be sent."""
        return self._connection.socket.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return when writing is held back."""
        return self._connection.socket.get_write_buffer_limits()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send something."""
        self._connection.write(bytes(data))

    def can_write_eof(self) -> bool:
        """Tell that half of a TLS connection cannot be closed."""
        return False
