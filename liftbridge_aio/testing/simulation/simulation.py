"""The simulated world as users have it: their processes, the brokers, and faults by a seed."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from liftbridge_aio.errors import LiftbridgeError

if TYPE_CHECKING:
    from liftbridge_aio.broker import EmbeddedCluster

    from .faults import Fault
    from .processes import Main
    from .world import World

BOUND: Final = 300.0
"""Simulated seconds for everything besides the faults."""
POLL: Final = 0.1
"""Simulated seconds between two looks at a condition."""


class Simulation:
    """A simulated world: brokers, processes and faults in virtual time, all from one seed.

    The pytest fixture `liftbridge_simulation` is one. It needs Python 3.12 and the extra
    `simulation`.

    Args:
        seed: decides the schedule, the network, each random number and the faults.
        seconds: simulated seconds of faults.
        brokers: how many there are.
        faults: the numbers of the planned faults to inflict; None: all.

    Raises:
        ImportError: Python is older than 3.12, or the extra is not installed.

    Attributes:
        seed: see above.
        seconds: see above.
        planned: the faults that `inflict_faults` inflicts.
        world: what faults are made of: hosts, clocks and links, for faults of your own.
    """

    def __init__(
        self,
        seed: int,
        *,
        seconds: float = 600.0,
        brokers: int = 3,
        faults: Collection[int] | None = None,
    ) -> None:
        # They need simloop; this module is imported without it.
        try:
            from .faults import plan  # noqa: PLC0415
            from .processes import Processes  # noqa: PLC0415
            from .world import PORT, World  # noqa: PLC0415
        except ImportError as error:
            raise ImportError(
                f"the simulation needs Python 3.12 or newer and simloop ({error}):"
                " pip install 'liftbridge-aio[simulation]'"
            ) from error

        self.seed = seed
        self.seconds = seconds
        self.planned: list[Fault] = [
            each for each in plan(seed, seconds) if faults is None or each.number in faults
        ]
        self.world: World = World(seed, brokers, by_priority=seed % 3 == 0)
        self._processes = Processes(self.world)
        self._servers = [f"n{number}:{PORT}" for number in range(1, brokers + 1)]

    @property
    def addresses(self) -> list[str]:
        """The addresses of the brokers, which `LIFTBRIDGE_SERVERS` names in the world."""
        return [*self._servers]

    @property
    def cluster(self) -> EmbeddedCluster:
        """The brokers."""
        return self.world.cluster

    @property
    def now(self) -> float:
        """Simulated seconds since the world began."""
        return self.world.now

    @property
    def chance(self) -> random.Random:
        """Random numbers for the test: drawing them does not change those of the programs."""
        return self.world.chance

    @property
    def digest(self) -> str:
        """The digest of all that has happened: equal for equal runs."""
        return self.world.trace_hash()

    def process(
        self,
        name: str,
        main: Main,
        *,
        may_end_with: tuple[type[BaseException], ...] = (LiftbridgeError,),
        twin: bool = True,
    ) -> None:
        """Start a process on a host of its own; after each end it is started again.

        A fault may crash it, cut it off, or tell it to end, which cancels its task. It loses all
        that it has in memory, so `main` builds everything anew.

        Args:
            name: its name, and that of its host.
            main: its main function, for example `functools.partial(serve, database)`.
            may_end_with: errors with which it may end, to be started again; any other one fails
                the test.
            twin: True: a fault may start it a second time while the first one, which was only cut
                off, goes on.

        Raises:
            ValueError: the name is taken.
        """
        self._processes.start(name, main, may_end_with, twin=twin)

    async def inflict_faults(self) -> None:
        """Inflict the planned faults, one after the other; return when the last one is undone."""
        from .faults import inflict  # noqa: PLC0415 - needs Python 3.12

        began = self.now
        await inflict(self.world, self.planned, self._processes)
        await asyncio.sleep(max(0.0, began + self.seconds - self.now))

    async def until(self, condition: Callable[[], object], within: float = 60.0) -> None:
        """Wait until something is so.

        Args:
            condition: asked every tenth of a second; a true value ends the wait.
            within: simulated seconds until it must be so.

        Raises:
            AssertionError: it is not so in time.
        """
        deadline = self.now + within
        while not condition():
            if self.now >= deadline:
                name = getattr(condition, "__qualname__", repr(condition))
                raise AssertionError(f"{name} was not true within {within:g} simulated seconds")
            await asyncio.sleep(POLL)

    def run(self, test: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run a test in the world, once; processes and brokers end with it.

        Args:
            test: an async function that starts processes and inflicts faults.

        Raises:
            BaseException: what the test raises, or the process that failed first.
        """
        from .stand_ins import stand_ins  # noqa: PLC0415 - needs Python 3.12

        self.world.replaced += stand_ins(self.world)
        with patch.dict(os.environ, LIFTBRIDGE_SERVERS=",".join(self.addresses)):
            self.world.run(lambda: self._main(test), self.seconds + BOUND)

    async def _main(self, test: Callable[[], Coroutine[Any, Any, object]]) -> None:
        body = asyncio.create_task(test(), name="test")
        failed = self._processes.failed
        try:
            awaited: tuple[asyncio.Future[Any], ...] = (body, failed)
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if failed.done():
                raise failed.result()
            body.result()
        finally:
            body.cancel()
            await asyncio.wait({body})
            await self._processes.end()
        if failed.done():
            raise failed.result()
