"""The embedded broker: a Liftbridge server inside this process."""

from __future__ import annotations

import asyncio
import enum
import os
import socket
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from liftbridge_aio.addresses import format_address
from liftbridge_aio.model import BrokerInfo

from .clock import Clock
from .connections import Listener
from .cursors import CursorStore
from .fault_injection import FaultInjector
from .faults import Faults
from .service import LiftbridgeService
from .state import ClusterState

_MIB: Final = 2**20
_BACKLOG: Final = 1024


class BrokerState(enum.Enum):
    """Where a broker stands. STOPPED and RUNNING alternate as often as wanted."""

    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    """What a broker holds and does at one moment."""

    streams: int
    partitions: int
    messages_stored: int
    messages_delivered: int
    """Sent to subscribers since the broker was made."""
    connections: int
    subscriptions: int
    publish_sessions: int
    """Open PublishAsync calls."""


class EmbeddedBroker:
    """A single-node Liftbridge server in memory, to develop and test on.

    It speaks gRPC on a real port, and answers as Liftbridge 1.9.0 does, quirks included. Use it as
    `async with EmbeddedBroker() as broker: Client(broker.address)`. Its data lives as long as the
    object: after `stop` it may be started again, on the same port, with everything still there.

    Start and stop it in one event loop at a time; other calls may come from any task of it.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        server_id: str = "embedded",
        namespace: str = "liftbridge-default",
        cursors_partitions: int = 1,
        max_message_bytes: int = _MIB,
        max_payload_bytes: int = _MIB,
    ) -> None:
        """Make a broker that does not listen yet.

        Args:
            host: address to listen on, and to advertise.
            port: port to listen on; 0: a free one, chosen by the first start.
            server_id: id of the broker in metadata.
            namespace: first part of the NATS subjects for acks and cursors.
            cursors_partitions: partitions of `__cursors`; 0: the broker keeps no cursors.
            max_message_bytes: largest message that is stored, with headers and envelope
                (`clustering.replication.max.bytes` of a real server).
            max_payload_bytes: largest message that can be published at all (`max_payload` of
                NATS). With equal limits, as on a real server by default, this one speaks first.

        Raises:
            ValueError: a number makes no sense.
        """
        if not 0 <= port < 2**16:
            text = f"port must be from 0 to 65535, not {port}"
            raise ValueError(text)
        if cursors_partitions < 0 or max_message_bytes < 1 or max_payload_bytes < 1:
            text = "cursors_partitions must not be negative, and limits must be positive"
            raise ValueError(text)
        self._host = host
        self._port = port
        self._server_id = server_id
        self._lifecycle = BrokerState.STOPPED
        self._listener: Listener | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._state = ClusterState(max_message_bytes, max_payload_bytes)
        cursors = CursorStore(self._state, f"{namespace}.cursors")
        clock = Clock()
        self._injector = FaultInjector()
        self._faults = Faults(self._injector, clock, lambda: self._listener)
        cursors.create_stream(cursors_partitions, clock.now_ns())
        self._service = LiftbridgeService(self._state, cursors, namespace, clock, self._injector)

    @property
    def host(self) -> str:
        """Where it listens."""
        return self._host

    @property
    def port(self) -> int:
        """The port; 0 until it was started for the first time if it may choose one."""
        return self._port

    @property
    def address(self) -> str:
        """`host:port`, as clients take it."""
        return format_address(self._host, self._port)

    @property
    def state(self) -> BrokerState:
        """Where the broker stands."""
        return self._lifecycle

    @property
    def faults(self) -> Faults:
        """What breaks this broker on demand."""
        return self._faults

    def statistics(self) -> BrokerStatistics:
        """Count what the broker holds and does."""
        streams = self._state.streams
        partitions = [one for stream in streams for one in stream.partitions.values()]
        counters = self._service.counters
        return BrokerStatistics(
            streams=len(streams),
            partitions=len(partitions),
            messages_stored=sum(partition.log.next_offset for partition in partitions),
            messages_delivered=counters.messages_delivered,
            connections=len(self._listener.connections) if self._listener else 0,
            subscriptions=counters.subscriptions,
            publish_sessions=counters.publish_sessions,
        )

    async def start(self) -> None:
        """Listen. The port is open when this returns, and stays the same over restarts.

        Cancelling it leaves the broker stopped.

        Raises:
            OSError: the address cannot be listened on.
            RuntimeError: the broker is not stopped.
        """
        if self._lifecycle is not BrokerState.STOPPED:
            text = f"the broker is {self._lifecycle.value}"
            raise RuntimeError(text)
        self._lifecycle = BrokerState.STARTING
        try:
            listening = await self._bind()
            listener = Listener(self._service, self._injector)
            try:
                await listener.start(sock=listening, backlog=_BACKLOG)
            except BaseException:
                listening.close()
                raise
        except BaseException:
            self._lifecycle = BrokerState.STOPPED
            raise
        self._listener = listener
        self._lifecycle = BrokerState.RUNNING

    async def _bind(self) -> socket.socket:
        loop = asyncio.get_running_loop()
        # One socket: "localhost" with port 0 would give several, each with a port of its own.
        found = await loop.getaddrinfo(
            self._host, self._port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )
        family, kind, protocol, _, address = found[0]
        # The protocol must be named: only then asyncio switches Nagle's algorithm off.
        listening = socket.socket(family, kind, protocol)
        try:
            if os.name == "posix":
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
        except BaseException:
            listening.close()
            raise
        self._port = listening.getsockname()[1]
        self._service.broker = BrokerInfo(self._server_id, self._host, self._port)
        return listening

    async def stop(self) -> None:
        """Close the port and all connections; streams, messages and cursors are kept.

        Open calls are cut off, as when a server is killed. Takes less than a second whatever
        clients do, may be called from any task and any number of times. Cancelling it leaves the
        stopping to finish by itself.
        """
        if self._lifecycle is BrokerState.RUNNING:
            self._lifecycle = BrokerState.STOPPING
            self._stopping = asyncio.create_task(self._shut_down(), name="broker-stop")
        if self._stopping is not None:
            await asyncio.shield(self._stopping)

    async def _shut_down(self) -> None:
        listener, self._listener = self._listener, None
        try:
            if listener is not None:
                await listener.shut_down()
        finally:
            self._stopping = None
            self._lifecycle = BrokerState.STOPPED

    async def aclose(self) -> None:
        """The same as `stop`."""
        await self.stop()

    async def restart(self) -> None:
        """Stop and start again at once: clients see all connections break.

        Raises:
            OSError: the port was taken in between.
        """
        await self.stop()
        await self.start()

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop."""
        await self.stop()

    def __repr__(self) -> str:
        statistics = self.statistics()
        return (
            f"<EmbeddedBroker {self._lifecycle.value} at {self.address},"
            f" {statistics.streams} streams, {statistics.connections} connections>"
        )
