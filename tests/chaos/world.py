"""This machine as programs and faults see it: real nodes, and processes with links of their own."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from chaos.goaway import GoawayProxy
from chaos.witness import Witness, running_witness
from liftbridge_aio import Client, ClientOptions
from liftbridge_aio.testing import Direction
from support.servers.build import build_nats, build_server, pinned_version
from support.servers.cluster import NODE_IDS, LiftbridgeCluster
from support.servers.node import LiftbridgeNode, Setting
from support.servers.ports import free_ports

SETTINGS: Final[Mapping[str, Setting]] = {
    # A node tells the old address of a broker for so long after it has moved; when it has expired
    # and a node is dead, a question for metadata takes three seconds (W28). The default is 2m.
    "metadata.cache.max.age": "15s",
    # A machine that is busy must not expel members.
    "groups.consumer.timeout": "8s",
    "groups.coordinator.timeout": "3s",
    "activity.stream.enabled": False,
}
LAST_WORDS: Final = 1500
DRIVER: Final = "driver"
"""The host of what starts the programs and judges them."""
NOWHERE: Final = "127.0.0.1:1"
"""For an address that a node told before it moved, and before the host asked."""
WAYS: Final = {"both": Direction.BOTH, "to": Direction.TO_TARGET, "from": Direction.TO_CLIENTS}

_host: ContextVar[str] = ContextVar("host", default=DRIVER)


class RealWorld:
    """Three nodes and the links of each process to them.

    It is what `World` is in a simulation: programs, processes and faults are the same in both. A
    process is a task; each host has a proxy for each node, so that it can be cut off alone.

    Args:
        cluster: the nodes.
        witness: looks at them past the links.
        seed: decides what is left to chance.
    """

    def __init__(self, cluster: LiftbridgeCluster, witness: Witness, seed: int) -> None:
        self.chance = random.Random(f"{seed}:world")
        self.cluster = cluster
        self.witness = witness
        self.advertised = dict(cluster.addresses)
        """The address that each node tells clients."""
        self.works: Callable[[], Awaitable[None]] = _do_nothing
        """Returns when clients work, though a node is down."""
        self._seed = seed
        self._links: defaultdict[str, dict[str, GoawayProxy]] = defaultdict(dict)
        """By host: the proxy that stands for an address that a node tells or has told."""
        self._tasks: defaultdict[str, set[asyncio.Task[Any]]] = defaultdict(set)
        self._dead: dict[str, asyncio.Event] = {}
        """Crashed hosts; the event is set when they are started again."""
        self._healing: set[asyncio.Task[None]] = set()

    # For programs

    @property
    def now(self) -> float:
        """The time in seconds."""
        return time.monotonic()

    @property
    def current_host(self) -> str:
        """The host of the task that asks."""
        return _host.get()

    @property
    def nats_url(self) -> str:
        """The NATS server of the nodes, past all proxies."""
        return self.cluster.nodes[NODE_IDS[0]].nats_url

    def clocks_were_right(self, since: float) -> bool:
        """Return True: this machine has one clock."""
        del since
        return True

    def addresses(self, cluster: int = 0) -> list[str]:
        """Return the addresses of the nodes for the host that asks."""
        assert not cluster
        links = self._links[self.current_host]
        return [links[each].address for each in self.advertised.values()]

    def client(self, options: ClientOptions, cluster: int = 0) -> Client:
        """Return a client of the host that asks."""
        links = self._links[self.current_host]

        def link(told: str) -> str:
            return links[told].address if told in links else NOWHERE

        mapped = replace(options, address_map=link)
        return Client(*self.addresses(cluster), options=mapped)

    # For processes

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""
        return asyncio.get_running_loop()

    @property
    def broker_ids(self) -> Sequence[str]:
        """The ids of the nodes."""
        return NODE_IDS

    def on(self, host: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task on a host."""

        async def run() -> Any:
            _host.set(host)
            try:
                await self.healed()
                await self.link(host)
            except BaseException:
                work.close()
                raise
            return await work

        task = asyncio.create_task(run())
        self._tasks[host].add(task)
        task.add_done_callback(self._tasks[host].discard)
        return task

    async def wait_alive(self, host: str) -> None:
        """Wait until a host runs."""
        if host in self._dead:
            await self._dead[host].wait()

    async def link(self, host: str) -> None:
        """Give a host a link to each address that a node tells."""
        for node, told in self.advertised.items():
            if told not in self._links[host]:
                target = self.cluster.addresses[node]
                seed = self._seed + len(self._links) * len(NODE_IDS)
                [port] = free_ports(1)  # while it is refused, no connection takes one of these
                proxy = GoawayProxy(target, port=port, seed=seed)
                self._links[host][told] = await proxy.__aenter__()

    # For faults

    @property
    def clusters(self) -> tuple[RealWorld]:
        """The one cluster there is."""
        return (self,)

    @property
    def nodes(self) -> Mapping[str, LiftbridgeNode]:
        """The nodes by their ids."""
        return self.cluster.nodes

    async def stop_node(self, server_id: str) -> None:
        """Kill a node; its address refuses connections, or takes and drops them as balancers do."""
        self.witness.down.add(server_id)
        await self.cluster.stop_node(server_id)
        if self.chance.random() < 0.5:
            for proxy in self.links_to(server_id):
                await proxy.refuse()

    async def start_node(self, server_id: str) -> None:
        """Start a node that was killed."""
        await self.cluster.start_node(server_id)
        await self.healed()  # which accepts again, too
        for proxy in self.links_to(server_id):
            await proxy.accept()
        self.witness.down.discard(server_id)

    def freeze(self, server_id: str) -> None:
        """Stop a node from running (SIGSTOP)."""
        self.witness.down.add(server_id)
        self.cluster.freeze(server_id)

    def thaw(self, server_id: str) -> None:
        """Let a node run again (SIGCONT)."""
        self.cluster.thaw(server_id)
        self.witness.down.discard(server_id)

    async def let_last(self, seconds: float) -> None:
        """Let the outage of a node last, until clients work with the two others.

        A node that starts while a partition has no leader cuts its log; see `server_faults`.
        """
        await asyncio.sleep(seconds)
        if len(self.witness.down) == 1:
            await self.works()

    def links_to(self, node: str, host: str | None = None) -> list[GoawayProxy]:
        """Return the links to a node, of one host or of all."""
        told = self.advertised[node]
        hosts = [*self._links] if host is None else [host]
        return [self._links[each][told] for each in hosts if told in self._links[each]]

    def cut(
        self, host: str, others: Sequence[str], direction: Literal["both", "to", "from"]
    ) -> None:
        """Let nothing pass between a host and nodes; it is held until `heal`."""
        for node in others:
            for proxy in self.links_to(node, host):
                proxy.freeze(WAYS[direction])

    def heal(self) -> None:
        """Let everything pass."""
        for links in self._links.values():
            self._heal(*(links[each] for each in self.advertised.values() if each in links))

    def slow_down(self, seconds: float) -> None:
        """Let everything take up to so many seconds longer."""
        for node in NODE_IDS:
            for proxy in self.links_to(node):
                proxy.delay(seconds / 2, seconds / 2)

    async def crash(self, host: str) -> None:
        """Crash the host of a process, whose tasks end unheard; or silence the links to a node."""
        if host in NODE_IDS:
            for proxy in self.links_to(host):
                proxy.swallow()
            return
        self._dead[host] = asyncio.Event()
        tasks = [*self._tasks[host]]
        links = [*self._links[host].values()]
        for proxy in links:
            proxy.swallow()
        for task in tasks:
            task.cancel()
        for proxy in links:
            await proxy.refuse()
            await proxy.reset()
        if tasks:
            await asyncio.wait(tasks)

    def restart(self, host: str) -> None:
        """Start a host that has crashed."""
        if host in NODE_IDS:
            self._heal(*self.links_to(host))
            return
        links = self._links[host]
        self._heal(*(links[each] for each in self.advertised.values() if each in links))
        self._dead.pop(host).set()

    def _heal(self, *proxies: GoawayProxy) -> None:
        for proxy in proxies:
            task = asyncio.create_task(proxy.heal())
            self._healing.add(task)
            task.add_done_callback(self._healing.discard)

    async def healed(self) -> None:
        """Wait until all links are healed that should be."""
        if self._healing:
            await asyncio.wait({*self._healing})

    async def move(self, node: str) -> None:
        """Have a node that is down tell another address from its next start on."""
        old = self.advertised[node]
        [port] = free_ports(1)
        self.cluster.nodes[node].advertise(port)
        self.advertised[node] = f"127.0.0.1:{port}"
        for host in [*self._links]:
            await self.link(host)
            await self._links[host][old].aclose()

    def last_words(self, node: str) -> str:
        """Return the output of a node at its end: its panic, or the end of its log."""
        log = self.nodes[node].log
        panic = log.rfind("panic:")
        return log[panic : panic + LAST_WORDS] if panic >= 0 else log[-LAST_WORDS:]

    async def aclose(self) -> None:
        """Close all links."""
        await self.healed()
        for links in self._links.values():
            for proxy in links.values():
                await proxy.aclose()


async def _do_nothing() -> None:
    """Ask nobody."""


@asynccontextmanager
async def running_world(folder: Path, seed: int) -> AsyncIterator[RealWorld]:
    """Start the nodes and the witness in an empty folder; they end with the context.

    Raises:
        ServerUnavailable: the servers cannot be built here.
        ClusterNotHealthy: they do not work together.
    """
    binaries = await asyncio.to_thread(build_server), await asyncio.to_thread(build_nats)
    cluster = LiftbridgeCluster(*binaries, folder, pinned_version(), SETTINGS)
    try:
        await asyncio.to_thread(cluster.open)
        async with running_witness(folder, cluster.addresses) as witness:
            world = RealWorld(cluster, witness, seed)
            await world.link(DRIVER)
            try:
                yield world
            finally:
                await world.aclose()
    finally:
        await asyncio.to_thread(cluster.close)
