"""One HTTP/2 connection to one broker."""

from __future__ import annotations

import asyncio
import enum
import logging
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

from grpclib.client import Channel
from grpclib.config import Configuration
from grpclib.exceptions import StreamTerminatedError
from grpclib.protocol import H2Protocol
from h2.events import SettingsAcknowledged
from h2.settings import SettingCodes

from liftbridge_aio.addresses import parse_address
from liftbridge_aio.errors import InvalidRequest, MalformedData, NotLiftbridge
from liftbridge_aio.status import CallFailure, Code, Reach
from liftbridge_aio.wire import health
from liftbridge_aio.wire.rpc import HEALTH_CHECK, ReplyT, RequestT, Rpc

from .exchange import BytesCodec, Exchange
from .lane_exchange import LaneExchange
from .protocol import BrokerProtocol, ConnectionHandler
from .pumped_exchange import PumpedExchange
from .supervisor import Supervisor
from .tls_context import ClientTLS
from .tls_failures import tls_failure

logger = logging.getLogger("liftbridge_aio.net")

_WIDEST_WINDOW: Final = 2**31 - 1
"""For the connection: one unread stream must not starve the others (only streams are limited)."""

_LEAST_FIRST_WINDOW: Final = 2**16 - 1
"""For a stream: grpclib takes no smaller one to begin with."""

HEALTH_SERVICE: Final = "proto.API"
"""The name under which servers report the health of the Liftbridge API."""


StreamExchange = LaneExchange | PumpedExchange
"""A call whose messages are delivered to a `Receiver`."""


class Purpose(enum.Enum):
    """What a link is for; each purpose has links of its own, so that none blocks another."""

    CONTROL = "control"
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"


class LinkState(enum.Enum):
    """Life of a link; it never comes back from LOST or CLOSED."""

    NEW = "new"
    UP = "up"
    LOST = "lost"
    CLOSED = "closed"


class _OneConnectionChannel(Channel):
    """A channel that connects once: grpclib would silently redial in the middle of a call."""

    spent = False
    on_close: Callable[[], None]
    on_data: Callable[[], None]
    first_protocol: BrokerProtocol | None = None

    def _protocol_factory(self) -> H2Protocol:
        handler = ConnectionHandler(self.on_close)
        self.first_protocol = BrokerProtocol(
            handler, self._config, self._h2_config, on_data=self.on_data
        )
        return self.first_protocol

    @property
    def foreign(self) -> bool:
        """Whether something answered that does not speak HTTP/2."""
        return self.first_protocol is not None and self.first_protocol.foreign

    async def __connect__(self) -> H2Protocol:
        if self.spent:
            if not self._connected or self._protocol is None:
                reason = "Connection lost"
                raise StreamTerminatedError(reason)
            return self._protocol
        self.spent = True
        return await super().__connect__()

    def forget_connection(self) -> None:
        """Let go of a connection that is closed: grpclib would warn that it is not."""
        self._protocol = None


class Link:
    """A connection with its purpose; made by `LinkPool`."""

    def __init__(
        self,
        address: str,
        purpose: Purpose,
        *,
        stream_window: int,
        max_receive_bytes: int,
        data_lane: bool,
        tls: ClientTLS | None = None,
        supervisor: Supervisor,
        on_lost: Callable[[Link, str], None],
    ) -> None:
        """Prepare a connection.

        Raises:
            CallFailure: the files for TLS cannot be used, or servers tell an address that is none.
        """
        self.address = address
        self.purpose = purpose
        self.state = LinkState.NEW
        self.last_received = asyncio.get_running_loop().time()
        """Loop time at which something last came from the server."""
        self._loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._stream_window = stream_window
        self._max_receive_bytes = max_receive_bytes
        self._data_lane = data_lane
        self._tls = tls
        self._supervisor = supervisor
        try:
            host, port = parse_address(address)
        except InvalidRequest as error:
            raise CallFailure(Code.UNAVAILABLE, error.message, Reach.NOT_SENT) from error
        self._channel = _OneConnectionChannel(
            host,
            port,
            codec=BytesCodec(),
            ssl=None if tls is None else tls.context(),
            config=Configuration(
                ssl_target_name_override=None if tls is None else tls.options.server_name,
                http2_connection_window_size=_WIDEST_WINDOW,
                http2_stream_window_size=max(stream_window, _LEAST_FIRST_WINDOW),
            ),
        )
        self._channel.on_close = self._closed_below
        self._channel.on_data = self.received

    def __repr__(self) -> str:
        """Show where it leads and how it is."""
        return f"<Link {self.purpose.value} {self.address} {self.state.value}>"

    async def connect(self, timeout: float) -> None:
        """Open the connection. Cancelling closes it.

        Raises:
            CallFailure: nobody listens there, or not within `timeout` seconds, or TLS failed.
        """
        stands = False
        try:
            async with asyncio.timeout(timeout):
                protocol = await self._channel.__connect__()
                if self._tls is not None:
                    # In TLS 1.3 the client is done before the server has looked at its certificate.
                    await cast("BrokerProtocol", protocol).spoken.wait()
            stands = True
        except TimeoutError as error:
            what = "a connection" if self._tls is None else "a TLS connection"
            text = f"{self.address} did not accept {what} within {timeout:g} s"
            raise CallFailure(Code.UNAVAILABLE, text, Reach.NOT_SENT) from error
        except (OSError, ValueError) as error:  # the latter for names that cannot be asked for
            self._raise_tls_failure(error)
            text = f"cannot connect to {self.address}: {error}"
            raise CallFailure(Code.UNAVAILABLE, text, Reach.NOT_SENT) from error
        finally:
            if self.state is LinkState.NEW and not stands:
                self.close()
        if self.state is not LinkState.NEW:
            self._channel.forget_connection()
            self._raise_tls_failure(cast("BrokerProtocol", protocol).lost_by)
            self._raise_if_foreign()
            text = f"{self.address} closed the connection at once"
            raise CallFailure(Code.UNAVAILABLE, text, Reach.NOT_SENT)
        protocol.processor.processors[SettingsAcknowledged] = self._give_credit
        self.state = LinkState.UP
        self.last_received = self._loop.time()
        if self._stream_window < _LEAST_FIRST_WINDOW:
            self.set_stream_window(self._stream_window)

    def _raise_tls_failure(self, error: BaseException | None) -> None:
        if self._tls is not None and isinstance(error, ssl.SSLError):
            shows = self._tls.shows_certificate
            raise tls_failure(self.address, error, shows_certificate=shows)

    @property
    def up(self) -> bool:
        """Whether calls can be made."""
        return self.state is LinkState.UP

    @property
    def closed_unheard(self) -> bool:
        """Whether the server has closed a plain connection without having said anything."""
        protocol = self._channel.first_protocol
        closed = self.state is LinkState.LOST
        return closed and self._tls is None and protocol is not None and not protocol.heard

    def open(self, rpc: Rpc[Any, Any], timeout: float | None = None) -> Exchange:
        """Prepare a call; use it as an async context manager.

        Args:
            rpc: the procedure.
            timeout: seconds, also sent to the server as its deadline; None sends none.

        Raises:
            CallFailure: the link is down.
        """
        self._check_up()
        limit = min(self._max_receive_bytes, rpc.max_reply_bytes)
        return Exchange(self._channel, rpc, max_receive_bytes=limit, timeout=timeout)

    def stream(self, rpc: Rpc[Any, Any]) -> StreamExchange:
        """Prepare a call whose messages are delivered to a `Receiver`.

        Raises:
            CallFailure: the link is down.
        """
        self._check_up()
        protocol = self._channel.first_protocol
        if self._data_lane and protocol is not None:
            return LaneExchange(
                self._channel,
                rpc,
                max_receive_bytes=self._max_receive_bytes,
                protocol=protocol,
                window=lambda: self._stream_window,  # it may change before the call is opened
            )
        return PumpedExchange(
            self._channel,
            rpc,
            max_receive_bytes=self._max_receive_bytes,
            supervisor=self._supervisor,
            on_data=self.received,
        )

    def _check_up(self) -> None:
        if self.state is not LinkState.UP:
            self._raise_if_foreign()
            text = f"the link to {self.address} is {self.state.value}"
            raise CallFailure(Code.UNAVAILABLE, text, Reach.NOT_SENT)

    async def unary(
        self, rpc: Rpc[RequestT, ReplyT], request: RequestT, timeout: float | None
    ) -> ReplyT:
        """Make a unary call. To be run in a task of its own; cancelling resets the call.

        Raises:
            CallFailure: it did not succeed.
        """
        try:
            data = await self._exchange(rpc, bytes(request), timeout)
        except CallFailure as failure:
            self._raise_if_foreign(failure)
            raise
        try:
            return rpc.read_reply(data)
        except MalformedData as error:
            raise CallFailure(Code.INTERNAL, str(error)) from error

    async def _exchange(self, rpc: Rpc[Any, Any], request: bytes, timeout: float | None) -> bytes:
        async with self.open(rpc, timeout) as exchange:
            await exchange.send([request], end=True)
            data = await exchange.receive()
            if data is None:
                raise CallFailure(Code.INTERNAL, "the server answered without a message")
            self.received()
            trailing = await exchange.receive()
            if trailing is not None:
                raise CallFailure(Code.INTERNAL, "the server answered with two messages")
        return data

    def _raise_if_foreign(self, cause: CallFailure | None = None) -> None:
        if self._channel.foreign:
            text = f"{self.address} does not speak HTTP/2"
            raise CallFailure(
                Code.UNAVAILABLE, text, Reach.NOT_SENT, unfit=NotLiftbridge
            ) from cause

    async def check_health(self, timeout: float) -> None:
        """Ask the server for a sign of life; any answer is one. Cancelling resets the call.

        Raises:
            CallFailure: no answer.
        """
        request = health.HealthCheckRequest(service=HEALTH_SERVICE)
        try:
            await self.unary(HEALTH_CHECK, request, timeout)
        except CallFailure as failure:
            if failure.reach is not Reach.ANSWERED:
                raise
            self.received()

    def received(self) -> None:
        """Note that the server is alive."""
        self.last_received = self._loop.time()

    def set_stream_window(self, size: int) -> None:
        """Change how many bytes each stream may send ahead of its reader."""
        protocol = self._channel._protocol  # noqa: SLF001 - pinned by a test
        if self.state is not LinkState.UP or protocol is None:
            return
        connection = protocol.connection
        connection._connection.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: size})  # noqa: SLF001 - pinned
        connection.flush()
        self._stream_window = size
        if self._channel.first_protocol is not None:
            self._channel.first_protocol.set_window(size)

    def _give_credit(self, _: SettingsAcknowledged) -> None:
        """Let servers go on after the windows have shrunk.

        h2 gives credit back only when something is read. A stream whose window has just become
        negative, and of which everything is read, would wait for ever.
        """
        protocol = self._channel._protocol  # noqa: SLF001 - pinned by a test
        if protocol is None:
            return
        for number in protocol.processor.streams:
            protocol.connection._connection.acknowledge_received_data(0, number)  # noqa: SLF001 - pinned
        protocol.connection.flush()

    def fail(self, reason: str) -> None:
        """Give the link up: the peer is dead or talks nonsense. Everything on it ends."""
        if self.state is LinkState.UP:
            self._lose(reason)
        self._abort()

    def close(self) -> None:
        """Close the link. May be called any number of times."""
        if self.state is not LinkState.LOST:
            self.state = LinkState.CLOSED
        self._abort()

    def _abort(self) -> None:
        protocol = self._channel._protocol  # noqa: SLF001 - pinned by a test
        transport = getattr(getattr(protocol, "connection", None), "_transport", None)
        self._channel.close()
        if transport is not None:
            # Closing alone would wait for a dead peer to take what is still to be written.
            transport.abort()

    def _closed_below(self) -> None:
        self._channel.forget_connection()
        if self.state is LinkState.UP:
            self._lose("the connection was closed")
        elif self.state is LinkState.NEW:
            self.state = LinkState.LOST

    def _lose(self, reason: str) -> None:
        self.state = LinkState.LOST
        logger.info("lost the %s link to %s: %s", self.purpose.value, self.address, reason)
        self._on_lost(self, reason)
