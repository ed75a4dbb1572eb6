"""An event loop in virtual time for tests on embedded brokers: waiting takes no time.

A test that carries the marker `virtual_time` runs on it where Python is 3.12 or later, and on the
usual event loop elsewhere. In the places listed here each test gets the marker whose parameters and
fixtures name no real server: the same test on a real server is the witness. The network is
simulated, and fault proxies work in it. A test that starts processes, opens sockets itself, counts
the turns of its loop or moves many bytes, which costs more than waiting, carries `real_time`. Each
test begins with the same chance: LIFTBRIDGE_SEED=7 gives them all another one. The simulation in
`tests/simulation` has hosts, faults and seeds besides.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import random
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import pytest

LOCAL: Final = frozenset({"127.0.0.1", "localhost", "::1"})
SEED: Final = int(os.environ.get("LIFTBRIDGE_SEED", "0"))
"""Decides what runs next, how long a packet takes, and what the code under test draws."""
LATENCY: Final = (0.0001, 0.0005)
"""Seconds that a packet takes, least and most."""
PLACES: Final = frozenset({"faults", "cluster", "test_gateway.py"})
"""Folders and files whose tests run on both embedded and real servers, and wait there."""
IS_POSSIBLE: Final = sys.version_info >= (3, 12)

if IS_POSSIBLE or TYPE_CHECKING:
    from simloop._net import DRIVER

    from liftbridge_aio.testing.simulation.loop import Loop

    class _Listening:
        """Stands for the socket of a server, which has an address only."""

        def __init__(self, host: str, port: int) -> None:
            self._name = host, port

        def getsockname(self) -> tuple[str, int]:
            return self._name

        def fileno(self) -> int:
            return -1

    class VirtualLoop(Loop):
        """An event loop whose clock moves when nothing can run; all addresses are this machine."""

        def __init__(self) -> None:
            super().__init__(SEED)
            random.seed(SEED)
            self.net.set_defaults(latency=LATENCY)
            self._began = time.time()
            self._ports = itertools.count(20_000)
            resolve = self.net._resolve
            self.net._resolve = lambda host: DRIVER if host in LOCAL else resolve(host)

        def run_forever(self) -> None:
            """Run in virtual time, of which the clocks of the standard library tell, too."""
            clocks: list[tuple[str, Callable[..., float | None]]] = [
                ("time", lambda: self._began + self.time()),
                ("time_ns", lambda: int((self._began + self.time()) * 1e9)),
                ("monotonic", self.time),
                ("perf_counter", self.time),
                ("sleep", self._block),
            ]
            with ExitStack() as stack:
                for name, clock in clocks:
                    stack.enter_context(patch.object(time, name, clock))
                super().run_forever()

        def _block(self, seconds: float) -> None:
            """Let time pass in which nothing else runs."""
            self._now += seconds

        async def create_server(
            self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
        ) -> Any:
            """Listen, on a free port if it is 0."""
            for about_sockets in ("start_serving", "reuse_address"):
                options.pop(about_sockets, None)
            port = port or next(self._ports)
            server = await super().create_server(protocol_factory, host, port, **options)
            kind = type(server)
            server.__class__ = type(kind.__name__, (kind,), {"sockets": (_Listening(host, port),)})
            return server

        def remove_reader(self, fd: Any) -> bool:  # noqa: ARG002 - asyncio names it
            """Do nothing: a server here has no socket that could become readable."""
            return False

        def close(self) -> None:
            """Take what is left of the test out of collections, of which each run makes one."""
            super().close()
            gc.collect()
            gc.freeze()

        async def shutdown_asyncgens(self) -> None:
            """Do nothing: asynchronous generators are closed by their owners."""

        async def shutdown_default_executor(self, timeout: float | None = None) -> None:
            """Do nothing: there are no threads."""


def _new_loop() -> asyncio.AbstractEventLoop:
    """Make the event loop that the test wants which is set up."""
    return VirtualLoop() if _is_wanted[0] else asyncio.new_event_loop()


_is_wanted: Final = [False]
"""Whether the test that is set up runs in virtual time."""


def loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return what makes event loops, for the hook of pytest-asyncio.

    It asks for a test before its parameters are known, so the loop is chosen when it is made.
    """
    return {"chosen": _new_loop}


def choose_loop(item: pytest.Item) -> None:
    """Choose the event loop of the test that is set up next."""
    _is_wanted[0] = IS_POSSIBLE and item.get_closest_marker("virtual_time") is not None


def mark_embedded(items: Sequence[pytest.Item], real: Collection[str]) -> None:
    """Mark those tests about faults that are on embedded servers, but for those marked `real_time`.

    Args:
        items: all tests.
        real: the fixtures and parameters that stand for a real server.
    """
    for item in items:
        if (
            not PLACES.isdisjoint({item.path.parent.name, item.path.name})
            and isinstance(item, pytest.Function)
            and iscoroutinefunction(item.obj)
            and not item.get_closest_marker("real_time")
        ):
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            named = {each for each in parameters.values() if isinstance(each, str)}
            if named.union(item.fixturenames).isdisjoint(real):
                item.add_marker(pytest.mark.virtual_time)
