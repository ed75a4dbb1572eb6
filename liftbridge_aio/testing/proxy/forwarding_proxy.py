"""A TCP proxy: listens, connects to the target for each client, and owns the connections."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Self

from liftbridge_aio._core.addresses import format_address, parse_address
from liftbridge_aio._runtime.event_loop import running_loop

from .connection import End, Pipe, ProxiedConnection
from .damage import DamageOrders, Damager, chance
from .delay_line import Conditions, DelayLine
from .faults import Direction, FaultKind, FaultRecord, ProxyStatistics

_MOST_FAULTS: Final = 10_000
"""The maximum of recorded faults; older ones are dropped."""


class ForwardingProxy:
    """The base of `FaultProxy`: lifecycle, connections and the record of faults."""

    def __init__(
        self,
        target_address: str,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        seed: int = 0,
        delayed_bytes: int = 4 * 2**20,
    ) -> None:
        """Set the target and the address to listen on; nothing is opened yet.

        Args:
            target_address: `host:port` to which connections are forwarded.
            host: the host to listen on.
            port: the port to listen on; 0 for a free port.
            seed: the seed of the random choices.
            delayed_bytes: the maximum of bytes in transit on a delayed connection in each
                direction; the sender waits with the rest.

        Raises:
            ValueError: `target_address` is not an address, or `delayed_bytes` is not positive.
        """
        if delayed_bytes < 1:
            raise ValueError(f"delayed_bytes must be positive, not {delayed_bytes}")
        self._target = parse_address(target_address)
        self._host = host
        self._port = port
        self._seed = seed
        self._delayed_bytes = delayed_bytes
        self._server: asyncio.Server | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._connecting: asyncio.TaskGroup | None = None
        self._closing = asyncio.Event()
        self._entered_at: float | None = None
        self._connections: set[ProxiedConnection] = set()
        self._opened = 0
        self._forwarded = dict.fromkeys(Direction.BOTH, 0)  # of closed connections
        self._swallowed = 0
        self._conditions = {direction: Conditions() for direction in Direction.BOTH}
        self._orders = DamageOrders(seed)
        self._faults: deque[FaultRecord] = deque(maxlen=_MOST_FAULTS)

    @property
    def address(self) -> str:
        """The `host:port` for clients; the port is known once the proxy has been entered."""
        return format_address(self._host, self._port)

    @property
    def seed(self) -> int:
        """The seed of the random choices."""
        return self._seed

    @property
    def faults(self) -> tuple[FaultRecord, ...]:
        """The last 10 000 orders and their effects, in order of occurrence."""
        return tuple(self._faults)

    def statistics(self) -> ProxyStatistics:
        """Return the counters of the proxy."""
        pipes = [pipe for each in self._connections for pipe in each.pipes.values()]
        forwarded = {
            direction: before + sum(c.pipes[direction].forwarded for c in self._connections)
            for direction, before in self._forwarded.items()
        }
        return ProxyStatistics(
            connections=self._opened,
            open_connections=len(self._connections),
            bytes_to_target=forwarded[Direction.TO_TARGET],
            bytes_to_clients=forwarded[Direction.TO_CLIENTS],
            swallowed_bytes=self._swallowed + sum(pipe.swallowed for pipe in pipes),
            held_bytes=sum(pipe.line.size for pipe in pipes),
        )

    def __repr__(self) -> str:
        target = format_address(*self._target)
        return f"<FaultProxy {self.address} -> {target} {self._state} {self.statistics()}>"

    @property
    def _state(self) -> str:
        if self._closing.is_set():
            return "closed"
        if self._connecting is None:
            return "not started"
        if any(each.swallowing for each in self._conditions.values()):
            return "swallowing"
        if any(each.frozen for each in self._conditions.values()):
            return "frozen"
        return "refusing" if self._server is None else "open"

    # --- lifecycle ---

    async def __aenter__(self) -> Self:
        """Start listening.

        Raises:
            OSError: the port is taken.
            RuntimeError: the proxy was entered before, or no asyncio event loop is running, as
                under trio.
        """
        loop = running_loop("a fault proxy")
        if self._supervisor is not None:
            raise RuntimeError("a proxy can be entered only once; create another one")
        self._entered_at = time.monotonic()
        listening = loop.create_future()
        self._supervisor = asyncio.create_task(self._supervise(listening), name="fault-proxy")
        try:
            await listening
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close; see `aclose`."""
        await self.aclose()

    async def aclose(self) -> None:
        """Abort every connection and stop listening; idempotent, callable from any task.

        Cancellation ends the wait, not the closing.
        """
        self._closing.set()
        if self._supervisor is not None:
            await asyncio.wait([self._supervisor])

    async def _supervise(self, listening: asyncio.Future[None]) -> None:
        try:
            async with asyncio.TaskGroup() as self._connecting:
                try:
                    await self._listen()
                except (OSError, OverflowError) as error:  # the port is taken or invalid
                    if not listening.done():
                        listening.set_exception(error)
                    return
                if not listening.done():
                    listening.set_result(None)
                await self._closing.wait()
                self._stop_listening()
                await self._end(list(self._connections), ProxiedConnection.abort)
        finally:
            self._closing.set()
            self._stop_listening()
            for connection in self._connections:
                connection.abort()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._make_client_end, self._host, self._port, reuse_address=True
        )
        self._port = self._server.sockets[0].getsockname()[1]
        if self._closing.is_set():
            self._stop_listening()

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    # --- connections ---

    def _make_client_end(self) -> End:
        self._opened += 1
        number = self._opened
        pipes = {direction: self._make_pipe(number, direction) for direction in Direction.BOTH}
        for direction, pipe in pipes.items():
            self._orders.hand_on(pipe.damager, number, direction)
        return ProxiedConnection(number, pipes, self).client

    def _make_pipe(self, connection: int, direction: Direction) -> Pipe:
        conditions = self._conditions[direction]
        return Pipe(
            conditions,
            DelayLine(
                conditions, chance(self._seed, connection, direction, "jitter"), self._delayed_bytes
            ),
            Damager(preface=direction is Direction.TO_TARGET),
            lambda kind, position, detail: self._record(
                kind, direction, detail, connection, position
            ),
        )

    def connection_opened(self, connection: ProxiedConnection) -> asyncio.Task[None] | None:
        """Register a connection; called by `ProxiedConnection`."""
        if self._closing.is_set() or self._connecting is None:
            return None
        self._connections.add(connection)
        return self._connecting.create_task(
            connection.connect_target(*self._target), name="fault-proxy-connect"
        )

    def connection_closed(self, connection: ProxiedConnection) -> None:
        """Forget a connection; called by `ProxiedConnection`."""
        self._connections.discard(connection)
        for direction, pipe in connection.pipes.items():
            self._forwarded[direction] += pipe.forwarded
            self._swallowed += pipe.swallowed

    async def _end(
        self, connections: list[ProxiedConnection], end: Callable[[ProxiedConnection], None]
    ) -> None:
        for connection in connections:
            end(connection)
        for connection in connections:
            await connection.gone.wait()

    # --- the record ---

    def _record(
        self,
        kind: FaultKind,
        direction: Direction = Direction.BOTH,
        detail: str = "",
        connection: int | None = None,
        position: int | None = None,
    ) -> None:
        seconds = 0.0 if self._entered_at is None else time.monotonic() - self._entered_at
        self._faults.append(FaultRecord(kind, direction, connection, position, detail, seconds))
