"""An event loop in virtual time for tests on embedded brokers: waiting takes no time.

A test that carries the marker `virtual_time` runs on it where Python is 3.12 or later, and on the
usual event loop elsewhere. Its network is simulated. It cannot start processes, open real sockets
or wait for threads. The simulation in `tests/simulation` has hosts, faults and seeds besides.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import pytest

LOCAL: Final = frozenset({"127.0.0.1", "localhost", "::1"})
LATENCY: Final = (0.0001, 0.0005)
"""Seconds that a packet takes, least and most."""
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
            super().__init__(seed=0)
            self.net.set_defaults(latency=LATENCY)
            self._began = time.time()
            self._ports = itertools.count(20_000)
            resolve = self.net._resolve
            self.net._resolve = lambda host: DRIVER if host in LOCAL else resolve(host)

        def run_forever(self) -> None:
            """Run in virtual time, of which the clocks of the standard library tell, too."""
            clocks: list[tuple[str, Callable[[], float]]] = [
                ("time", lambda: self._began + self.time()),
                ("time_ns", lambda: int((self._began + self.time()) * 1e9)),
                ("monotonic", self.time),
                ("perf_counter", self.time),
            ]
            with ExitStack() as stack:
                for name, clock in clocks:
                    stack.enter_context(patch.object(time, name, clock))
                super().run_forever()

        async def create_server(
            self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
        ) -> Any:
            """Listen, on a free port if it is 0."""
            options.pop("start_serving", None)
            port = port or next(self._ports)
            server = await super().create_server(protocol_factory, host, port, **options)
            kind = type(server)
            server.__class__ = type(kind.__name__, (kind,), {"sockets": (_Listening(host, port),)})
            return server

        def remove_reader(self, fd: Any) -> bool:  # noqa: ARG002 - asyncio names it
            """Do nothing: a server here has no socket that could become readable."""
            return False

        async def shutdown_asyncgens(self) -> None:
            """Do nothing: asynchronous generators are closed by their owners."""

        async def shutdown_default_executor(self, timeout: float | None = None) -> None:
            """Do nothing: there are no threads."""


def loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return what makes the event loop of a test, by its name, for the hook of pytest-asyncio."""
    if IS_POSSIBLE and item.get_closest_marker("virtual_time"):
        return {"virtual": VirtualLoop}
    return {"real": asyncio.new_event_loop}
