"""Transport of nats-py: recognises foreign servers, and writes nothing before the TLS asked for.

nats-py encrypts a connection if the server's INFO asks for it. Where a `tls://` URL or an SSL
context asks for TLS and the server does not, it goes on in plaintext, credentials first. So the
transport refuses to write until TLS stands, on every connection: the first, those after an outage,
and those to servers that NATS has told of, which nats-py counts as `nats://`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from liftbridge_aio._core.message_lane import MessageLane
from liftbridge_aio._runtime.nats_library import NatsConnection, TcpTransport, errors

if TYPE_CHECKING:
    import ssl
    from urllib.parse import ParseResult

_TLS_SCHEMES: Final = ("tls", "wss")
_TLS_ARGUMENTS: Final = ("tls", "tls_hostname", "tls_handshake_first")
_GREETING: Final = b"INFO"
_READ_BYTES: Final = 2**18
"""Most bytes that the lane takes at once: more than a StreamReader holds."""
_HTTP2_SETTINGS: Final = 4
"""Type of the frame that an HTTP/2 server sends first."""


class NoTLS(errors.Error):
    """The server does not offer the TLS that was asked for; nothing was sent to it."""


class NotNats(errors.Error):
    """The server at the address does not speak NATS."""


def asks_for_tls(schemes: Iterable[str], arguments: Mapping[str, Any]) -> bool:
    """Return True if an address or an argument of nats-py's `connect` requires TLS."""
    return any(arguments.get(name) for name in _TLS_ARGUMENTS) or any(
        scheme.lower() in _TLS_SCHEMES for scheme in schemes
    )


def is_encrypted(connection: NatsConnection) -> bool:
    """Return True if a connection uses TLS now; False if that cannot be determined."""
    # There is no public way to the transport.
    transport = getattr(connection, "_transport", None)
    if getattr(transport, "_using_tls", False):
        return True  # a websocket
    writer = getattr(transport, "_io_writer", None)
    return writer is not None and writer.get_extra_info("ssl_object") is not None


class CheckedTransport(TcpTransport):
    """A TCP connection to NATS that refuses strangers, and plaintext where TLS is asked for."""

    def __init__(self, *, tls_required: bool, lane: MessageLane | None = None) -> None:
        """Keep whether TLS is required; `connect` may be called any number of times.

        Args:
            tls_required: True to write nothing before TLS stands.
            lane: takes its messages out of what is read.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self._tls_required = tls_required
        self._lane = lane
        self._may_write = False
        self._greeted = False
        self._address = "NATS"
        self.awaited = ""
        """The step expected next of the server, for the text of an error."""

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        """Connect, and expect a greeting again."""
        if self._io_writer is not None:  # nats-py leaves one open that failed halfway
            self._io_writer.close()
        self._may_write = self._greeted = False
        if self._lane is not None:
            self._lane.reset()
        self._address = f"{uri.hostname}:{uri.port}"
        self.awaited = f"{self._address} did not accept the connection"
        await super().connect(uri, buffer_size, connect_timeout)
        self._may_write = not self._tls_required
        self.awaited = (
            f"{self._address} accepted the connection and said nothing, as a port does that"
            " expects TLS first (tls_handshake_first)"
        )

    async def connect_tls(
        self,
        uri: str | ParseResult,
        ssl_context: ssl.SSLContext,
        buffer_size: int,
        connect_timeout: int,
    ) -> None:
        """Switch to TLS; from now on anything may be written."""
        self.awaited = f"{self._address} did not finish the TLS handshake"
        await super().connect_tls(uri, ssl_context, buffer_size, connect_timeout)
        self._may_write = True
        self.awaited = f"{self._address} said nothing after the TLS handshake"

    async def readline(self) -> bytes:
        """Read a line; the first of a connection is the INFO of a NATS server.

        Raises:
            NotNats: it begins with something else.
        """
        reader = self._io_reader
        assert reader is not None, "a line is read after connect"  # noqa: S101 - for mypy
        if self._greeted:
            return await reader.readline()
        try:
            start = await reader.readexactly(len(_GREETING))
        except asyncio.IncompleteReadError as error:
            self.close()  # type: ignore[no-untyped-call]
            raise NotNats(
                f"{self._address} closed the connection {_after(error.partial)}"
            ) from None
        if start != _GREETING:
            self.close()  # type: ignore[no-untyped-call]
            raise NotNats(f"{self._address} is no NATS server: {_kind_of(start)}")
        self._greeted = True
        self.awaited = f"{self._address} did not finish its greeting"
        return start + await reader.readline()

    async def read(self, buffer_size: int) -> bytes:
        """Read what is not the lane's; nothing means the end of the stream."""
        lane = self._lane
        while True:
            data: bytes = await super().read(max(buffer_size, _READ_BYTES) if lane else buffer_size)
            if lane is None or not data:
                return data
            data = lane.feed(data)
            if data:
                return data

    @property
    def backlog(self) -> int:
        """Bytes that were written and that the connection has not taken yet."""
        writer = self._io_writer
        return 0 if writer is None else writer.transport.get_write_buffer_size()

    async def drain(self) -> None:
        """Wait until there is room to write."""
        await super().drain()  # type: ignore[no-untyped-call]

    def write(self, payload: bytes) -> None:
        """Write, once that is allowed.

        Raises:
            NoTLS: TLS is required and does not stand.
        """
        if not self._may_write:
            self.close()  # type: ignore[no-untyped-call]
            raise NoTLS(
                f"{self._address} does not offer TLS, which a tls:// address or connect= asks for;"
                " nothing was sent to it"
            )
        self.awaited = f"{self._address} did not answer the request to connect"
        super().write(payload)  # type: ignore[no-untyped-call]

    def writelines(self, payload: list[bytes]) -> None:
        """Write what is buffered; without the TLS that is required, drop it.

        Only `close` of nats-py flushes its buffer on a connection that is not established. It must
        not be stopped by an error, and the publisher has counted those messages as unknown.
        """
        if self._may_write:
            super().writelines(payload)  # type: ignore[no-untyped-call]


class CheckedConnection(NatsConnection):
    """nats-py's client, which uses a `CheckedTransport` wherever it would use plain TCP."""

    def __init__(self, *, tls_required: bool, lane: MessageLane | None = None) -> None:
        """Make an unconnected client.

        Args:
            tls_required: True to write nothing before TLS stands.
            lane: takes its messages out of what is read over TCP; websockets have no lane.

        Raises:
            AttributeError: nats-py keeps its transport elsewhere, so nothing could be checked.
        """
        self._tls_required = tls_required
        self._lane = lane
        super().__init__()
        self._checked  # noqa: B018 - set by nats-py's __init__, through the property below

    @property
    def _transport(self) -> Any:
        return self._checked

    @_transport.setter
    def _transport(self, transport: Any) -> None:
        if type(transport) is TcpTransport:
            transport = CheckedTransport(tls_required=self._tls_required, lane=self._lane)
        self._checked = transport

    @property
    def checked_transport(self) -> CheckedTransport | None:
        """The transport, if it is TCP; it may be written to while the connection is up."""
        transport = self._checked
        return transport if isinstance(transport, CheckedTransport) else None

    @property
    def awaited(self) -> str:
        """The step that the server tried last has not done."""
        return getattr(self._checked, "awaited", "")


def _after(start: bytes) -> str:
    return f"after {start!r}" if start else "without a greeting"


def _kind_of(start: bytes) -> str:
    if start[0] == 0 and start[3] == _HTTP2_SETTINGS:
        return (
            "it speaks HTTP/2, as the Liftbridge API does; NATS listens on another port (4222 by"
            " default), and Client(...) is for this one"
        )
    return f"it begins with {start!r}"
