"""Three real nodes, each behind the fault proxy that it tells clients of, and a witness."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from chaos.goaway import GoawayProxy
from liftbridge_aio._core.addresses import parse_address
from liftbridge_aio.testing import FaultProxy
from support.servers.build import build_nats, build_server, pinned_version
from support.servers.cluster import NODE_IDS, LiftbridgeCluster
from support.servers.node import CURSOR_PARTITIONS, Setting

SETTINGS: Final[Mapping[str, Setting]] = {
    # A node tells the old address of a broker for so long after it has moved; when it has expired
    # and a node is dead, a question for metadata takes three seconds (W28). The default is 2m.
    "metadata.cache.max.age": "15s",
    "groups.consumer.timeout": "3s",
    "groups.coordinator.timeout": "1s",
    "activity.stream.enabled": False,
}
LEADER_WITHIN: Final = 10.0
LEADER_PAUSE: Final = 0.1
LAST_WORDS: Final = 1500
LONGEST_REPLY: Final = 2**30
TESTS: Final = Path(__file__).resolve().parent.parent


class ProbeFailed(Exception):
    """The witness ended or did not answer."""


class ClusterLost(Exception):
    """The servers did not come to work again by themselves; the text says what was missing."""


class Probe:
    """The witness, a process of its own; see `probe.py` for what it can be asked."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._turn = asyncio.Lock()

    async def ask(self, do: str, within: float = 60.0, **request: Any) -> dict[str, Any]:
        """Ask for one thing and wait for its answer.

        Raises:
            ProbeFailed: It did not answer within 30 seconds more than it was given.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        line = json.dumps({"do": do, "within": within, **request}) + "\n"
        async with self._turn:
            stdin.write(line.encode())
            try:
                async with asyncio.timeout(within + 30):
                    reply = await stdout.readline()
            except TimeoutError:
                raise ProbeFailed(f"no answer to {do!r}") from None
        if not reply:
            raise ProbeFailed(f"it ended when asked for {do!r}")
        answer: dict[str, Any] = json.loads(reply)
        return answer


@asynccontextmanager
async def running_probe(folder: Path) -> AsyncIterator[Probe]:
    """Start the witness; it ends with the context."""
    with (folder / "probe.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "chaos.probe"),
            cwd=TESTS,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            limit=LONGEST_REPLY,
        )
    try:
        yield Probe(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        if process.returncode is None:
            process.kill()
        await process.wait()


class Stage:
    """The cluster and everything in front of it.

    Attributes:
        cluster: The nodes and NATS.
        proxies: The proxy that each node tells clients to connect to.
        flipping: The proxies of those clients whose bits are flipped, by the node.
        probe: The witness.
    """

    def __init__(
        self,
        cluster: LiftbridgeCluster,
        proxies: dict[str, GoawayProxy],
        flipping: dict[str, FaultProxy],
        probe: Probe,
        seed: int,
    ) -> None:
        self.cluster = cluster
        self.proxies = proxies
        self.flipping = flipping
        self.probe = probe
        self._seed = seed
        self.dead_refuse = True
        """True if the address of a node that is down refuses connections, as its machine would;
        False if it accepts and drops them, as a balancer would."""
        self._moves = 0
        self._down: set[str] = set()

    @property
    def advertised(self) -> dict[str, str]:
        """Return the addresses that nodes advertise to clients."""
        return {node: proxy.address for node, proxy in self.proxies.items()}

    @property
    def living(self) -> dict[str, str]:
        """Addresses past the proxies of the nodes that are meant to work now."""
        return {
            node: address
            for node, address in self.cluster.addresses.items()
            if node not in self._down
        }

    def flip_address(self, advertised: str) -> str:
        """The proxy that flips bits, for what a node tells; wherever it has moved to."""
        for node, proxy in self.proxies.items():
            if proxy.address == advertised:
                return self.flipping[node].address
        return advertised

    async def kill(self, *nodes: str) -> None:
        """End nodes at once."""
        for node in nodes:
            self._down.add(node)
            await self.cluster.kill(node)
            await self._leave_address(node)

    async def stop(self, node: str) -> None:
        """End a node in order."""
        self._down.add(node)
        await self.cluster.stop(node)
        await self._leave_address(node)

    async def start(self, *nodes: str) -> None:
        """Start nodes that are down."""
        for node in nodes:
            await self.cluster.start(node)
            await self.proxies[node].accept()
            self._down.discard(node)

    async def _leave_address(self, node: str) -> None:
        if self.dead_refuse:
            await self.proxies[node].refuse()

    async def freeze(self, node: str) -> None:
        """Stop a node from running."""
        self._down.add(node)
        await self.cluster.freeze(node)

    async def thaw(self, node: str) -> None:
        """Let a node run again."""
        await self.cluster.thaw(node)
        self._down.discard(node)

    async def move(self, node: str) -> None:
        """Have a node that is down tell another address from its next start on."""
        self._moves += 1
        old = self.proxies[node]
        target = self.cluster.addresses[node]
        self.proxies[node] = await GoawayProxy(target, seed=self._seed + self._moves).__aenter__()
        await old.aclose()
        self.cluster.nodes[node].advertise(parse_address(self.proxies[node].address)[1])

    def died(self) -> list[str]:
        """The nodes that have ended by themselves."""
        return [node for node in self.living if not self.cluster.nodes[node].running]

    def last_words(self, node: str) -> str:
        """Return the output of a node at its end: its panic, or the end of its log."""
        log = self.cluster.nodes[node].log
        panic = log.rfind("panic:")
        return log[panic : panic + LAST_WORDS] if panic >= 0 else log[-LAST_WORDS:]

    async def first_acks(
        self, places: Iterable[tuple[str, int]], prefix: str, within: float
    ) -> dict[str, Any]:
        """Have the witness publish until each place has given an ack, and store cursors."""
        return await self.probe.ask(
            "first_acks",
            within,
            nodes=self.living,
            targets=list(places),
            cursors=CURSOR_PARTITIONS,
            prefix=prefix,
        )

    async def whole(
        self, streams: Iterable[str], within: float, *, addresses: bool = False
    ) -> dict[str, Any]:
        """Have the witness wait until all replicas are in sync, and say so."""
        return await self.probe.ask(
            "wait_whole",
            within,
            nodes=self.living,
            streams=list(streams),
            advertised=self.advertised if addresses else None,
        )

    async def leaders(self) -> dict[tuple[str, int], str]:
        """Return the leader of each partition."""
        found = await self.probe.ask("leaders", nodes=self.living)
        return {(stream, partition): node for stream, partition, node in found["leaders"]}

    async def leader_of(self, stream: str, partition: int) -> str:
        """Return the leader of a partition.

        Raises:
            ClusterLost: Nobody says so in time.
        """
        until = time.monotonic() + LEADER_WITHIN
        while time.monotonic() < until:
            if leader := (await self.leaders()).get((stream, partition)):
                return leader
            await asyncio.sleep(LEADER_PAUSE)
        raise ClusterLost(f"nobody says who leads {stream}/{partition}")


@asynccontextmanager
async def running_stage(folder: Path, seed: int) -> AsyncIterator[Stage]:
    """Start everything in an empty folder; it ends with the context.

    Raises:
        ServerUnavailable: The servers cannot be built here.
        ClusterNotHealthy: They do not work together.
    """
    async with AsyncExitStack() as stack:
        # A proxy needs a port before its node can tell it, and a target that is known only then.
        server = await asyncio.to_thread(build_server)
        cluster = LiftbridgeCluster(
            server,
            await asyncio.to_thread(build_nats),
            folder,
            pinned_version(),
            SETTINGS,
        )
        cluster.prepare()
        stack.callback(cluster.close)
        proxies = {}
        flipping = {}
        for number, node in enumerate(NODE_IDS):
            address = cluster.addresses[node]
            proxies[node] = await GoawayProxy(address, seed=seed + 1000 * number).__aenter__()
            flipping[node] = await FaultProxy(address, seed=seed + 1000 * number).__aenter__()
            cluster.nodes[node].advertise(parse_address(proxies[node].address)[1])
        probe = await stack.enter_async_context(running_probe(folder))
        stage = Stage(cluster, proxies, flipping, probe, seed)
        stack.push_async_callback(_close_proxies, stage)
        await asyncio.to_thread(cluster.open)
        yield stage


async def _close_proxies(stage: Stage) -> None:
    for proxy in (*stage.proxies.values(), *stage.flipping.values()):
        await proxy.aclose()
