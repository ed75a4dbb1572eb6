"""One broker's port: it listens, serves, and looks after what has to happen by itself."""

from __future__ import annotations

import asyncio
import enum
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from liftbridge_aio.addresses import format_address
from liftbridge_aio.model import BrokerInfo

from .activity_publisher import ActivityPublisher
from .clock import Clock
from .connections import Listener
from .fault_injection import FaultInjector
from .faults import Faults
from .group_controller import GroupController
from .group_procedures import GroupProcedures
from .member import Member
from .service import LiftbridgeService, ServiceCounters
from .settings import BrokerSettings
from .upkeep import Upkeep

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
    """Offsets that were given away by partitions that this broker keeps."""
    messages_delivered: int
    """Sent to subscribers since the broker was made."""
    connections: int
    subscriptions: int
    publish_sessions: int
    """Open PublishAsync calls."""


@dataclass(frozen=True, slots=True)
class Backing:
    """What a broker serves while it runs."""

    member: Member
    groups: GroupController
    started: Callable[[], None]
    """Called when the broker takes part in its cluster, before its port is open."""
    close: Callable[[], None]
    """Called when it no longer does."""


class BrokerServer:
    """A broker that can be started and stopped as often as wanted, on the same port.

    Start and stop it in one event loop at a time; other calls may come from any task of it.
    """

    def __init__(
        self,
        host: str,
        port: int,
        server_id: str,
        open_backing: Callable[[Clock], Backing],
        settings: BrokerSettings,
    ) -> None:
        """Make a broker that does not listen yet.

        Args:
            host: address to listen on, and to advertise.
            port: port to listen on; 0: a free one, chosen by the first start.
            server_id: id of the broker in metadata.
            open_backing: called by each start.
            settings: how it behaves.

        Raises:
            ValueError: the port makes no sense.
        """
        if not 0 <= port < 2**16:
            text = f"port must be from 0 to 65535, not {port}"
            raise ValueError(text)
        self._host = host
        self._port = port
        self._server_id = server_id
        self._open_backing = open_backing
        self._settings = settings
        self._lifecycle = BrokerState.STOPPED
        self._backing: Backing | None = None
        self._listener: Listener | None = None
        self._upkeep: asyncio.Task[None] | None = None
        self._starting: asyncio.Event | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._counters = ServiceCounters()
        self._clock = Clock()
        self._injector = FaultInjector()
        self._faults = Faults(self._injector, self._clock, lambda: self._listener)

    @property
    def server_id(self) -> str:
        """Id of the broker in metadata."""
        return self._server_id

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

    @property
    def is_frozen(self) -> bool:
        """Whether the broker does nothing although it runs."""
        return self._listener is not None and self._listener.is_frozen

    def freeze(self) -> None:
        """Let the broker do nothing, while its port and connections stay open and silent.

        That is what SIGSTOP does to a process. What is published meanwhile is lost, and calls that
        have come in may be carried out, though not answered. Nothing happens if it does not run.
        """
        if self._listener is not None and self._backing is not None:
            self._listener.freeze()
            self._backing.member.node.deafen()

    def thaw(self) -> None:
        """Undo `freeze`, which `stop` does as well; nothing happens if it is not frozen."""
        if self._listener is not None and self._backing is not None and self.is_frozen:
            self._backing.member.node.hear()
            self._listener.thaw()

    def statistics(self) -> BrokerStatistics:
        """Count what the broker holds and does."""
        node = self._backing.member.node if self._backing else None
        partitions = list(node.partitions()) if node else []
        return BrokerStatistics(
            streams=len(node.streams) if node else 0,
            partitions=len(partitions),
            messages_stored=sum(one.log.next_offset for one in partitions if one.is_replica),
            messages_delivered=self._counters.messages_delivered,
            connections=len(self._listener.connections) if self._listener else 0,
            subscriptions=self._counters.subscriptions,
            publish_sessions=self._counters.publish_sessions,
        )

    async def start(self) -> None:
        """Recover what is kept, then listen.

        The port is open when this returns, and stays the same over restarts. Cancelling it leaves
        the broker stopped.

        Raises:
            OSError: the address cannot be listened on, or what is kept or the files for TLS cannot
                be read.
            RuntimeError: the broker is not stopped.
        """
        if self._lifecycle is not BrokerState.STOPPED:
            text = f"the broker is {self._lifecycle.value}"
            raise RuntimeError(text)
        self._lifecycle = BrokerState.STARTING
        self._starting = starting = asyncio.Event()
        try:
            listening = await self._bind()
            try:
                await self._serve(listening)
            except BaseException:
                listening.close()
                raise
            self._lifecycle = BrokerState.RUNNING
        finally:
            if self._lifecycle is BrokerState.STARTING:
                self._lifecycle = BrokerState.STOPPED
            self._starting = None
            starting.set()

    async def _serve(self, listening: socket.socket) -> None:
        settings = self._settings
        tls = None if settings.tls is None else settings.tls.context()
        backing = self._backing = self._open_backing(self._clock)
        member = backing.member
        member.node.info = BrokerInfo(self._server_id, self._host, self._port)
        groups = GroupProcedures(
            member.node.groups,
            member.node.liveness,
            backing.groups,
            self._clock,
            consumer_timeout=settings.consumer_timeout,
            coordinator_timeout=settings.coordinator_timeout,
        )
        service = LiftbridgeService(member, groups, settings, self._injector, self._counters)
        listener = Listener(service, self._injector, tls)
        try:
            member.controller.start(member.node, self._clock.now_ns())
            backing.started()
            await listener.start(sock=listening, backlog=_BACKLOG)
        except BaseException:
            self._leave(backing)
            raise
        self._listener = listener
        self._upkeep = asyncio.create_task(
            self._look_after(member, backing.groups), name=f"broker-upkeep-{self._server_id}"
        )

    async def _look_after(self, member: Member, groups: GroupController) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(Upkeep(member, groups).run())
            if self._settings.activity:
                tasks.create_task(ActivityPublisher(member).run())

    def _leave(self, backing: Backing) -> None:
        self._backing = None
        node = backing.member.node
        backing.member.controller.stop(node)
        backing.close()

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
        return listening

    async def stop(self) -> None:
        """Close the port and all connections; streams, messages and cursors are kept.

        Open calls are cut off, as when a server is killed. Takes less than a second whatever
        clients do, may be called from any task and any number of times; a start that is under way
        is waited for first. Cancelling it leaves the stopping to finish by itself.
        """
        if self._starting is not None:
            await self._starting.wait()
        if self._lifecycle is BrokerState.RUNNING:
            self._lifecycle = BrokerState.STOPPING
            self._stopping = asyncio.create_task(self._shut_down(), name="broker-stop")
        if self._stopping is not None:
            await asyncio.shield(self._stopping)

    async def _shut_down(self) -> None:
        listener, self._listener = self._listener, None
        upkeep, self._upkeep = self._upkeep, None
        try:
            if listener is not None:
                await listener.shut_down()
            if upkeep is not None:
                upkeep.cancel()
                await asyncio.wait([upkeep])
        finally:
            if self._backing is not None:
                self._leave(self._backing)
            self._stopping = None
            self._lifecycle = BrokerState.STOPPED

    async def aclose(self) -> None:
        """The same as `stop`, cancellation included."""
        await self.stop()

    async def restart(self) -> None:
        """Stop and start again at once: clients see all connections break.

        Cancelling it leaves the broker stopped, or to finish stopping by itself.

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
            f"<{type(self).__name__} {self._lifecycle.value} at {self.address},"
            f" {statistics.streams} streams, {statistics.connections} connections>"
        )
