"""The server's side of HTTP/2 connections, as robust as a server for tests must be.

grpclib's server leaves its connections open when it is closed (from Python 3.12 on, waiting for
it then never ends), and lets unusual bytes escape into the event loop's error handler.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, cast

from grpclib.config import Configuration
from grpclib.protocol import H2Protocol
from grpclib.server import Server
from h2.settings import SettingCodes

from .framing import MessageCodec
from .service import LiftbridgeService

_MAX_CALLS: Final = 100_000  # at once on one connection; h2 allows 100, a Go server any number
_WINDOW: Final = 2**31 - 1  # one unread call must not hold up the others
_FLUSH_TIMEOUT: Final = 0.2  # seconds that a closed connection may take to send what is left

_log = logging.getLogger("liftbridge_aio.broker")


class Connection(H2Protocol):
    """One client's connection."""

    listener: Listener
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to speak HTTP/2."""
        self.transport = cast("asyncio.Transport", transport)
        self.closed = asyncio.Event()
        self.listener.connections.add(self)
        super().connection_made(transport)
        settings: dict[SettingCodes | int, int] = {SettingCodes.MAX_CONCURRENT_STREAMS: _MAX_CALLS}
        self.connection._connection.update_settings(settings)  # noqa: SLF001 - no public way
        self.connection.flush()

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client; whatever is wrong with them ends this connection only."""
        if self.transport.is_closing():
            return
        try:
            super().data_received(data)
        except Exception:  # noqa: BLE001 - hostile bytes raise what they like in h2
            _log.debug("closing a connection after unusual bytes", exc_info=True)
            self.shut_down()

    def connection_lost(self, exc: BaseException | None) -> None:
        """End the calls of this connection."""
        super().connection_lost(exc)
        self.listener.connections.discard(self)
        self.closed.set()

    def shut_down(self) -> None:
        """Cancel the calls of this connection and begin to close it."""
        self.processor.close("Connection closed by the broker")


class Listener(Server):
    """A listening port and its connections."""

    def __init__(self, service: LiftbridgeService) -> None:
        """Serve `service` once `start` is called; belongs to the running event loop."""
        config = Configuration(http2_connection_window_size=_WINDOW)
        super().__init__([service], codec=MessageCodec(), config=config)
        self._mapping = service.__mapping__()  # grpclib made a plain copy
        self.connections: set[Connection] = set()

    def _protocol_factory(self) -> H2Protocol:
        plain = super()._protocol_factory()
        connection = Connection(plain.handler, plain.config, plain.h2_config)
        connection.listener = self
        return connection

    async def shut_down(self) -> None:
        """Stop to listen, cancel all calls and close all connections, within a second.

        Cancelling this leaves connections that close by themselves later.
        """
        self.close()
        connections = tuple(self.connections)
        for connection in connections:
            connection.shut_down()
        try:
            async with asyncio.timeout(_FLUSH_TIMEOUT):
                for connection in connections:
                    await connection.closed.wait()
        except TimeoutError:
            for connection in connections:
                connection.transport.abort()
        await self.wait_closed()
