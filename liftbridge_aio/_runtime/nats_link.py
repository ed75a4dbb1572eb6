"""The connection to NATS that a publisher uses: its own, or one that it was given.

nats-py, as it is (2.9 to 2.16), and what keeps its hazards off:

- Inside `publish` it may wait for the socket, without a limit, and it swallows cancellations there.
  So only the publisher's own task calls it, never that of a user.
- While it reconnects it keeps what is published in a buffer, for as long as that takes. So nothing
  is given to it then: what waits here can still be called "not sent".
- Its `flush` writes the PING before what is buffered, so one PONG does not confirm
  that. The second one does.
- Its first connect tries every address sixty times, two seconds apart; cancelling it once is not
  always enough.
- Its `close` waits for a dead server to take what is buffered, and a reconnect that it cancels goes
  on for ever if an attempt fails in that very moment.
- It logs every error, unless it is given a callback for them.
- It throws messages of a subscription away that has too many unread; ours has no limit, since no
  more acks come than messages are in flight.
"""

from __future__ import annotations

import asyncio
import enum
import inspect
import logging
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from liftbridge_aio._core.arguments import check_type
from liftbridge_aio._core.message_lane import MessageLane
from liftbridge_aio._core.tls_failures import meaning_of
from liftbridge_aio._runtime.nats_library import Msg, NatsConnection, Subscription
from liftbridge_aio._runtime.nats_transport import (
    CheckedConnection,
    CheckedTransport,
    NoTLS,
    asks_for_tls,
    is_encrypted,
)
from liftbridge_aio._runtime.supervisor import wait_despite_cancellation
from liftbridge_aio.errors import (
    ClientClosed,
    ConnectionFailed,
    ConnectTimeout,
    InvalidRequest,
    ServerNotTrusted,
    TLSFailed,
    WrongType,
)

logger = logging.getLogger("liftbridge_aio.nats")

_DEFAULTS: Final[Mapping[str, Any]] = {"max_reconnect_attempts": -1}
"""A publisher outlives an outage of any length; its messages have deadlines of their own."""

_ARGUMENTS: Final = inspect.signature(NatsConnection.connect).parameters.keys() - {
    "self",
    "servers",
}

_DISTRUST_HINT: Final = (
    "check that this is the right server, that the context in connect= trusts the authority that"
    " signed its certificate, the dates of both, and tls_hostname if its name is not that of the"
    " address"
)
_ABORT_TIMEOUT: Final = 0.5
_CANCEL_INTERVAL: Final = 0.01


class LinkState(enum.Enum):
    """State of a connection to NATS."""

    UP = "up"
    AWAY = "away"
    """The connection is lost; a reconnect is in progress."""
    OVER = "over"
    """The connection is closed or closing."""


class NatsLink:
    """A connection, and the one subscription that all acks come to."""

    def __init__(
        self,
        connection: NatsConnection | Sequence[str],
        arguments: Mapping[str, Any],
        on_error: Callable[[Exception], None] | None = None,
        lane: MessageLane | None = None,
    ) -> None:
        """Keep what to use: a connection, or the addresses to connect to and how.

        Args:
            connection: a connection, or addresses.
            arguments: further arguments of nats-py's `connect`.
            on_error: called with each error of an open connection, unless it was given.
            lane: takes its messages before nats-py does; not on a connection that was given, nor
                over websockets.
        """
        self._given = isinstance(connection, NatsConnection)
        self._servers = [] if isinstance(connection, NatsConnection) else _addresses(connection)
        self._arguments = arguments
        self._on_error = on_error
        self._lane = lane
        self._connection = connection if isinstance(connection, NatsConnection) else None
        self._opening: CheckedConnection | None = None
        self._asks_for_tls = asks_for_tls(
            (server.partition("://")[0] for server in self._servers), arguments
        )
        self._inbox: Subscription | None = None
        self._errors: list[Exception] = []
        self._complained = False
        self._tried_all: asyncio.Event = asyncio.Event()

    @property
    def connection(self) -> NatsConnection:
        """The connection, once it is open.

        Raises:
            ClientClosed: it is not.
        """
        if self._connection is None:
            raise ClientClosed("the publisher was never opened")
        return self._connection

    @property
    def state(self) -> LinkState:
        """The current state."""
        connection = self._connection
        if connection is None or connection.is_closed or connection.is_draining:
            return LinkState.OVER
        return LinkState.UP if connection.is_connected and not self._lacks_tls else LinkState.AWAY

    @property
    def outage(self) -> str:
        """Return why nothing can be sent, while the state is AWAY."""
        if self.connection.is_connected:
            return "the connection to NATS is without the TLS that it asks for"
        error = self.last_error
        reason = "" if error is None else f" ({_without_secrets(str(error) or repr(error))})"
        return f"the connection to NATS is lost{reason}"

    def check(self) -> None:
        """Refuse to send over a connection that is closed, or without its TLS.

        Raises:
            ConnectionFailed: it is closed.
            TLSFailed: it was given, asks for TLS, and is without.
        """
        if self.state is LinkState.OVER:
            raise ConnectionFailed("the NATS connection is closed") from self.last_error
        if self.connection.is_connected and self._lacks_tls:
            raise _no_tls(
                "the NATS connection that was given asks for TLS and is without: the server does"
                " not offer it; nothing is sent over it"
            )

    @property
    def _lacks_tls(self) -> bool:
        # A connection of our own never does: it is a `CheckedConnection`.
        return self._given and self._asks_for_tls and not is_encrypted(self.connection)

    @property
    def transport(self) -> CheckedTransport | None:
        """The transport of a connection of our own over TCP; None for any other."""
        connection = self._connection
        if isinstance(connection, CheckedConnection) and not self._given:
            return connection.checked_transport
        return None

    @property
    def reconnects(self) -> int:
        """Number of reconnects."""
        return int(self.connection.stats["reconnects"])

    @property
    def last_error(self) -> Exception | None:
        """The last error reported by NATS, such as a missing permission."""
        return self.connection.last_error

    # Opening

    async def open(self, timeout: float) -> None:
        """Connect, unless it is somebody else's connection: each address is tried once.

        Cancelling leaves nothing behind.

        Raises:
            ConnectionFailed: no NATS server answered, or the connection given is not open.
            ConnectTimeout: not in time.
            TLSFailed: TLS is asked for, and no server offers it.
        """
        if self._given:
            if self.state is LinkState.OVER:
                raise ConnectionFailed("the NATS connection that was given is closed")
            if not (self.connection.is_connected or self.connection.is_reconnecting):
                raise ConnectionFailed("the NATS connection that was given is not connected")
            given = self.connection
            self._asks_for_tls = asks_for_tls((uri.scheme for uri in given.servers), given.options)
            self.check()
            return
        self._opening = connection = CheckedConnection(
            tls_required=self._asks_for_tls, lane=self._lane
        )
        try:
            await self._connect(connection, timeout)
        except BaseException:
            await wait_despite_cancellation(close_for_good(connection), _ABORT_TIMEOUT)
            _abort(connection)
            raise
        self._connection = connection

    async def _connect(self, connection: CheckedConnection, timeout: float) -> None:
        arguments = {**_DEFAULTS, **self._arguments, "error_cb": self._note_error}
        connecting = asyncio.ensure_future(connection.connect(self._servers, **arguments))
        failing = asyncio.ensure_future(self._tried_all.wait())
        both: set[asyncio.Task[Any]] = {connecting, failing}
        try:
            await asyncio.wait(both, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await wait_despite_cancellation(_end(both), _ABORT_TIMEOUT)
        where = f"no connection to NATS at {', '.join(self._servers)}"
        if connecting.done() and not connecting.cancelled():
            failure = connecting.exception()
            if failure is None:
                return
            raise self._failure(where, [failure])
        if self._tried_all.is_set():
            raise self._failure(where, self._errors)
        reasons = [connection.awaited] if connection.awaited else []
        raise ConnectTimeout(
            _without_secrets(": ".join([f"{where} within {timeout:g} s", *reasons]))
        ) from (self._errors[-1] if self._errors else None)

    def _failure(self, where: str, errors: Sequence[BaseException]) -> ConnectionFailed:
        """Return why connecting failed, each reason once."""
        reasons = "; ".join(dict.fromkeys(str(error) or repr(error) for error in errors))
        text = _without_secrets(f"{where}: {reasons}")
        kinds = {_kind_of(error) for error in errors}
        kind = kinds.pop() if len(kinds) == 1 else ConnectionFailed
        failure = _no_tls(text) if kind is TLSFailed else kind(text)
        if kind is ServerNotTrusted:
            failure.hint = _DISTRUST_HINT
        failure.__cause__ = errors[-1]
        return failure

    async def _note_error(self, error: Exception) -> None:
        if isinstance(error, TimeoutError) and not str(error) and self._opening is not None:
            error.args = (self._opening.awaited,)
        if self._connection is None:
            self._errors.append(error)
            if len(self._errors) >= len(self._servers):
                self._tried_all.set()
        else:
            # Once for each time that it is lost; then it fails again and again until it is back.
            level = logging.DEBUG if self._complained else logging.WARNING
            logger.log(level, "the connection to NATS: %s", _without_secrets(str(error)))
            self._complained = self.state is LinkState.AWAY
            if self._on_error is not None:
                self._on_error(error)

    # Using

    async def listen(self, subject: str, callback: Callable[[Msg], Awaitable[None]]) -> None:
        """Subscribe to a subject with a callback, which must not wait.

        Raises:
            ConnectionFailed: the connection has been closed meanwhile.
        """
        try:
            self._inbox = await self.connection.subscribe(
                subject, cb=callback, pending_msgs_limit=0, pending_bytes_limit=0
            )
        except Exception as error:
            raise ConnectionFailed(f"{subject} cannot be subscribed to: {error}") from error

    async def prove(self) -> None:
        """Wait until the NATS server has received everything that was sent before.

        Raises:
            Exception: of nats-py, where the connection is lost or closed meanwhile.
        """
        # The first PING is written before what is buffered, the second one after it.
        for _ in range(2):
            await self.connection.flush()

    # Closing

    async def close(self, timeout: float) -> None:
        """Release the connection: end the subscription, or close the connection if it is our own.

        Returns within `timeout` seconds, or little more. Cancelling takes effect after that.
        """
        if self._connection is None:
            return
        try:
            ended = await wait_despite_cancellation(self._let_go(self._connection), timeout)
        finally:
            if not self._given:
                _abort(self._connection)
        if not ended:
            logger.warning("the connection to NATS did not end within %g s", timeout)

    async def _let_go(self, connection: NatsConnection) -> None:
        inbox, self._inbox = self._inbox, None
        try:
            if not self._given:
                await close_for_good(connection)
            elif inbox is not None and self.state is not LinkState.OVER:
                await inbox.unsubscribe()
        except Exception as error:  # noqa: BLE001 - there is nobody left whom it would help
            logger.debug("while letting go of the connection to NATS: %s", error)


def check_connect_arguments(servers: Sequence[str], connect: object) -> None:
    """Refuse further arguments that nats-py's `connect` cannot take, or cannot keep.

    Raises:
        InvalidRequest: an argument that it does not have, or TLS for a scheme without.
        WrongType: `connect` is no mapping, or `tls` no context.
    """
    if connect is None:
        connect = {}
    check_type(connect, Mapping, "connect= is a mapping of arguments for nats-py's connect")
    assert isinstance(connect, Mapping)  # noqa: S101 - for mypy
    unknown = [name for name in connect if name not in _ARGUMENTS]
    if unknown:
        raise InvalidRequest(f"nats-py's connect takes no {unknown[0]!r}")
    context = connect.get("tls")
    if context is not None and not isinstance(context, ssl.SSLContext):
        raise WrongType(f"tls in connect= is an ssl.SSLContext, not {type(context).__name__}")
    schemes = [server.partition("://")[0].lower() for server in servers]
    if "ws" in schemes and asks_for_tls(schemes, connect):
        raise InvalidRequest("ws:// is never encrypted; write wss://, or do not ask for TLS")


async def close_for_good(connection: NatsConnection) -> None:
    """Close a connection in any state, and prevent reconnects."""
    try:
        await connection.close()
    except Exception as error:  # noqa: BLE001 - there is nobody left whom it would help
        logger.debug("while closing the connection to NATS: %s", error)
    reconnecting = getattr(connection, "_reconnection_task", None)
    if reconnecting is not None and not reconnecting.done():
        await _end({reconnecting})


def _kind_of(error: BaseException) -> type[ConnectionFailed]:
    """Return the class of our error for what nats-py says of one address."""
    if isinstance(error, NoTLS):
        return TLSFailed
    if isinstance(error, ssl.SSLError):
        return meaning_of(error, shows_certificate=True)[0] or ConnectionFailed
    return ConnectionFailed


def _no_tls(text: str) -> TLSFailed:
    failure = TLSFailed(text)
    failure.hint = (
        "switch TLS on in the NATS server; or, where plaintext will do, ask for none: nats:// and"
        " no tls= in connect="
    )
    return failure


def _without_secrets(text: str) -> str:
    """Remove users, passwords and tokens from the addresses in a text."""
    return re.sub(r"(?<=://)[^\s/,]*@", "", text)


def _addresses(servers: Sequence[str]) -> list[str]:
    """Add the scheme to each address, which not every version of nats-py does."""
    return [server if "://" in server else f"nats://{server}" for server in servers]


async def _end(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel tasks until they have ended: `wait_for` before Python 3.12 swallows it at times."""
    while tasks:
        for task in tasks:
            task.cancel()
        done, tasks = await asyncio.wait(tasks, timeout=_CANCEL_INTERVAL)
        for task in done:
            if not task.cancelled():
                task.exception()  # marks it as retrieved


def _abort(connection: NatsConnection) -> None:
    """Discard what a dead server has not received; does nothing to a connection that has ended."""
    # There is no public way to the transport.
    writer = getattr(getattr(connection, "_transport", None), "_io_writer", None)
    if writer is not None:
        writer.transport.abort()
