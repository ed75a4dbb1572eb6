"""The connection of one process of Spark: an event loop in a thread, and one client in it.

Spark calls sources and sinks from plain threads, in many short-lived calls per process. The client
stays between the calls: a worker that serves the next task, the next batch or the next query of
the same servers finds it connected.
"""

from __future__ import annotations

import asyncio
import atexit
import enum
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, TypeVar

from liftbridge_aio.client import Client
from liftbridge_aio.errors import ClientClosed, ConnectionFailed, RequestTimeout, TLSFailed
from liftbridge_aio.options import timer_seconds

from .options import ConnectionOptions

T = TypeVar("T")

_GRACE: Final = 5.0
"""Seconds that the event loop gets to tell of a timeout by itself."""
_BETWEEN_TRIES: Final = 0.2
"""Seconds between two tries to connect."""


class _End(enum.Enum):
    """Stands for the item after the last."""

    END = "end"


class WorkerConnection:
    """A client that plain threads may use: it lives in an event loop in a thread of its own.

    Get one with `connection_to`. It connects at its first use, and anew where that failed.

    Args:
        options: the servers, and how the client behaves.
    """

    def __init__(self, options: ConnectionOptions) -> None:
        self._servers = options.servers
        self._client_options = options.client_options()
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
        """Whether its event loop runs, and nobody has closed it."""
        return self._thread.is_alive() and not self._closed

    def run(
        self,
        work: Callable[[Client], Awaitable[T]],
        timeout: float | None,
        patience: float | None = None,
    ) -> T:
        """Run a coroutine with the client and return what it returns.

        Blocks the calling thread, which must not be that of an event loop. An interrupt there
        cancels the coroutine.

        Args:
            work: makes the coroutine from the connected client.
            timeout: seconds for the coroutine. None: it keeps its own time.
            patience: seconds to try to connect before it, if need be; None is call_timeout.

        Raises:
            ConnectionFailed: no server answered while it was tried to connect.
            TLSFailed: servers and options do not agree about TLS; this is told at once.
            RequestTimeout: the coroutine took longer than `timeout`.
            LiftbridgeError: whatever else the coroutine raises.
        """
        if patience is None:
            patience = timer_seconds(self._client_options.call_timeout)
        limit = None if timeout is None else timeout + patience
        return self._call(self._bounded(work, timeout, patience), limit)

    def iterate(
        self,
        items: Callable[[Client], AsyncGenerator[T, None]],
        timeout: float | None,
        patience: float | None = None,
    ) -> Generator[T, None, None]:
        """Iterate over what an async generator yields, from a plain thread.

        Closing the iterator closes the generator.

        Args:
            items: makes the generator from the connected client.
            timeout: seconds for each item; None: the generator keeps its own time.
            patience: seconds to try to connect, if need be; None is call_timeout.

        Raises:
            ConnectionFailed: no server answered while it was tried to connect.
            RequestTimeout: an item took longer than `timeout`.
            LiftbridgeError: whatever else the generator raises.
        """
        generator: AsyncGenerator[T, None] | None = None
        one_at_a_time = asyncio.Lock()  # a step that was interrupted may still be ending

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
            while not isinstance(item := self.run(step, timeout, patience), _End):
                yield item
        finally:
            if generator is not None:
                self._call(finish(generator), timer_seconds(self._client_options.close_timeout))

    def close(self) -> None:
        """Close the client and end the thread, within close_timeout and some grace."""
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
        self, work: Callable[[Client], Awaitable[T]], timeout: float | None, patience: float
    ) -> T:
        client = await self._connected(patience)
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                return await work(client)
        except ClientClosed:
            self._client = None  # the next use makes another
            raise
        except TimeoutError:
            if not limit.expired():
                raise
            text = f"not done within {timeout:g} s"
            raise RequestTimeout(text) from None

    async def _connected(self, patience: float) -> Client:
        async with self._connecting:
            if self._client is None:
                self._client = await self._connect(patience)
            return self._client

    async def _connect(self, patience: float) -> Client:
        deadline = self._loop.time() + patience
        while True:
            client = Client(*self._servers, options=self._client_options)
            try:
                await client.connect()
            except TLSFailed:  # waiting mends no certificate
                raise
            except (ConnectionFailed, RequestTimeout):
                if self._loop.time() + _BETWEEN_TRIES >= deadline:
                    raise
                await asyncio.sleep(_BETWEEN_TRIES)
            else:
                return client


_connections: dict[ConnectionOptions, WorkerConnection] = {}
_guard = threading.Lock()
_left_behind: list[WorkerConnection] = []


def connection_to(options: ConnectionOptions) -> WorkerConnection:
    """Return the connection of this process to these servers; the same one for the same options."""
    with _guard:
        connection = _connections.get(options)
        if connection is None or not connection.usable:
            connection = _connections[options] = WorkerConnection(options)
        return connection


def close_connections() -> None:
    """Close every connection of this process. May be called again; the next use connects anew."""
    with _guard:
        connections = list(_connections.values())
        _connections.clear()
    for connection in connections:
        connection.close()


def _forget_connections() -> None:
    """Start without connections in a forked process: their threads and sockets are the parent's."""
    global _guard  # noqa: PLW0603 - another thread of the parent may hold the old one
    _guard = threading.Lock()
    _left_behind.extend(_connections.values())  # collected, they would close the parent's sockets
    _connections.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_connections)
atexit.register(close_connections)
