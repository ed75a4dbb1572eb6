"""All connections of a client: one per address and purpose, made on demand, health-checked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from liftbridge_aio._core.absence import Incarnation
from liftbridge_aio._core.status import CallFailure, Code, Reach, error_from
from liftbridge_aio._runtime.supervisor import Child, Supervisor
from liftbridge_aio.errors import ClientClosed, NotLiftbridge
from liftbridge_aio.options import ClientOptions, timer_seconds
from liftbridge_aio.telemetry import Connected, ConnectFailed, ConnectionStatistics, Lost

from .broker_connection import BrokerConnection, Purpose
from .grpclib_shape import data_lane_available
from .reporter import Reporter
from .tls_context import ClientTLS

logger = logging.getLogger("liftbridge_aio.net")

_CONTROL_WINDOW: Final = 2**20


class ConnectionPool:
    """Makes connections, shares them, checks them while they are quiet, and closes them.

    Changed here only: the connections, the addresses that are suspected to be unreachable or known
    to be unusable, and the incarnations of servers.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        options: ClientOptions,
        reporter: Reporter,
        subscribe_window: Callable[[], int],
    ) -> None:
        self._supervisor = supervisor
        self._reporter = reporter
        self._subscribe_window = subscribe_window
        self._connect_timeout = timer_seconds(options.connect_timeout)
        self._health_interval = timer_seconds(options.health_interval)
        self._health_timeout = timer_seconds(options.health_timeout)
        self._max_receive_bytes = options.max_receive_bytes
        self._data_lane = options.data_lane and data_lane_available()
        self._tls = None if options.tls is None else ClientTLS(options.tls)
        self._unusable: dict[str, CallFailure] = {}
        self._suspected: set[str] = set()
        self._incarnations: dict[str, Incarnation] = {}
        """Of servers that were connected to, and whose connections have not broken since."""
        self._connections: dict[tuple[str, Purpose], BrokerConnection] = {}
        self._connecting: dict[tuple[str, Purpose], asyncio.Future[BrokerConnection]] = {}
        self._watchers: dict[BrokerConnection, Child] = {}

    @property
    def connections(self) -> tuple[BrokerConnection, ...]:
        """The connections that are up."""
        return tuple(self._connections.values())

    def statistics(self) -> tuple[ConnectionStatistics, ...]:
        """Return one record for each connection that is up or being made."""
        connecting = (
            ConnectionStatistics(address, purpose.value, "connecting", None)
            for address, purpose in self._connecting
        )
        return (
            *(connection.statistics() for connection in self._connections.values()),
            *connecting,
        )

    def suspected(self, address: str) -> bool:
        """Return True if a connection there was lost or failed, and no call was answered since.

        A new connection proves nothing: a frozen server, or a proxy without one, accepts it too.
        """
        return address in self._suspected

    def answered(self, address: str) -> None:
        """Record that a call was answered there."""
        self._suspected.discard(address)
        self._unusable.pop(address, None)

    def mark_unusable(self, address: str, failure: CallFailure) -> None:
        """Record that the server there cannot be used, which no retry will change."""
        if address not in self._unusable:
            logger.warning("the server at %s cannot be used: %s", address, failure.text)
        self._unusable[address] = failure

    def unusable(self, address: str) -> CallFailure | None:
        """Return why the server there cannot be used; None if no lasting reason is known."""
        return self._unusable.get(address)

    def incarnation(self, address: str) -> Incarnation:
        """Return the incarnation of the server there: a new one after each broken connection."""
        current = self._incarnations.get(address)
        if current is None:
            now = asyncio.get_running_loop().time()
            current = self._incarnations[address] = Incarnation(address, now)
        return current

    def forget_incarnation(self, address: str) -> None:
        """Record that the server there was unreachable: it may have been restarted meanwhile."""
        self._incarnations.pop(address, None)

    @property
    def permanent_failures(self) -> tuple[str, ...]:
        """Reasons why servers cannot be used that no retry will change, such as failed TLS."""
        return tuple(failure.text for failure in self._unusable.values())

    async def get(self, address: str, purpose: Purpose) -> BrokerConnection:
        """Return the connection to `address`, connecting if there is none.

        Concurrent callers share one attempt to connect. Cancelling abandons the wait only.

        Raises:
            CallFailure: cannot connect.
            ClientClosed: the client was closed.
        """
        key = (address, purpose)
        connection = self._connections.get(key)
        if connection is not None and connection.up:
            return connection
        attempt = self._connecting.get(key)
        if attempt is None:
            attempt = asyncio.get_running_loop().create_future()
            self._connecting[key] = attempt
            try:
                self._supervisor.spawn(
                    self._connect, key, attempt, name=f"connect:{purpose.value}:{address}"
                )
            except BaseException:
                del self._connecting[key]
                raise
        return await asyncio.shield(attempt)

    async def _connect(
        self, key: tuple[str, Purpose], attempt: asyncio.Future[BrokerConnection]
    ) -> None:
        address, purpose = key
        window = self._subscribe_window() if purpose is Purpose.SUBSCRIBE else _CONTROL_WINDOW
        try:
            connection = BrokerConnection(
                address,
                purpose,
                stream_window=window,
                max_receive_bytes=self._max_receive_bytes,
                data_lane=self._data_lane,
                tls=self._tls,
                supervisor=self._supervisor,
                on_lost=self._lost,
            )
            await connection.connect(self._connect_timeout)
        except CallFailure as failure:
            self._could_not_connect(address, purpose, failure)
            attempt.set_exception(failure)
            attempt.exception()  # nobody may be waiting any more
        except Exception as error:
            unexpected = CallFailure(Code.UNKNOWN, f"cannot connect to {address}", Reach.NOT_SENT)
            unexpected.__cause__ = error
            attempt.set_exception(unexpected)
            attempt.exception()
            raise
        else:
            try:
                watcher = self._supervisor.spawn(
                    self._watch, connection, name=f"watch:{purpose.value}:{address}"
                )
            except ClientClosed:
                connection.close()  # the pool was closed meanwhile
                return
            self._connections[key] = connection
            self._watchers[connection] = watcher
            logger.debug("connected %r", connection)
            known = self._unusable.get(address)
            if (
                known is not None and known.unusable is not NotLiftbridge
            ):  # else a call has to show it
                del self._unusable[address]
            self.incarnation(address)
            self._reporter.connected(Connected(address, purpose.value))
            attempt.set_result(connection)
        finally:
            del self._connecting[key]
            if not attempt.done():
                text = f"the client was closed while connecting to {address}"
                attempt.set_exception(CallFailure(Code.UNAVAILABLE, text, Reach.NOT_SENT))
                attempt.exception()

    def _could_not_connect(self, address: str, purpose: Purpose, failure: CallFailure) -> None:
        """Report it; a lasting reason is logged as a warning, once."""
        self._suspected.add(address)
        self.forget_incarnation(address)
        logged = logger.debug
        if failure.unusable is None:
            self._unusable.pop(address, None)
        else:
            if address not in self._unusable:
                logged = logger.warning
            self._unusable[address] = failure
        logged("cannot connect to %s: %s", address, failure.text)
        error = error_from("connect", failure)
        self._reporter.connect_failed(ConnectFailed(address, purpose.value, error))

    async def _watch(self, connection: BrokerConnection) -> None:
        """Health-check a connection while it is quiet: nothing else reveals half-open ones."""
        loop = asyncio.get_running_loop()
        while connection.up:
            heard = connection.last_received
            await asyncio.sleep(heard + self._health_interval - loop.time())
            # The clock is not compared with the end of the pause: rounding can leave a rest that
            # is too short to move the clock, for ever.
            if connection.last_received > heard:
                continue
            checked_at = loop.time()
            try:
                await self._supervisor.call(
                    connection.check_health,
                    self._health_timeout,
                    name=f"health:{connection.address}",
                )
            except CallFailure as failure:
                if connection.last_received < checked_at:
                    connection.fail(f"the health check failed: {failure.text}")
            except ClientClosed:
                return
            except Exception as error:  # without checks a half-open connection would stay
                connection.fail(f"the health check failed by a bug of the client: {error!r}")
                raise
            else:
                self.answered(connection.address)

    def _lost(self, connection: BrokerConnection, reason: str) -> None:
        key = (connection.address, connection.purpose)
        if self._connections.get(key) is connection:
            del self._connections[key]
        watcher = self._watchers.pop(connection, None)
        if watcher is not None:
            watcher.cancel()
        self._suspected.add(connection.address)
        self.forget_incarnation(connection.address)
        self._reporter.lost(Lost(connection.address, connection.purpose.value, reason))

    def resize_subscribe_windows(self) -> None:
        """Apply the current window to every subscribe connection."""
        window = self._subscribe_window()
        for connection in self._connections.values():
            if connection.purpose is Purpose.SUBSCRIBE:
                connection.set_stream_window(window)

    def close(self) -> None:
        """Close every connection. May be called any number of times."""
        connections = list(self._connections.values())
        self._connections.clear()
        self._watchers.clear()
        for connection in connections:
            connection.close()
