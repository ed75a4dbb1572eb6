"""The embedded broker in a thread of its own, so that it serves while a test waits for Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.broker.faults.fault import Stall
from liftbridge_aio.broker.faults.fault_plan import RpcName
from support.loop_thread import Closing, LoopThread
from support.servers.ports import free_ports


class BrokerThread(Closing):
    """An embedded broker that can be stopped and started again, with all its data, on its port.

    Args:
        **options: of the broker.
    """

    def __init__(self, **options: Any) -> None:
        self._loop = LoopThread()
        (port,) = free_ports(1)  # nobody else's while it is stopped
        self._broker = EmbeddedBroker(port=port, **options)
        self._address = ""
        self.start()

    def close(self) -> None:
        self.stop()
        self._loop.close()

    @property
    def address(self) -> str:
        """The address for clients, `host:port`; the same while it is stopped."""
        return self._address

    def start(self) -> None:
        """Start it, for the first time or again."""
        self._loop.run(self._broker.start())
        self._address = self._broker.address

    def stop(self) -> None:
        """Stop it; connections break, data stays."""
        self._loop.run(self._broker.stop())

    @contextmanager
    def stalled(self, rpc: RpcName, **which: Any) -> Iterator[Callable[[], bool]]:
        """Stall calls until the end; gives a function that tells if one is stalled."""

        async def plan() -> Stall:
            return self._broker.faults.stall(rpc, **which)

        async def release(stall: Stall) -> None:
            stall.release()

        stall = self._loop.run(plan())
        try:
            yield lambda: stall.applied > 0
        finally:
            self._loop.run(release(stall))

    @contextmanager
    def away(self, seconds: float, forgetful: float) -> Iterator[None]:
        """Stop it; meanwhile it comes back, and some time after that it knows its streams again."""

        async def come_back() -> None:
            await asyncio.sleep(seconds)
            self._broker.faults.forget_streams()
            await self._broker.start()
            await asyncio.sleep(forgetful)
            self._broker.faults.remember_streams()

        self.stop()
        with ThreadPoolExecutor(1) as thread:
            back = thread.submit(self._loop.run, come_back())
            yield
            back.result()
