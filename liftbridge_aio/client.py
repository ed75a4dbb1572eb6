"""The client: composition root and front door.

What it is made of is imported when it connects, so that importing the package stays cheap.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from .arguments import check_text, check_type
from .client_administration import ClientAdministration
from .client_groups import ClientGroups
from .client_publishing import ClientPublishing
from .client_reading import ClientReading
from .client_values import ClientValues
from .errors import ClientClosed, InvalidRequest, UsageError
from .options import ClientOptions, Duration, timer_seconds
from .server_url import parse_servers, split_servers

if TYPE_CHECKING:
    from .client_parts import ClientParts
    from .publisher import PublisherStatistics


_LEAST_STOP_TIMEOUT: Final = 1.0
"""Seconds that tasks always get to end, however long the acks took."""


class ClientStatistics(NamedTuple):
    """Figures of a client."""

    links: tuple[str, ...]
    """The connections that are up."""
    subscriptions: int
    """Subscriptions that are being read."""
    publisher: PublisherStatistics | None
    """None before the client is connected."""


class Client(ClientGroups, ClientValues, ClientPublishing, ClientReading, ClientAdministration):
    """An asyncio client of a Liftbridge cluster.

    Use it as an async context manager, or call `connect` and `aclose`. It belongs to the event
    loop in which it was connected; within that, any task may use it and close it.

    Args:
        servers: addresses `host:port` of brokers to begin with; one that answers is enough. Or one
            URL: `liftbridge://host:port,host:port`, or with TLS
            `liftbridge+tls://host:port?ca=ca.pem&cert=me.pem&key=me-key.pem&server_name=name`, of
            whose parameters each may be left out. They go before those of `options.tls`.
        options: how it behaves.
    """

    def __init__(self, *servers: str, options: ClientOptions | None = None) -> None:
        self._parts: ClientParts | None = None
        self._starting: asyncio.Lock | None = None
        self._closed = False
        self._seeds: tuple[str, ...] = ()
        self.options = ClientOptions()  # for those who look at one that could not be made
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
        """Make a client from `LIFTBRIDGE_SERVERS` and `LIFTBRIDGE_…` options.

        The servers are addresses with commas between, or one URL.

        Args:
            environ: where to look; None means the process's environment.
            options: used instead of the variables of options.

        Raises:
            InvalidRequest: a variable makes no sense, or LIFTBRIDGE_SERVERS is not set.
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
        """Show where it leads and how it is."""
        state = "closed" if self._closed else "new" if self._parts is None else "connected"
        scheme = "" if self.options.tls is None else "liftbridge+tls://"
        text = f"<Client {scheme}{','.join(self._seeds)} {state}"
        if self._parts is not None and not self._closed:
            figures = self.statistics()
            in_flight = figures.publisher.in_flight if figures.publisher else 0
            text += f" subscriptions={figures.subscriptions} in_flight={in_flight}"
        return f"{text}>"

    # Life

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
        """Connect to the first server that answers and learn the cluster.

        Each address is tried once; use `wait_ready` to wait for servers that are starting. Does
        nothing if connected. Cancelling closes the client.

        Args:
            timeout: seconds for everything; None is the client's call_timeout.

        Raises:
            ConnectionFailed: no server answered (`TLSFailed`: TLS failed at those that run).
            RequestTimeout: not in time.
            PermissionDenied: the servers' policy does not even let metadata be asked for.
            ClientClosed: it was closed before.
        """
        try:
            await self._start()
            if self.metadata.last_updated is not None:
                return
            await self._living.connection.metadata.fetch(
                timeout=self._seconds(timeout), patient=False
            )
        except BaseException:
            await self.aclose()
            raise

    async def _start(self) -> None:
        if self._closed:
            raise ClientClosed("the client is closed")
        if self._starting is None:
            self._starting = asyncio.Lock()
        async with self._starting:
            if self._parts is None:
                from .client_parts import assemble  # noqa: PLC0415 - imports the network

                self._parts = await assemble(self._seeds, self.options, self._read_one)

    async def aclose(self) -> None:
        """Close: refuse new publishes, wait for acks, end subscriptions, leave no task behind.

        Acks are awaited for close_timeout seconds; what is unsettled then fails with
        `PublishOutcomeUnknown`, or with `PublishNotSent` if it was never written. Raises nothing
        for them; failures that nobody has looked at are logged, in one line. May be called any
        number of times and from any task. Cancelling cuts the wait for acks short; the rest is done
        all the same.
        """
        parts = self._parts
        loop = asyncio.get_running_loop()
        if parts is not None and loop is not parts.loop and not parts.loop.is_closed():
            raise UsageError("a client is closed in the event loop in which it was connected")
        self._closed = True
        if parts is None or parts.loop.is_closed():
            return
        connection = parts.connection
        deadline = loop.time() + timer_seconds(self.options.close_timeout)
        try:
            await parts.retrying.settle(deadline - loop.time())
            await parts.publisher.close(deadline - loop.time())
        finally:
            connection.pool.close()
            try:
                await connection.supervisor.stop(max(deadline - loop.time(), _LEAST_STOP_TIMEOUT))
            finally:
                parts.publisher.outcomes.log_unseen()

    def __del__(self) -> None:
        if getattr(self, "_parts", None) is not None and not self._closed:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2)

    def statistics(self) -> ClientStatistics:
        """Return figures of this moment."""
        parts = self._parts
        if parts is None:
            return ClientStatistics((), 0, None)
        links = tuple(repr(link) for link in parts.connection.pool.links)
        return ClientStatistics(links, parts.budget.subscriptions, parts.publisher.statistics())

    async def ping(self, *, timeout: Duration | None = None) -> float:
        """Ask a server for a sign of life and return how many seconds that took.

        Cancelling abandons the question.

        Raises:
            ConnectionFailed: no server answered.
            RequestTimeout: not in time.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._living.connection.ping(self._seconds(timeout))
        return loop.time() - began

    async def wait_ready(self, *, timeout: Duration | None = None) -> None:
        """Wait until a server answers and the cluster has a leader, so that it takes changes.

        May be called instead of `connect` while servers are starting. Where a policy of theirs
        forbids to ask for a leader, it waits for an answer only. Cancelling abandons the wait.

        Args:
            timeout: seconds for everything; None is the client's call_timeout.

        Raises:
            ConnectionFailed: no server answered in time (`TLSFailed`: TLS failed at every server,
                found at once).
            RequestTimeout: the cluster found no leader in time.
        """
        await self._start()
        limit = self._seconds(timeout)
        began = asyncio.get_running_loop().time()
        await self._living.connection.metadata.fetch(timeout=limit)
        left = began + limit - asyncio.get_running_loop().time()
        await self._living.streams.wait_for_leader(max(left, 0.001))
