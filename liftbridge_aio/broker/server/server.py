"""A broker that listens on a port, serves calls and runs its background tasks."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from liftbridge_aio._core.addresses import format_address
from liftbridge_aio._core.arguments import check_integer
from liftbridge_aio._runtime.event_loop import running_loop
from liftbridge_aio.broker.faults.fault_injection import FaultInjector
from liftbridge_aio.broker.faults.faults import Faults
from liftbridge_aio.broker.flaws import PANIC_SECONDS, REPLAY_SECONDS, BrokerPanicked
from liftbridge_aio.model import BrokerInfo

from .activity_publisher import ActivityPublisher
from .broker_context import BrokerContext
from .clock import Clock
from .connections import Listener
from .group_procedures import GroupProcedures
from .lifecycle import Lifecycle
from .local_cluster import Backing
from .maintenance import Maintenance
from .service import LiftbridgeService, ServiceCounters
from .settings import BrokerSettings

_FROZEN_POLL: Final = 0.1  # seconds


class BrokerState(enum.Enum):
    """The states of a broker; it can be started and stopped any number of times."""

    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    """A snapshot of what a broker stores and serves."""

    streams: int
    partitions: int
    messages_stored: int
    """Offsets assigned in the partitions of which this broker is a replica."""
    messages_delivered: int
    """Sent to subscribers since the object was created."""
    connections: int
    subscriptions: int
    publish_sessions: int
    """Open PublishAsync calls."""


class BrokerServer(Lifecycle):
    """A broker that can be started and stopped any number of times, on the same port.

    Start and stop it in one event loop at a time; other calls may come from any task of that loop.
    """

    def __init__(
        self,
        host: str,
        port: int,
        server_id: str,
        open_backing: Callable[[Clock], Backing],
        settings: BrokerSettings,
    ) -> None:
        """Create a broker that does not listen yet.

        Args:
            host: address to listen on, and to advertise.
            port: port to listen on; 0: a free one, chosen by the first start.
            server_id: id of the broker in metadata.
            open_backing: opens what the broker serves; called by each start.
            settings: settings of the broker.

        Raises:
            ValueError: the port is out of range.
        """
        check_integer(port, "port")
        if not 0 <= port < 2**16:
            raise ValueError(f"port must be from 0 to 65535, not {port}")
        self._host = host
        self._port = port
        self._server_id = server_id
        self._open_backing = open_backing
        self._settings = settings
        self._state = BrokerState.STOPPED
        self._backing: Backing | None = None
        self._listener: Listener | None = None
        self._maintenance: asyncio.Task[None] | None = None
        self._starting: asyncio.Event | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._counters = ServiceCounters()
        self._clock = Clock()
        self._injector = FaultInjector()
        self._forgetful = False
        self._panics = settings.flaws.panics_at_start
        """True if the next start ends by a panic."""
        self._faults = Faults(
            self._injector, self._clock, lambda: self._listener, self._set_forgetful
        )

    @property
    def server_id(self) -> str:
        """Id of the broker in metadata."""
        return self._server_id

    @property
    def host(self) -> str:
        """The address that it listens on."""
        return self._host

    @property
    def port(self) -> int:
        """The port; 0 before the first start of a broker that chooses its port."""
        return self._port

    @property
    def address(self) -> str:
        """`host:port`, for `Client`."""
        return format_address(self._host, self._port)

    @property
    def state(self) -> BrokerState:
        """State of the broker."""
        return self._state

    @property
    def faults(self) -> Faults:
        """The faults that can be injected into this broker."""
        return self._faults

    @property
    def is_frozen(self) -> bool:
        """True between `freeze` and `thaw`."""
        return self._listener is not None and self._listener.is_frozen

    def freeze(self) -> None:
        """Suspend the broker, while its port and connections stay open and silent.

        That is what SIGSTOP does to a process. Messages published meanwhile are lost; calls that
        were received may be executed, though not answered. Nothing happens if it is not running.
        """
        if self._listener is not None and self._backing is not None:
            self._listener.freeze()
            self._backing.context.node.unsubscribe()

    def thaw(self) -> None:
        """Undo `freeze`, as does `stop`; nothing happens if it is not frozen."""
        if self._listener is not None and self._backing is not None and self.is_frozen:
            self._backing.context.node.resubscribe()
            self._listener.thaw()

    def _set_forgetful(self, *, forgetful: bool) -> None:
        was, self._forgetful = self._forgetful, forgetful
        if self._backing is None or was == forgetful:
            return
        if forgetful:
            self._isolate(self._backing.context)
        else:
            self._rejoin(self._backing.context)
            self._create_internal_streams(self._backing)

    def _create_internal_streams(self, backing: Backing) -> None:
        backing.cluster.create_internal_streams(self._clock.now_ns())

    def _isolate(self, context: BrokerContext) -> None:
        context.controller.hold(self._server_id)
        context.node.forget()

    def _rejoin(self, context: BrokerContext) -> None:
        context.node.remember()
        context.controller.release(self._server_id, self._clock.now_ns())

    def statistics(self) -> BrokerStatistics:
        """Return a snapshot of what the broker stores and serves."""
        node = self._backing.context.node if self._backing else None
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
        """Recover stored data, then listen.

        The port is open when this returns, and stays the same over restarts. Cancelling it leaves
        the broker stopped.

        Raises:
            OSError: the address cannot be listened on, or stored data or the files for TLS cannot
                be read.
            RuntimeError: the broker is not stopped, or no asyncio event loop is running, as under
                trio.
            BrokerPanicked: it has ended, see `Flaws.panics_at_start`.
        """
        running_loop("the embedded broker")
        if self._state is not BrokerState.STOPPED:
            raise RuntimeError(f"the broker is {self._state.value}")
        self._state = BrokerState.STARTING
        self._starting = starting = asyncio.Event()
        try:
            await self._serve()
            self._state = BrokerState.RUNNING
        finally:
            if self._state is BrokerState.STARTING:
                self._state = BrokerState.STOPPED
            self._starting = None
            starting.set()
        panics, self._panics = self._panics, self._settings.flaws.panics_at_start
        if panics:
            self._panics = False
            await self._panic()

    async def _panic(self) -> None:
        try:
            await asyncio.sleep(PANIC_SECONDS)
        finally:
            await self.stop()
        raise BrokerPanicked(f"the broker {self._server_id} has ended by itself; start it again")

    async def _serve(self) -> None:
        settings = self._settings
        tls = None if settings.tls is None else settings.tls.context()
        backing = self._open_backing(self._clock)
        context = backing.context
        groups = GroupProcedures(
            context.node.groups,
            context.node.liveness,
            backing.cluster.groups,
            self._clock,
            consumer_timeout=settings.consumer_timeout,
            coordinator_timeout=settings.coordinator_timeout,
        )
        service = LiftbridgeService(context, groups, settings, self._injector, self._counters)
        listener = Listener(service, self._injector, tls)
        try:
            self._port = await listener.bind(self._host, self._port)
        except BaseException:
            backing.close()
            raise
        self._backing = backing
        context.node.info = BrokerInfo(self._server_id, self._host, self._port)
        try:
            if self._forgetful:
                self._isolate(context)
            elif context.node.is_forgetful:
                self._rejoin(context)
            if self._panics or settings.flaws.forgets_streams:
                context.node.forget()  # and start in `_replay`
            else:
                if settings.flaws.forgets_groups:
                    context.node.groups.forget()
                context.controller.start(context.node, self._clock.now_ns())
                self._create_internal_streams(backing)
            await listener.serve()
        except BaseException:
            listener.close()
            self._leave(backing)
            raise
        self._listener = listener
        self._maintenance = asyncio.create_task(
            self._run_background_tasks(backing),
            name=f"broker-maintenance-{self._server_id}",
        )

    async def _replay(self, backing: Backing) -> None:
        """Remember what flaws made the broker forget at its start, once it has run for a while."""
        await asyncio.sleep(REPLAY_SECONDS)
        while self.is_frozen:  # noqa: ASYNC110 - a test thaws it
            await asyncio.sleep(_FROZEN_POLL)
        node = backing.context.node
        if not self._forgetful:
            node.remember()
        if node.is_running:  # members were refused meanwhile
            node.liveness.reset(node.groups, self._clock.now_ns())
        else:
            backing.context.controller.start(node, self._clock.now_ns())
        self._create_internal_streams(backing)

    async def _run_background_tasks(self, backing: Backing) -> None:
        flaws = self._settings.flaws
        if flaws.forgets_streams or flaws.forgets_groups:
            await self._replay(backing)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(Maintenance(backing.context, backing.cluster.groups).run())
            if self._settings.activity:
                tasks.create_task(ActivityPublisher(backing.context).run())

    def _leave(self, backing: Backing) -> None:
        self._backing = None
        node = backing.context.node
        backing.context.controller.stop(node)
        backing.close()

    async def stop(self) -> None:
        """Close the port and all connections; streams, messages and cursors are kept.

        Open calls are aborted, as when a server is killed. Takes less than a second whatever
        clients do, may be called from any task and any number of times, and first waits for a start
        in progress. Cancelling it leaves the broker stopping in the background.
        """
        if self._starting is not None:
            await self._starting.wait()
        if self._state is BrokerState.RUNNING:
            self._state = BrokerState.STOPPING
            self._stopping = asyncio.create_task(self._shut_down(), name="broker-stop")
        if self._stopping is not None:
            await asyncio.shield(self._stopping)

    async def _shut_down(self) -> None:
        listener, self._listener = self._listener, None
        maintenance, self._maintenance = self._maintenance, None
        try:
            if listener is not None:
                await listener.shut_down()
            if maintenance is not None:
                maintenance.cancel()
                await asyncio.wait([maintenance])
        finally:
            if self._backing is not None:
                self._leave(self._backing)
            self._stopping = None
            self._state = BrokerState.STOPPED

    def __repr__(self) -> str:
        statistics = self.statistics()
        return (
            f"<{type(self).__name__} {self._state.value} at {self.address},"
            f" {statistics.streams} streams, {statistics.connections} connections>"
        )
