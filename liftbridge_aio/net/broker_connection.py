"""One HTTP/2 connection to one broker."""

from __future__ import annotations

import asyncio
import enum
import logging
import ssl
from collections.abc import Callable, Generator
from typing import Any, Final, cast

from grpclib.client import Channel
from grpclib.config import Configuration
from grpclib.exceptions import StreamTerminatedError
from grpclib.protocol import H2Protocol
from h2.events import SettingsAcknowledged
from h2.settings import SettingCodes

from liftbridge_aio._core.addresses import parse_address
from liftbridge_aio._core.status import CallFailure, Code, Reach
from liftbridge_aio._core.tls_failures import tls_failure
from liftbridge_aio._runtime.supervisor import Supervisor
from liftbridge_aio.errors import InvalidRequest, MalformedData, NotLiftbridge
from liftbridge_aio.telemetry import ConnectionStatistics
from liftbridge_aio.wire import health
from liftbridge_aio.wire.rpc import HEALTH_CHECK, ReplyT, RequestT, Rpc

from .call import BytesCodec, Call
from .fast_call import FastCall
from .plain_call import PlainCall
from .protocol import BrokerProtocol, ConnectionHandler
from .tls_context import ClientTLS

logger = logging.getLogger("liftbridge_aio.net")

_WIDEST_WINDOW: Final = 2**31 - 1
"""Window of the connection: only streams are limited, so that no unread one starves others."""

_NATS_GREETING: Final = b"INFO"
_SMALLEST_FIRST_WINDOW: Final = 2**16 - 1
"""Window of a stream: grpclib accepts no smaller one at the start."""

HEALTH_SERVICE: Final = "proto.API"
"""The name under which servers report the health of the Liftbridge API."""


StreamCall = FastCall | PlainCall
"""A call whose messages are delivered to a `Receiver`."""


class Purpose(enum.Enum):
    """Purpose of a connection; each has its own, so that none blocks another."""

    CONTROL = "control"
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"


class ConnectionState(enum.Enum):
    """Life of a connection; LOST and CLOSED are final."""

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
    def not_http2(self) -> bytes | None:
        """The first bytes from a peer that does not speak HTTP/2; None if it does, or sent none."""
        protocol = self.first_protocol
        return protocol.first_bytes if protocol is not None and protocol.not_http2 else None

    async def __connect__(self) -> H2Protocol:
        if self.spent:
            if not self._connected or self._protocol is None:
                raise StreamTerminatedError("Connection lost")
            return self._protocol
        self.spent = True
        return await super().__connect__()

    def forget_connection(self) -> None:
        """Drop a closed connection: grpclib would warn that it is still open."""
        self._protocol = None


class BrokerConnection:
    """One connection to one broker for one purpose; made by `ConnectionPool`.

    Its state is changed here only.
    """

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
        on_lost: Callable[[BrokerConnection, str], None],
    ) -> None:
        """Prepare a connection.

        Raises:
            CallFailure: a TLS file cannot be used, or the advertised address is invalid.
        """
        self.address = address
        self.purpose = purpose
        self.state = ConnectionState.NEW
        self.last_received = asyncio.get_running_loop().time()
        """Loop time at which something was last received from the server."""
        self.round_trip_time: float | None = None
        """Seconds that the last health check or ping took; None before the first."""
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
                http2_stream_window_size=max(stream_window, _SMALLEST_FIRST_WINDOW),
            ),
        )
        self._channel.on_close = self._closed_by_grpclib
        self._channel.on_data = self.received

    def __repr__(self) -> str:
        """Show purpose, address and state."""
        return f"<BrokerConnection {self.purpose.value} {self.address} {self.state.value}>"

    async def connect(self, timeout: float) -> None:
        """Open the connection. Cancelling closes it.

        Raises:
            CallFailure: no server accepted it within `timeout` seconds, or TLS failed.
        """
        connected = False
        try:
            async with asyncio.timeout(timeout):
                protocol = await self._channel.__connect__()
                if self._tls is not None:
                    # In TLS 1.3 the handshake ends before the server has checked our certificate.
                    await cast("BrokerProtocol", protocol).received_or_lost.wait()
            connected = True
        except TimeoutError as error:
            what = "a connection" if self._tls is None else "a TLS connection"
            raise CallFailure(
                Code.UNAVAILABLE,
                f"{self.address} did not accept {what} within {timeout:g} s",
                Reach.NOT_SENT,
            ) from error
        except (OSError, ValueError) as error:  # the latter for invalid host names
            self._raise_tls_failure(error)
            raise CallFailure(
                Code.UNAVAILABLE, f"cannot connect to {self.address}: {error}", Reach.NOT_SENT
            ) from error
        finally:
            if self.state is ConnectionState.NEW and not connected:
                self.close()
        if self.state is not ConnectionState.NEW:
            self._channel.forget_connection()
            self._raise_tls_failure(cast("BrokerProtocol", protocol).lost_by)
            self._raise_if_not_http2()
            raise CallFailure(
                Code.UNAVAILABLE,
                f"{self.address} closed the connection as soon as it was open",
                Reach.NOT_SENT,
            )
        protocol.processor.processors[SettingsAcknowledged] = self._give_credit
        self.state = ConnectionState.UP
        self.last_received = self._loop.time()
        if self._stream_window < _SMALLEST_FIRST_WINDOW:
            self.set_stream_window(self._stream_window)

    def _raise_tls_failure(self, error: BaseException | None) -> None:
        if self._tls is not None and isinstance(error, ssl.SSLError):
            shows = self._tls.shows_certificate
            raise tls_failure(self.address, error, shows_certificate=shows)

    def statistics(self) -> ConnectionStatistics:
        """Return where it leads, its state and its last round-trip time."""
        return ConnectionStatistics(
            self.address, self.purpose.value, self.state.value, self.round_trip_time
        )

    @property
    def up(self) -> bool:
        """True if calls can be made."""
        return self.state is ConnectionState.UP

    @property
    def closed_silently(self) -> bool:
        """True if the server closed a plain connection without sending anything."""
        protocol = self._channel.first_protocol
        closed = self.state is ConnectionState.LOST
        return closed and self._tls is None and protocol is not None and not protocol.first_bytes

    def open(self, rpc: Rpc[Any, Any], timeout: float | None = None) -> Call:
        """Prepare a call; use it as an async context manager.

        Args:
            rpc: the procedure.
            timeout: seconds, also sent to the server as its deadline; None sends none.

        Raises:
            CallFailure: the connection is down.
        """
        self._check_up()
        limit = self._max_receive_bytes
        if not rpc.streams_replies:
            limit = min(limit, rpc.max_reply_bytes)
        return Call(
            self._channel, rpc, address=self.address, max_receive_bytes=limit, timeout=timeout
        )

    def stream(self, rpc: Rpc[Any, Any]) -> StreamCall:
        """Prepare a call whose messages are delivered to a `Receiver`.

        Raises:
            CallFailure: the connection is down.
        """
        self._check_up()
        protocol = self._channel.first_protocol
        if self._data_lane and protocol is not None:
            return FastCall(
                self._channel,
                rpc,
                address=self.address,
                max_receive_bytes=self._max_receive_bytes,
                protocol=protocol,
                window=lambda: self._stream_window,  # it may change before the call is opened
            )
        return PlainCall(
            self._channel,
            rpc,
            address=self.address,
            max_receive_bytes=self._max_receive_bytes,
            supervisor=self._supervisor,
            on_data=self.received,
        )

    def _check_up(self) -> None:
        if self.state is not ConnectionState.UP:
            self._raise_if_not_http2()
            raise CallFailure(
                Code.UNAVAILABLE,
                f"the connection to {self.address} is {self.state.value}",
                Reach.NOT_SENT,
            )

    async def unary(
        self, rpc: Rpc[RequestT, ReplyT], request: RequestT, timeout: float | None
    ) -> ReplyT:
        """Make a unary call. To be run in a task of its own; cancelling resets the call.

        Raises:
            CallFailure: it did not succeed.
        """
        sent_at = self._loop.time()
        try:
            data = await self._unary_bytes(rpc, bytes(request), timeout)
        except CallFailure as failure:
            self._raise_if_not_http2(failure)
            if rpc is HEALTH_CHECK and failure.reach is Reach.ANSWERED:
                self.round_trip_time = self._loop.time() - sent_at
            raise
        if rpc is HEALTH_CHECK:
            self.round_trip_time = self._loop.time() - sent_at
        try:
            return await _run_in_steps(rpc.reply_in_steps(data))
        except MalformedData as error:
            raise CallFailure(Code.INTERNAL, str(error)) from error

    async def _unary_bytes(
        self, rpc: Rpc[Any, Any], request: bytes, timeout: float | None
    ) -> bytes:
        async with self.open(rpc, timeout) as call:
            await call.send([request], end=True)
            data = await call.receive()
            if data is None:
                raise CallFailure(Code.INTERNAL, "the server answered without a message")
            self.received()
            trailing = await call.receive()
            if trailing is not None:
                raise CallFailure(Code.INTERNAL, "the server answered with two messages")
        return data

    def _raise_if_not_http2(self, cause: CallFailure | None = None) -> None:
        first_bytes = self._channel.not_http2
        if first_bytes is not None:
            known = ", as a NATS server does" if first_bytes == _NATS_GREETING else ""
            raise CallFailure(
                Code.UNAVAILABLE,
                f"{self.address} does not speak HTTP/2: it sent {first_bytes!r}{known}",
                Reach.NOT_SENT,
                unusable=NotLiftbridge,
            ) from cause

    async def check_health(self, timeout: float) -> None:
        """Make a health check; any answer of the server passes it. Cancelling resets the call.

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
        """Record that something was received from the server."""
        self.last_received = self._loop.time()

    def set_stream_window(self, size: int) -> None:
        """Change how many bytes each stream may send ahead of its reader."""
        protocol = self._channel._protocol  # noqa: SLF001 - pinned by a test
        if self.state is not ConnectionState.UP or protocol is None:
            return
        connection = protocol.connection
        connection._connection.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: size})  # noqa: SLF001 - pinned
        connection.flush()
        self._stream_window = size
        if self._channel.first_protocol is not None:
            self._channel.first_protocol.set_window(size)

    def _give_credit(self, _: SettingsAcknowledged) -> None:
        """Give credit to streams after their windows have shrunk.

        h2 gives credit only when something is read. A stream whose window has just become negative
        and of which everything was read before would stall for ever.
        """
        protocol = self._channel._protocol  # noqa: SLF001 - pinned by a test
        if protocol is None:
            return
        for number in protocol.processor.streams:
            protocol.connection._connection.acknowledge_received_data(0, number)  # noqa: SLF001 - pinned
        protocol.connection.flush()

    def fail(self, reason: str) -> None:
        """Mark the connection as lost, because the peer is dead or misbehaves; its calls fail."""
        if self.state is ConnectionState.UP:
            self._lose(reason)
        self._abort()

    def close(self) -> None:
        """Close the connection. May be called any number of times."""
        if self.state is not ConnectionState.LOST:
            self.state = ConnectionState.CLOSED
        self._abort()

    def _abort(self) -> None:
        protocol = self._channel._protocol  # noqa: SLF001 - pinned by a test
        transport = getattr(getattr(protocol, "connection", None), "_transport", None)
        self._channel.close()
        if transport is not None:
            # Closing alone would wait until a dead peer has read what is still unsent.
            transport.abort()

    def _closed_by_grpclib(self) -> None:
        self._channel.forget_connection()
        if self.state is ConnectionState.UP:
            self._lose("the connection was closed")
        elif self.state is ConnectionState.NEW:
            self.state = ConnectionState.LOST

    def _lose(self, reason: str) -> None:
        self.state = ConnectionState.LOST
        logger.info("lost the %s connection to %s: %s", self.purpose.value, self.address, reason)
        self._on_lost(self, reason)


async def _run_in_steps(steps: Generator[None, None, ReplyT]) -> ReplyT:
    """Run a computation step by step, with other tasks in between. May be cancelled."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            reply: ReplyT = end.value
            return reply
        await asyncio.sleep(0)
