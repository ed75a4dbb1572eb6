"""The client: creates its parts, and has its public calls.

The parts are imported on connecting, so that importing the package stays cheap.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from liftbridge_aio._core.arguments import check_text, check_type
from liftbridge_aio._core.public_face import as_one_class
from liftbridge_aio._runtime.event_loop import bound_to_process, running_loop
from liftbridge_aio.errors import InvalidRequest, UsageError
from liftbridge_aio.options import ClientOptions, Duration, timer_seconds

from .administration import ClientAdministration
from .groups import ClientGroups
from .publishing import ClientPublishing
from .queues import ClientQueues
from .reading import ClientReading
from .server_url import parse_servers, split_servers
from .transactions import ClientTransactions
from .values import ClientValues

if TYPE_CHECKING:
    from liftbridge_aio._publish.publisher import PublisherStatistics
    from liftbridge_aio.telemetry import ConnectionStatistics, SubscriptionStatistics

    from .parts import ClientParts


_LEAST_STOP_TIMEOUT: Final = 1.0
"""Seconds that tasks have to end in any case, however long the acks took."""


class ClientStatistics(NamedTuple):
    """Figures of a client at one moment."""

    connections: tuple[ConnectionStatistics, ...]
    """The connections that are up or being made."""
    subscriptions: tuple[SubscriptionStatistics, ...]
    """The partitions that are being read, those of merged subscriptions and of groups included."""
    publisher: PublisherStatistics | None
    """Messages in flight, and counts of those that were settled; None before it is connected."""


@as_one_class
class Client(
    ClientGroups,
    ClientTransactions,
    ClientValues,
    ClientQueues,
    ClientPublishing,
    ClientReading,
    ClientAdministration,
):
    """An asyncio client of a Liftbridge cluster.

    Use it as an async context manager, or call `connect` and `aclose`. It belongs to the event
    loop in which it was connected; within that, any task may use it and close it. In a forked child
    every call raises `ClientClosed` before anything is sent: connect a client in each process.

    Args:
        servers: addresses `host:port` of brokers to begin with; one that answers is enough. Or one
            URL: `liftbridge://host:port,host:port`, or with TLS
            `liftbridge+tls://host:port?ca=ca.pem&cert=me.pem&key=me-key.pem&server_name=name`, of
            whose parameters each may be left out. They go before those of `options.tls`.
        options: settings of the client.
    """

    def __init__(self, *servers: str, options: ClientOptions | None = None) -> None:
        self._parts: ClientParts | None = None
        self._starting: asyncio.Lock | None = None
        self._closed = False
        self._seeds: tuple[str, ...] = ()
        self.options = ClientOptions()  # exists even if __init__ fails
        if not servers:
            raise InvalidRequest("name at least one server, for example Client('127.0.0.1:9292')")
        for server in servers:
            check_text(server, "the address of a server")
        check_type(options, (ClientOptions, type(None)), "options are ClientOptions")
        found = parse_servers(servers)
        options = options if options is not None else ClientOptions()
        self._seeds = found.addresses
        tls = found.tls(options.tls)
        self.options = options if tls is options.tls else replace(options, tls=tls)

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str] | None = None, *, options: ClientOptions | None = None
    ) -> Self:
        """Return a client configured by `LIFTBRIDGE_SERVERS` and other `LIFTBRIDGE_…` variables.

        The servers are addresses separated by commas, or one URL.

        Args:
            environ: the variables; None: the environment of the process.
            options: used instead of the variables for options.

        Raises:
            InvalidRequest: a variable is invalid, or LIFTBRIDGE_SERVERS is not set.
        """
        environ = os.environ if environ is None else environ
        servers = split_servers(environ.get("LIFTBRIDGE_SERVERS", ""))
        if not servers:
            raise InvalidRequest("set LIFTBRIDGE_SERVERS, for example to 127.0.0.1:9292")
        if options is None:
            found = parse_servers(servers)
            options = ClientOptions.from_env(found.over(environ), secure=bool(found.secure))
        return cls(*servers, options=options)

    def __repr__(self) -> str:
        """Show the servers, the state, and what is in progress."""
        state = "closed" if self._closed else "new" if self._parts is None else "connected"
        scheme = "" if self.options.tls is None else "liftbridge+tls://"
        text = f"<Client {scheme}{','.join(self._seeds)} {state}"
        if self._parts is not None and not self._closed:
            figures = self.statistics()
            in_flight = figures.publisher.in_flight if figures.publisher else 0
            text += f" subscriptions={len(figures.subscriptions)} in_flight={in_flight}"
        return f"{text}>"

    # Connecting and closing

    async def __aenter__(self) -> Self:
        """Connect; see `connect`."""
        await self.connect()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; see `aclose`."""
        await self.aclose()

    async def connect(self, *, timeout: Duration | None = None) -> None:
        """Connect to the first server that answers, and fetch the metadata of the cluster.

        Each address is tried once; use `wait_ready` to wait for servers that are starting. Does
        nothing if connected. Cancelling closes the client.

        Args:
            timeout: seconds for everything; None is the client's call_timeout.

        Raises:
            ConnectionFailed: no server answered (`TLSFailed`: TLS failed with those that run).
            RequestTimeout: not in time.
            PermissionDenied: the servers' policy forbids fetching metadata.
            ClientClosed: the client was closed.
            UsageError: no asyncio event loop is running, as under trio.
        """
        limit = self._seconds(timeout)
        try:
            await self._start()
            if self.metadata.last_updated is not None:
                return
            await self._living.network.metadata.fetch(timeout=limit, retry=False)
        except BaseException:
            await self.aclose()
            raise

    async def _start(self) -> None:
        running_loop("a Client")
        self._check_not_closed()
        if self._starting is None:
            self._starting = asyncio.Lock()
        async with self._starting:
            if self._parts is None:
                from .parts import assemble  # noqa: PLC0415 - imports the network

                self._parts = await assemble(self._seeds, self.options, self._read_one)
                bound_to_process.add(self)

    def _abandon(self) -> None:
        """Refuse every use in a forked child, where the connections are the parent's."""
        self._closed = self._forked = True
        if self._parts is not None:
            self._parts.publisher.refuse()

    async def aclose(self) -> None:
        """Close: refuse new publishes, wait for acks, end subscriptions and all tasks.

        Open queues are closed first, and store their acks; see `Queue.aclose`.
        Acks are awaited for close_timeout seconds; messages without an ack then fail with
        `PublishOutcomeUnknown`, or with `PublishNotSent` if they were never written. These errors
        are not raised here; those that nobody has retrieved are logged, in one line. Then the
        cursors of open subscriptions are stored a last time, within what is left of close_timeout,
        but at least a second; messages delivered last do not count as finished. May be called any
        number of times and from any task. Cancelling ends the wait for acks; the rest is done all
        the same.
        """
        parts = self._parts
        if parts is None or parts.loop.is_closed() or self._forked:
            self._closed = True
            return
        loop = running_loop("a Client")
        if loop is not parts.loop:
            raise UsageError("a client is closed in the event loop in which it was connected")
        self._closed = True
        deadline = loop.time() + timer_seconds(self.options.close_timeout)
        try:
            await parts.close_queues(deadline - loop.time())
            await parts.retrying.settle(deadline - loop.time())
            await parts.publisher.close(deadline - loop.time())
        finally:
            try:
                await parts.store_cursors(max(deadline - loop.time(), _LEAST_STOP_TIMEOUT))
            finally:
                await self._stop(parts, max(deadline - loop.time(), _LEAST_STOP_TIMEOUT))

    async def _stop(self, parts: ClientParts, timeout: float) -> None:
        parts.network.pool.close()
        try:
            await parts.network.supervisor.stop(timeout)
        finally:
            parts.publisher.table.log_unseen()

    def __del__(self) -> None:
        if getattr(self, "_parts", None) is not None and not self._closed:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2)

    def statistics(self) -> ClientStatistics:
        """Return connections, subscriptions and publishing as they are now; nothing is sent."""
        parts = self._parts
        if parts is None:
            return ClientStatistics((), (), None)
        return ClientStatistics(
            parts.network.pool.statistics(),
            tuple(reader.statistics() for reader in parts.budget.readers),
            parts.publisher.statistics(),
        )

    async def ping(self, *, timeout: Duration | None = None) -> float:
        """Send a health check to a server and return how many seconds the answer took.

        Cancelling abandons the call.

        Raises:
            ConnectionFailed: no server answered.
            RequestTimeout: not in time.
        """
        parts = self._living
        began = parts.loop.time()
        await parts.network.ping(self._seconds(timeout))
        return parts.loop.time() - began

    async def wait_ready(self, *, timeout: Duration | None = None) -> None:
        """Wait until a server answers and the cluster has a metadata leader.

        May be called instead of `connect` while servers are starting. If a policy of the servers
        forbids finding out about the leader, it waits for an answer only. Cancelling abandons the
        wait.

        Args:
            timeout: seconds for everything; None is the client's call_timeout.

        Raises:
            ConnectionFailed: no server answered in time (`TLSFailed`, raised at once: TLS failed
                with every server).
            RequestTimeout: a server was connected to, but none answered in time, or the cluster
                found no leader.
        """
        limit = self._seconds(timeout)
        await self._start()
        began = asyncio.get_running_loop().time()
        await self._living.network.metadata.fetch(timeout=limit)
        left = began + limit - asyncio.get_running_loop().time()
        await self._living.streams.wait_for_leader(max(left, 0.001))
