"""A simulated world: hosts, a network, brokers and clients in virtual time, from one seed.

Only this file and `loop` know simloop, which needs Python 3.12. A world is one event loop. Its
clock moves when nothing can run. The seed decides what runs next, how long a packet takes, every
random number, id and time of day: the same seed is the same run.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
import uuid
import zlib
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import Any, Final
from unittest.mock import patch

from grpclib.server import Handler
from simloop._net import _current_host
from simloop._policy import PCTPolicy, SchedulingPolicy

from liftbridge_aio._client.client import Client
from liftbridge_aio._publish.message import PendingPublish
from liftbridge_aio._runtime.supervisor import Child
from liftbridge_aio._subscribe.durable_reader import DurableReader
from liftbridge_aio._subscribe.partition_reader import PartitionReader
from liftbridge_aio.broker import BrokerPanicked, EmbeddedCluster, Flaws
from liftbridge_aio.broker.server.call import Call
from liftbridge_aio.broker.server.connections import ServerConnection
from liftbridge_aio.model import StreamPartition
from liftbridge_aio.options import ClientOptions

from .drift import Drift
from .loop import Loop

EPOCH: Final = 1_750_000_000.0
"""The time of day, in Unix seconds, at which each world begins."""
PORT: Final = 9292
NAMES: Final = "nmo"
"""Of the clusters, with which the ids of their brokers begin."""
LATENCY: Final = (0.0002, 0.003)
"""Seconds that a packet takes, least and most."""


SPIN: Final = 100_000
"""Steps without time passing, after which a world is stuck."""
UNFAIR: Final = 2_000
"""Steps without time passing, after which what waits longest runs next: something may poll, as
anyio does until all that it has cancelled has ended."""
PCT_DEPTH: Final = 4
PCT_STEPS: Final = 60_000
"""Steps among which priorities change, about as many as a simulated minute takes."""


class Stuck(AssertionError):
    """The world does not get on: something spins without time passing, or waits for ever."""


class _Task(asyncio.Task[Any]):
    """A task in Python, so that its hash can be replaced."""


class _Future(asyncio.Future[Any]):
    """A future in Python, so that its hash can be replaced."""


class _Watched:
    """A policy that raises when no time passes.

    Args:
        loop: whose policy it takes over.
        policy: chooses what runs next.
    """

    diverged_at = None

    def __init__(self, loop: Loop, policy: SchedulingPolicy) -> None:
        self._loop = loop
        self._policy = policy
        self._at = -1.0
        """The time of the last step."""
        self._steps = 0
        """Steps at that time."""

    def choose(self, ready: Sequence[Any]) -> int:
        """Choose what runs next."""
        if self._loop._now != self._at:
            self._at, self._steps = self._loop._now, 0
        self._steps += 1
        if self._steps > SPIN:
            self._steps = 0
            names = [_name(each[2]._callback) for each in self._loop._ready]
            raise Stuck(f"no time passes after {self._at:.3f} s while these run: {names}")
        return self._policy.choose(ready) if self._steps < UNFAIR else 0


def _name(callback: Callable[..., object]) -> str:
    owner = getattr(callback, "__self__", None)
    return owner.get_name() if isinstance(owner, asyncio.Task) else repr(callback)


_IN_SETS: Final = (
    *(_Task, _Future, PendingPublish, Call, ServerConnection, Child, PartitionReader),
    *(DurableReader, Handler),
)
"""Classes whose instances stand in sets that are iterated."""
_NUMBER: Final = "_number_in_world"
"""The attribute that is the hash of one of them."""


class World:
    """One run of one seed.

    Args:
        seed: decides everything that is left to chance.
        brokers: number of brokers, each on a host of its own: n1, n2, ….
        clusters: number of clusters, each of so many brokers: those of the second are m1, m2, ….
        by_priority: True: what runs next is decided by priorities that change at few steps (PCT),
            which finds what needs a certain order; False: by chance at each step.
        flaws: of the brokers; None: none.
    """

    def __init__(
        self,
        seed: int,
        brokers: int = 3,
        *,
        clusters: int = 1,
        by_priority: bool = False,
        flaws: Flaws | None = None,
    ) -> None:
        self.seed = seed
        self.flaws = flaws or Flaws()
        self.replaced: list[tuple[object, str, object]] = []
        """Attributes that are replaced while the world runs, each with its stand-in."""
        self.chance = random.Random(f"{seed}:world")
        """For the test itself: the draws of the code under test do not disturb it."""
        self.loop = Loop(seed)
        policy = PCTPolicy(seed, PCT_DEPTH, PCT_STEPS) if by_priority else self.loop._policy
        self.loop._policy = _Watched(self.loop, policy)
        self.loop.create_future = partial(_Future, loop=self.loop)
        self.net = self.loop.net
        self.net.set_defaults(latency=LATENCY)
        self._clocks: dict[str, float] = {}
        """By how many seconds the time of day of a host is wrong."""
        self._clocks_right_since = 0.0
        """When the last clock was set right."""
        self.clusters: list[EmbeddedCluster] = []
        self._drifting: set[str] = set()
        """Hosts whose clock runs too fast or too slowly."""
        self._drift: Drift | None = None
        """From the first fault of this kind on."""
        self._brokers = brokers
        self._names = NAMES[:clusters]
        self._one_way: set[tuple[str, str]] = set()
        """Pairs of hosts, from which nothing comes to the other."""
        self._dead: dict[str, asyncio.Event] = {}
        """Crashed hosts; the event is set when they are started again."""
        self.net._is_cut = self._is_cut

    @property
    def now(self) -> float:
        """Seconds since the world began."""
        return float(self.loop._true_time())

    @property
    def current_host(self) -> str:
        """The host of the task that asks."""
        return str(_current_host.get())

    def time_of_day(self) -> float:
        """Return the Unix time on the clock of the host that asks."""
        host = self.current_host
        time_of_day = self.loop.time() if host in self._drifting else self.now
        return EPOCH + float(time_of_day) + self._clocks.get(host, 0.0)

    @property
    def cluster(self) -> EmbeddedCluster:
        """The first cluster."""
        return self.clusters[0]

    @property
    def broker_ids(self) -> list[str]:
        """The ids of all brokers, which are the names of their hosts, too."""
        return [each for cluster in self.clusters for each in sorted(cluster.nodes)]

    def addresses(self, cluster: int = 0) -> list[str]:
        """Return the addresses of the brokers of a cluster."""
        return [f"{each}:{PORT}" for each in sorted(self.clusters[cluster].nodes)]

    def client(self, options: ClientOptions, cluster: int = 0) -> Client:
        """Return a client of a cluster."""
        return Client(*self.addresses(cluster), options=options)

    async def let_last(self, seconds: float) -> None:
        """Let the outage of a broker last."""
        await asyncio.sleep(seconds)

    def clocks_were_right(self, since: float) -> bool:
        """Return whether no clock has been wrong since a time, in seconds of the world."""
        are_right = not self._clocks and not self._drifting
        return are_right and self._clocks_right_since <= since

    def trace_hash(self) -> str:
        """Return the digest of all decisions: of what ran when, and of each packet."""
        return str(self.loop.trace_hash())

    def run(self, main: Callable[[], Coroutine[Any, Any, None]], seconds: float) -> None:
        """Run a program in new clusters; what it starts must have ended with it.

        Args:
            main: the program.
            seconds: simulated seconds after which it has failed.

        Raises:
            Stuck: it did not end in time, or left a task behind.
        """
        with self._reproducible():
            try:
                self.loop.run_until_complete(self._main(main, seconds))
            finally:
                self._end()

    async def _main(self, main: Callable[[], Coroutine[Any, Any, None]], seconds: float) -> None:
        ports = [PORT] * self._brokers
        self.clusters = [
            EmbeddedCluster(self._brokers, ports=ports, name=each, flaws=self.flaws)
            for each in self._names
        ]
        for cluster in self.clusters:
            for server_id, node in cluster.nodes.items():
                self.net.host(server_id)
                node._host = server_id
                vars(node)["start"] = partial(self._start, server_id, node.start)
        before = asyncio.all_tasks()
        for cluster in self.clusters:
            await cluster.start()
        program = asyncio.create_task(main(), name="program")
        try:
            await asyncio.wait({program}, timeout=seconds)
            if not program.done():
                text = f"seed {self.seed} did not end within {seconds:g} s: {self._waiting(before)}"
                program.cancel()
                await asyncio.wait({program})
                raise Stuck(text)
            program.result()
        finally:
            for cluster in self.clusters:
                await cluster.stop()
        await asyncio.sleep(1)  # what ends by itself
        left = self._waiting(before)
        if left:
            raise Stuck(f"seed {self.seed} left tasks behind: {left}")

    async def _start(self, host: str, start: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await self.on(host, start())
        except BrokerPanicked:  # whoever watches over it starts it again
            await self.on(host, start())

    def on(self, host: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task on a host, which gets its address, and is ended by its crash."""
        task: asyncio.Task[Any] = self.net.host(host).create_task(work)
        return task

    # Faults

    def cut(self, host: str, others: Sequence[str], direction: str) -> None:
        """Let nothing pass between a host and others: to them, from them, or in both directions."""
        for other in others:
            if direction != "from":
                self._one_way.add((host, other))
            if direction != "to":
                self._one_way.add((other, host))

    def slow_down(self, seconds: float) -> None:
        """Let each packet take up to so many seconds longer."""
        low, high = LATENCY
        self.net.set_defaults(latency=(low + seconds / 2, high + seconds))

    def set_clock(self, host: str, ahead: float) -> None:
        """Let the time of day of a host be wrong by so many seconds; 0: right again."""
        if ahead:
            self._clocks[host] = ahead
        else:
            self._clocks.pop(host, None)
            self._clocks_right_since = self.now

    def set_rate(self, host: str, rate: float) -> None:
        """Let the clocks of a host run at a rate; at 1.0 its time of day is right again."""
        if self._drift is None:
            self._drift = drift = Drift(self.loop._true_time, _current_host.get)
            loop, run_at = self.loop, self.loop._call_at_true

            def call_later(delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
                when = loop._true_time() + drift.seconds(delay)
                return run_at(when, loop.time() + delay, callback, args, context)

            def call_at(when: float, callback: Any, *args: Any, context: Any = None) -> Any:
                at = loop._true_time() + drift.seconds(when - loop.time())
                return run_at(at, when, callback, args, context)

            self.net._offset_now = drift.ahead
            loop.call_later, loop.call_at = call_later, call_at
        self._drift.set_rate(host, rate)
        if rate == 1.0:
            self._drifting.discard(host)
            self._clocks_right_since = self.now
        else:
            self._drifting.add(host)

    def heal(self) -> None:
        """Let everything pass, and what was held meanwhile."""
        self._one_way.clear()
        self.net.heal()

    def _is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._one_way

    async def crash(self, host: str) -> None:
        """Crash a host: it sends nothing any more, and its tasks end."""
        self._dead[host] = asyncio.Event()
        tasks = [*self.net._tasks[host]]
        self.net.crash(host)
        if tasks:
            await asyncio.wait(tasks)

    def restart(self, host: str) -> None:
        """Start a host that has crashed."""
        self.net.restart(host)
        self._dead.pop(host).set()

    async def wait_alive(self, host: str) -> None:
        """Wait until a host runs."""
        if host in self._dead:
            await self._dead[host].wait()
        self.net.host(host)

    def _waiting(self, before: set[asyncio.Task[Any]]) -> str:
        left = asyncio.all_tasks() - before
        return ", ".join(sorted(task.get_name() for task in left if not task.done()))

    def _end(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=60.0))
        self.loop.close()

    @contextmanager
    def _reproducible(self) -> Iterator[None]:
        """Take time, ids and random numbers of the standard library from the seed."""
        ids = random.Random(f"{self.seed}:ids")
        state = random.getstate()
        random.seed(f"{self.seed}:code")

        numbers = count()

        def number(of: object) -> int:
            # By the order of first use, not by the address in memory. The object has it itself: a
            # table of all objects would keep each task and each call of a run.
            if not hasattr(of, _NUMBER):
                setattr(of, _NUMBER, next(numbers))
            return int(getattr(of, _NUMBER))

        replaced: list[tuple[object, str, object]] = [
            *((each, "__hash__", number) for each in _IN_SETS),
            (asyncio, "Task", _Task),
            (StreamPartition, "__hash__", lambda of: zlib.crc32(repr(tuple(of)).encode())),
            (time, "time", self.time_of_day),
            (time, "time_ns", lambda: int(self.time_of_day() * 1e9)),
            (time, "monotonic", self.loop.time),
            (secrets, "token_bytes", lambda size=32: ids.randbytes(size)),
            (secrets, "token_hex", lambda size=32: ids.randbytes(size).hex()),
            (secrets, "token_urlsafe", lambda size=32: ids.randbytes(size).hex()),
            (uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4)),
            *self.replaced,
        ]
        try:
            with ExitStack() as stack:
                for module, name, stand_in in replaced:
                    stack.enter_context(patch.object(module, name, stand_in))
                yield
        finally:
            random.setstate(state)
