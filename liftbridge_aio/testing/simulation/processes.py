"""The processes of a world: each has a host, and is started again when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

Main = Callable[[], Coroutine[Any, Any, object]]
"""The main function of a process."""

CLOSED: Final = 30.0
"""Simulated seconds within which a process ends that is told to."""
REBORN: Final = 0.5
"""Seconds after which a process that has ended is started again."""


class Hosts(Protocol):
    """Where processes run: a simulated world, or this machine."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""

    @property
    def broker_ids(self) -> Sequence[str]:
        """The hosts of brokers."""

    def on(self, host: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task on a host."""

    async def wait_alive(self, host: str) -> None:
        """Wait until a host runs."""


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Return the errors of a group and of the groups in it."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error


@dataclass
class _Process:
    """A process.

    Attributes:
        main: its main function.
        may_end_with: errors after which it is started again; any other one fails the run.
        life: the running task; None before the first start.
        keeper: the task that starts it again.
        twins: how often it was started a second time, while the first one was alive.
    """

    main: Main
    may_end_with: tuple[type[BaseException], ...]
    life: asyncio.Task[object] | None = None
    keeper: asyncio.Task[None] = field(init=False)
    twins: int = 0


class Processes:
    """Runs processes as an operating system does, and inflicts on them what faults demand.

    Args:
        world: where they run.

    Attributes:
        hosts: the host of each, which has its name.
        with_twins: those that may run twice for a while.
        failed: resolved with the first error that no process may end with.
    """

    def __init__(self, world: Hosts) -> None:
        self.hosts: list[str] = []
        self.with_twins: list[str] = []
        self.failed: asyncio.Future[BaseException] = world.loop.create_future()
        self._world = world
        self._processes: dict[str, _Process] = {}

    def start(
        self, name: str, main: Main, may_end_with: tuple[type[BaseException], ...], *, twin: bool
    ) -> None:
        """Start a process, and start it again after each end."""
        if name in self._processes or name in self._world.broker_ids:
            raise ValueError(
                f"there is a process or broker {name!r} already: give this one another name"
            )
        process = self._processes[name] = _Process(main, may_end_with)
        self.hosts.append(name)
        if twin:
            self.with_twins.append(name)
        process.keeper = asyncio.create_task(self._keep(name, process), name=f"keeper of {name}")

    async def end(self) -> None:
        """End all processes, and start none again.

        Raises:
            AssertionError: one did not end in time.
        """
        lives = []
        for process in self._processes.values():
            process.keeper.cancel()
            if process.life is not None:
                process.life.cancel()
                lives.append(process.life)
        left: set[asyncio.Task[object]] = set()
        if lives:
            _, left = await asyncio.wait(lives, timeout=CLOSED)
        if left:
            names = ", ".join(sorted(each.get_name() for each in left))
            raise AssertionError(
                f"told to end, these did not within {CLOSED:g} simulated seconds: {names}"
            )

    # For faults

    def stop(self, host: str) -> None:
        """Tell a process to end: its task is cancelled, as by Ctrl-C."""
        life = self._processes[host].life
        if life is not None:
            life.cancel()

    def start_twin(self, host: str) -> str:
        """Start a process once more, and return the host on which it runs."""
        process = self._processes[host]
        process.twins += 1
        twin = f"{host}-twin-{process.twins}"
        life = self._world.on(twin, process.main())
        life.set_name(twin)
        life.add_done_callback(lambda life: self._ended(process, life))
        return twin

    # Lives

    async def _keep(self, host: str, process: _Process) -> None:
        while True:
            await self._world.wait_alive(host)
            life = process.life = self._world.on(host, process.main())
            life.set_name(host)
            await asyncio.wait({life})
            self._ended(process, life)
            await asyncio.sleep(REBORN)

    def _ended(self, process: _Process, life: asyncio.Task[object]) -> None:
        """Check with what a process has ended."""
        if life.cancelled() or (error := life.exception()) is None:
            return
        if not all(isinstance(each, process.may_end_with) for each in leaves(error)):
            error.add_note(f"This ended the process {life.get_name()}.")
            if not self.failed.done():
                self.failed.set_result(error)
