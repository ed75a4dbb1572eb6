"""The connection of a Spark process: an event loop in a thread, and one client in it.

Spark calls sources and sinks from plain threads, in many short calls per process. The client is
kept between the calls, so the next task, batch or query on the same servers finds it connected.
"""

from __future__ import annotations

import asyncio
import atexit
import enum
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, TypeVar

from liftbridge_aio._client.client import Client
from liftbridge_aio.errors import ClientClosed, ConnectionFailed, RequestTimeout, TLSFailed
from liftbridge_aio.options import timer_seconds

from .core.connection_options import ConnectionOptions

T = TypeVar("T")

_GRACE: Final = 5.0
"""Seconds beyond a timeout that the event loop gets to raise it."""
_RETRY_INTERVAL: Final = 0.2
"""Seconds between two attempts to connect."""


class _End(enum.Enum):
    """Marks the end of an iteration."""

    END = "end"


class WorkerConnection:
    """A client for plain threads; it runs in an event loop in a thread of its own.

    Get one with `connection_to`. It connects when first used, and again after a failure.

    Args:
        options: the servers, and the options of the client.
    """

    def __init__(self, options: ConnectionOptions) -> None:
        self._servers = options.servers
        self._client_options = options.client_options(os.environ)
        self._client: Client | None = None
        self._loop: asyncio.AbstractEventLoop
        self._connecting: asyncio.Lock
        self._closing: asyncio.Event
        self._running = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="liftbridge-spark", daemon=True)
        self._thread.start()
        self._running.wait()

    @property
    def usable(self) -> bool:
        """True until it is closed or its event loop ends."""
        return self._thread.is_alive() and not self._closed

    def run(
        self,
        work: Callable[[Client], Awaitable[T]],
        timeout: float | None,
        connect_timeout: float | None = None,
    ) -> T:
        """Run a coroutine with the client and return what it returns.

        Blocks the calling thread, which must not run an event loop. An interrupt there cancels the
        coroutine.

        Args:
            work: makes the coroutine from the connected client.
            timeout: seconds for the coroutine. None: it has timeouts of its own.
            connect_timeout: seconds to connect first, if necessary; None is call_timeout.

        Raises:
            ConnectionFailed: no server could be reached within `connect_timeout`.
            TLSFailed: the TLS options do not fit the servers; this is not retried.
            RequestTimeout: the coroutine took longer than `timeout`.
            LiftbridgeError: the coroutine raised it.
        """
        if connect_timeout is None:
            connect_timeout = timer_seconds(self._client_options.call_timeout)
        limit = None if timeout is None else timeout + connect_timeout
        return self._call(self._bounded(work, timeout, connect_timeout), limit)

    def begin(self, work: Callable[[Client], Awaitable[object]], timeout: float | None) -> None:
        """Begin a coroutine that prepares others, and return; its errors are dropped.

        It is not begun unless a server is reached at the first attempt.

        Args:
            work: makes the coroutine from the connected client.
            timeout: seconds for the coroutine. None: it has timeouts of its own.
        """
        if self.usable:
            asyncio.run_coroutine_threadsafe(self._bounded(work, timeout, 0), self._loop)

    def iterate(
        self,
        items: Callable[[Client], AsyncGenerator[T, None]],
        timeout: float | None,
        connect_timeout: float | None = None,
    ) -> Generator[T, None, None]:
        """Iterate over what an async generator yields, from a plain thread.

        Closing the iterator closes the generator.

        Args:
            items: makes the generator from the connected client.
            timeout: seconds for each item; None: the generator has timeouts of its own.
            connect_timeout: seconds to connect first, if necessary; None is call_timeout.

        Raises:
            ConnectionFailed: no server could be reached within `connect_timeout`.
            RequestTimeout: an item took longer than `timeout`.
            LiftbridgeError: the generator raised it.
        """
        generator: AsyncGenerator[T, None] | None = None
        one_at_a_time = asyncio.Lock()  # an interrupted step may still be running

        async def step(client: Client) -> T | _End:
            nonlocal generator
            async with one_at_a_time:
                if generator is None:
                    generator = items(client)
                return await anext(generator, _End.END)

        async def finish(begun: AsyncGenerator[T, None]) -> None:
            async with one_at_a_time:
                await begun.aclose()

        try:
            while not isinstance(item := self.run(step, timeout, connect_timeout), _End):
                yield item
            generator = None  # it has ended, so there is nothing to close
        finally:
            if generator is not None:
                self._call(finish(generator), timer_seconds(self._client_options.close_timeout))

    def close(self) -> None:
        """Close the client and end the thread, within close_timeout and some seconds."""
        if not self.usable:
            return
        self._closed = True
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(timer_seconds(self._client_options.close_timeout) + _GRACE)

    def _call(self, coroutine: Coroutine[Any, Any, T], limit: float | None) -> T:
        if not self.usable:
            coroutine.close()
            raise ClientClosed("the connection of this process is closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(None if limit is None else limit + _GRACE)
        except BaseException:
            future.cancel()
            raise

    # In the event loop

    def _serve(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._connecting = asyncio.Lock()
        self._closing = asyncio.Event()
        self._running.set()
        await self._closing.wait()
        if self._client is not None:
            await self._client.aclose()

    async def _bounded(
        self, work: Callable[[Client], Awaitable[T]], timeout: float | None, connect_timeout: float
    ) -> T:
        client = await self._connected(connect_timeout)
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                return await work(client)
        except ClientClosed:
            self._client = None  # the next use connects again
            raise
        except TimeoutError:
            if not limit.expired():
                raise
            raise RequestTimeout(f"the work did not end within {timeout:g} s") from None

    async def _connected(self, connect_timeout: float) -> Client:
        async with self._connecting:
            if self._client is None:
                self._client = await self._connect(connect_timeout)
            return self._client

    async def _connect(self, connect_timeout: float) -> Client:
        deadline = self._loop.time() + connect_timeout
        while True:
            client = Client(*self._servers, options=self._client_options)
            try:
                await client.connect()
            except TLSFailed:  # a retry would fail in the same way
                raise
            except (ConnectionFailed, RequestTimeout):
                if self._loop.time() + _RETRY_INTERVAL >= deadline:
                    raise
                await asyncio.sleep(_RETRY_INTERVAL)
            else:
                return client


_connections: dict[ConnectionOptions, WorkerConnection] = {}
_guard = threading.Lock()
_left_behind: list[WorkerConnection] = []


def connection_to(options: ConnectionOptions) -> WorkerConnection:
    """Return the connection of this process for these options, always the same one."""
    with _guard:
        connection = _connections.get(options)
        if connection is None or not connection.usable:
            connection = _connections[options] = WorkerConnection(options)
        return connection


def close_connections() -> None:
    """Close every connection of this process. May be called again; the next use reconnects."""
    with _guard:
        connections = list(_connections.values())
        _connections.clear()
    for connection in connections:
        connection.close()


def _forget_connections() -> None:
    """Drop the connections in a forked process: their threads and sockets are the parent's."""
    global _guard  # noqa: PLW0603 - another thread of the parent may hold the old one
    _guard = threading.Lock()
    # Kept: garbage collection would close the parent's sockets.
    _left_behind.extend(_connections.values())
    _connections.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_connections)
atexit.register(close_connections)
