"""A simulated world: hosts, a network, brokers and clients in virtual time, from one seed.

The only file that knows simloop, which needs Python 3.12. A world is one event loop. Its clock
moves when nothing can run. The seed decides what runs next, how long a packet takes, every random
number, id and time of day: the same seed is the same run.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
import uuid
import zlib
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final
from unittest.mock import patch

from grpclib.server import Handler
from simloop import SimLoop

from liftbridge_aio._publish.message import PendingPublish
from liftbridge_aio._subscribe.durable_reader import DurableReader
from liftbridge_aio._subscribe.partition_reader import PartitionReader
from liftbridge_aio.broker.embedded_cluster import EmbeddedCluster
from liftbridge_aio.broker.server.call import Call
from liftbridge_aio.broker.server.connections import ServerConnection
from liftbridge_aio.model import StreamPartition
from liftbridge_aio.net.supervisor import Child

EPOCH: Final = 1_750_000_000.0
"""The time of day, in Unix seconds, at which each world begins."""
PORT: Final = 9292
LATENCY: Final = (0.0002, 0.003)
"""Seconds that a packet takes, least and most."""


class Stuck(AssertionError):
    """The world does not get on: something spins without time passing, or waits for ever."""


class _Task(asyncio.Task[Any]):
    """A task in Python, so that its hash can be replaced."""


class _Future(asyncio.Future[Any]):
    """A future in Python, so that its hash can be replaced."""


_IN_SETS: Final = (
    *(_Task, _Future, PendingPublish, Call, ServerConnection, Child, PartitionReader),
    *(DurableReader, Handler),
)
"""Classes whose instances stand in sets that are iterated."""


class World:
    """One run of one seed.

    Args:
        seed: decides everything that is left to chance.
        brokers: number of brokers, each on a host of its own: n1, n2, ….
    """

    def __init__(self, seed: int, brokers: int = 3) -> None:
        self.seed = seed
        self.chance = random.Random(f"{seed}:world")
        """For the test itself: the draws of the code under test do not disturb it."""
        self.loop = SimLoop(seed)
        self.loop.set_task_factory(lambda loop, coro, **more: _Task(coro, loop=loop, **more))
        vars(self.loop)["create_future"] = partial(_Future, loop=self.loop)
        self.net = self.loop.net
        self.net.set_defaults(latency=LATENCY)
        self.cluster: EmbeddedCluster
        self._brokers = brokers

    @property
    def now(self) -> float:
        """Seconds since the world began."""
        return float(self.loop.time())

    @property
    def broker_ids(self) -> list[str]:
        """The ids of the brokers, which are the names of their hosts, too."""
        return sorted(self.cluster.nodes)

    def trace_hash(self) -> str:
        """Return the digest of all decisions: of what ran when, and of each packet."""
        return str(self.loop.trace_hash())

    def run(self, main: Callable[[], Coroutine[Any, Any, None]], seconds: float) -> None:
        """Run a program in a new cluster; what it starts must have ended with it.

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
        self.cluster = cluster = EmbeddedCluster(self._brokers, ports=[PORT] * self._brokers)
        for server_id, node in cluster.nodes.items():
            self.net.host(server_id)
            node._host = server_id
            vars(node)["start"] = partial(self._start, server_id, node.start)
        before = asyncio.all_tasks()
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
            await cluster.stop()
        await asyncio.sleep(1)  # what ends by itself
        left = self._waiting(before)
        if left:
            text = f"seed {self.seed} left tasks behind: {left}"
            raise Stuck(text)

    async def _start(self, host: str, start: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await self.on(host, start())

    def on(self, host: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task on a host, which gets its address, and is ended by its crash."""
        task: asyncio.Task[Any] = self.net.host(host).create_task(work)
        return task

    def _waiting(self, before: set[asyncio.Task[Any]]) -> str:
        left = asyncio.all_tasks() - before
        return ", ".join(sorted(task.get_name() for task in left if not task.done()))

    def _end(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    @contextmanager
    def _reproducible(self) -> Iterator[None]:
        """Take time, ids and random numbers of the standard library from the seed."""
        ids = random.Random(f"{self.seed}:ids")
        state = random.getstate()
        random.seed(f"{self.seed}:code")

        def clock() -> float:
            return EPOCH + self.now

        numbers: dict[int, tuple[int, object]] = {}

        def number(of: object) -> int:
            # By the order of first use, not by the address in memory; the object is kept, so that
            # no other one gets its address.
            return numbers.setdefault(id(of), (len(numbers), of))[0]

        replaced: list[tuple[object, str, object]] = [
            *((each, "__hash__", number) for each in _IN_SETS),
            (StreamPartition, "__hash__", lambda of: zlib.crc32(repr(tuple(of)).encode())),
            (time, "time", clock),
            (time, "time_ns", lambda: int(clock() * 1e9)),
            (time, "monotonic", self.loop.time),
            (secrets, "token_bytes", lambda size=32: ids.randbytes(size)),
            (secrets, "token_hex", lambda size=32: ids.randbytes(size).hex()),
            (secrets, "token_urlsafe", lambda size=32: ids.randbytes(size).hex()),
            (uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4)),
        ]
        try:
            with ExitStack() as stack:
                for module, name, stand_in in replaced:
                    stack.enter_context(patch.object(module, name, stand_in))
                yield
        finally:
            random.setstate(state)
